//! Capacity pools: limits belong to a server and a group of models, over all entries and dialects.
//!
//! A server that speaks both APIs has two entries in the configuration, but its capacity exists
//! once. Entries with the same server, models and key therefore share a pool, which is one target
//! of the scheduler. Pools that can serve the same model form a domain of the scheduler: what a
//! tenant or class gets from other pools does not count there.

use std::collections::BTreeMap;

use headworks_service::config::Secret;

use crate::config::{Kind, UpstreamSettings};
use crate::pattern;
use crate::upstream::Address;

/// An entry of the configuration, or the part of one with separate limits.
pub(crate) struct PoolMember {
    pub(crate) settings: UpstreamSettings,
    /// Index into the model limits; `None` for the models without separate limits.
    pub(crate) limit: Option<usize>,
    pub(crate) pool: String,
}

impl PoolMember {
    fn models(&self) -> &[String] {
        match self.limit.and_then(|limit| self.settings.limit.get(limit)) {
            Some(limit) => &limit.models,
            None => &self.settings.models,
        }
    }

    /// Whether the limits of both are those of the same server, models and account.
    fn shares_with(&self, other: &PoolMember) -> bool {
        let sorted = |models: &[String]| {
            let mut models = models.to_vec();
            models.sort_unstable();
            models
        };
        self.settings.pool.is_none()
            && other.settings.pool.is_none()
            && self.has_same_account(other)
            && sorted(self.models()) == sorted(other.models())
    }

    /// Whether both are in one pool and call the same account of a server.
    pub(crate) fn shares_account(&self, other: &PoolMember) -> bool {
        self.pool == other.pool && self.has_same_account(other)
    }

    /// Whether both are in one pool and on the same server.
    pub(crate) fn shares_server(&self, other: &PoolMember) -> bool {
        let server = |member: &PoolMember| {
            let address = Address::parse(&member.settings.url).ok()?;
            Some(address.server())
        };
        self.pool == other.pool && server(self).is_some_and(|one| server(other) == Some(one))
    }

    fn has_same_account(&self, other: &PoolMember) -> bool {
        let (one, two) = (&self.settings, &other.settings);
        let [key, other_key] = [one, two].map(|one| one.api_key.as_ref().map(Secret::reveal));
        let server = |settings: &UpstreamSettings| {
            Address::parse(&settings.url).map(|address| address.server())
        };
        // Two entries of one kind that differ in anything else are two accounts or deployments.
        let same_account =
            one.kind != two.kind || (one.url == two.url && one.headers == two.headers);
        ![one.kind, two.kind].contains(&Kind::Echo)
            && same_account
            && key == other_key
            && matches!((server(one), server(two)), (Ok(one), Ok(two)) if one == two)
    }

    /// Whether a model may be served by both.
    fn overlaps(&self, other: &PoolMember) -> bool {
        let speaks = |kind: Kind| (kind != Kind::Anthropic, kind != Kind::Openai);
        let (one, two) = (speaks(self.settings.kind), speaks(other.settings.kind));
        let same_dialect = (one.0 && two.0) || (one.1 && two.1);
        same_dialect && pattern::overlap(self.models(), other.models())
    }

    fn is_limited(&self) -> bool {
        let settings = &self.settings;
        settings.max_concurrent.is_some()
            || settings.max_rps.is_some()
            || settings.max_tokens_per_sec.is_some()
    }
}

/// Splits upstreams into scheduler targets and assigns each to its pool.
pub(crate) fn members(upstreams: &[UpstreamSettings]) -> Vec<PoolMember> {
    let mut members: Vec<PoolMember> = Vec::new();
    for upstream in upstreams {
        for (part, settings) in upstream.scheduler_targets().enumerate() {
            let limit = (part < upstream.limit.len()).then_some(part);
            let mut member = PoolMember {
                pool: settings.name.clone(),
                settings,
                limit,
            };
            if let Some(pool) = &upstream.pool {
                member.pool = match limit {
                    Some(_) => format!("{pool}/{}", member.models().join(",")),
                    None => pool.clone(),
                };
            } else if let Some(known) = members.iter().find(|known| known.shares_with(&member)) {
                member.pool.clone_from(&known.pool);
            }
            members.push(member);
        }
    }
    members
}

/// Limits of a pool: of each, the tightest that a member states.
pub(crate) fn merged_limits(
    mut pool: UpstreamSettings,
    member: &UpstreamSettings,
) -> UpstreamSettings {
    fn tightest<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
        match (one, other) {
            (Some(one), Some(other)) if other < one => Some(other),
            (Some(one), _) => Some(one),
            (None, other) => other,
        }
    }
    pool.max_concurrent = tightest(pool.max_concurrent, member.max_concurrent);
    pool.max_rps = tightest(pool.max_rps, member.max_rps);
    pool.max_tokens_per_sec = tightest(pool.max_tokens_per_sec, member.max_tokens_per_sec);
    // The bounds of a learned rate stay in order, because the upper one is one of them.
    pool.min_rps = tightest(tightest(pool.min_rps, member.min_rps), pool.max_rps)
        .filter(|_| pool.min_rps.or(member.min_rps).is_some());
    pool.min_tokens_per_sec = tightest(
        tightest(pool.min_tokens_per_sec, member.min_tokens_per_sec),
        pool.max_tokens_per_sec,
    )
    .filter(|_| {
        pool.min_tokens_per_sec
            .or(member.min_tokens_per_sec)
            .is_some()
    });
    // Which member is long enough for a request is decided before it is scheduled.
    let lengths = (pool.max_context_length, member.max_context_length);
    pool.max_context_length = match lengths {
        (Some(one), Some(other)) => Some(one.max(other)),
        _ => None,
    };
    pool.weight = pool.weight.max(member.weight);
    pool
}

/// Fairness domain of every pool, by its name. Pools that can serve the same model are one domain.
///
/// Pools without limits of their own draw on the limits over all upstreams, so they and the pools
/// that are related to them have no domain of their own.
pub(crate) fn domains(members: &[PoolMember]) -> BTreeMap<&str, &str> {
    // The number of upstreams is small: names are replaced until nothing changes.
    let mut domain: BTreeMap<&str, &str> = members
        .iter()
        .map(|member| (member.pool.as_str(), member.pool.as_str()))
        .collect();
    loop {
        let mut changed = false;
        for (index, one) in members.iter().enumerate() {
            for other in members[..index].iter().filter(|other| one.overlaps(other)) {
                let (a, b) = (domain[one.pool.as_str()], domain[other.pool.as_str()]);
                let first = a.min(b);
                for name in domain
                    .values_mut()
                    .filter(|name| **name == a || **name == b)
                {
                    changed |= *name != first;
                    *name = first;
                }
            }
        }
        if !changed {
            break;
        }
    }
    // A pool is limited if one of its members is.
    let limited = |pool: &str| {
        let mut of_pool = members.iter().filter(|member| member.pool == pool);
        of_pool.any(PoolMember::is_limited)
    };
    let open: Vec<&str> = domain
        .iter()
        .filter(|(pool, _)| !limited(pool))
        .map(|(_, domain)| *domain)
        .collect();
    domain.retain(|_, domain| !open.contains(domain));
    domain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(name: &str, models: &[&str]) -> UpstreamSettings {
        UpstreamSettings {
            name: name.into(),
            url: "http://10.0.0.1:8000".into(),
            models: models.iter().map(ToString::to_string).collect(),
            max_concurrent: Some(2),
            ..UpstreamSettings::default()
        }
    }

    fn pools(upstreams: &[UpstreamSettings]) -> Vec<String> {
        let members = members(upstreams).into_iter();
        members.map(|member| member.pool).collect()
    }

    #[test]
    fn entries_of_one_server_and_the_same_models_share_a_pool() {
        let openai = upstream("openai", &["a", "b"]);
        let anthropic = UpstreamSettings {
            kind: Kind::Anthropic,
            url: "http://10.0.0.1:8000/anthropic".into(),
            ..upstream("anthropic", &["b", "a"])
        };
        assert_eq!(pools(&[openai.clone(), anthropic.clone()]), ["openai"; 2]);
        let differing = [
            UpstreamSettings {
                models: vec!["c".into()],
                ..anthropic.clone()
            },
            UpstreamSettings {
                api_key: Some("another account".into()),
                ..anthropic.clone()
            },
            UpstreamSettings {
                url: "http://10.0.0.2:8000".into(),
                ..anthropic.clone()
            },
            UpstreamSettings {
                kind: Kind::Openai,
                ..anthropic.clone()
            },
            UpstreamSettings {
                pool: Some("own".into()),
                ..anthropic
            },
        ];
        for other in differing {
            assert_ne!(
                pools(&[openai.clone(), other.clone()]),
                ["openai"; 2],
                "{other:?}"
            );
        }
        let named = ["x", "y"].map(|name| UpstreamSettings {
            pool: Some("gpu".into()),
            ..upstream(name, &[name])
        });
        assert_eq!(pools(&named), ["gpu"; 2]);
    }

    #[test]
    fn the_tightest_limit_of_a_pool_holds() {
        let one = UpstreamSettings {
            max_rps: Some(5.0),
            min_rps: Some(4.0),
            ..upstream("a", &[])
        };
        let other = UpstreamSettings {
            max_concurrent: Some(1),
            max_rps: Some(3.0),
            max_tokens_per_sec: Some(7.0),
            ..upstream("b", &[])
        };
        let pool = merged_limits(one, &other);
        assert_eq!(
            (pool.max_concurrent, pool.max_rps, pool.min_rps),
            (Some(1), Some(3.0), Some(3.0))
        );
        assert_eq!(
            (pool.max_tokens_per_sec, pool.min_tokens_per_sec),
            (Some(7.0), None)
        );
    }

    #[test]
    fn unrelated_models_are_domains_of_their_own() {
        let other_server = |name: &str, models: &[&str]| UpstreamSettings {
            url: format!("http://{name}.example"),
            ..upstream(name, models)
        };
        let upstreams = [
            other_server("x", &["x-*"]),
            other_server("y", &["y-*", "z-1"]),
            other_server("z", &["z-*"]),
        ];
        let found = members(&upstreams);
        let domain = domains(&found);
        assert_eq!(
            (domain["y"], domain["z"]),
            ("y", "y"),
            "z-1 is served by both"
        );
        assert_eq!(domain["x"], "x");
        let unlimited = UpstreamSettings {
            max_concurrent: None,
            ..other_server("x", &["x-*"])
        };
        let found = members(&[unlimited, upstreams[1].clone()]);
        assert_eq!(
            domains(&found).into_iter().collect::<Vec<_>>(),
            [("y", "y")]
        );
    }
}
