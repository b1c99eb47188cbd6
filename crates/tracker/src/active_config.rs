//! The active configuration: the `[tracker]` section, the lists that it names and its forwarders.
//! Immutable; a reload builds a new one.

use crate::access::Access;
use crate::config::TrackerConfig;
use crate::error::Error;
use crate::forwarders::{self, Forwarder, ForwarderId, ForwarderState};
use crate::subscriptions::Subscriptions;
use headworks_service::proxies::{ClientHeader, Network, TrustedProxies};
use headworks_tracker_wire::{Announce, InfoHash};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// The active configuration.
#[derive(Default)]
pub(crate) struct ActiveConfig {
    pub(crate) config: TrackerConfig,
    pub(crate) access: Access,
    pub(crate) trusted: TrustedProxies,
    /// Every forwarder that was listed since the start, indexed by [`ForwarderId`]. Entries are
    /// never removed, because swarms and queued jobs refer to them by id.
    pub(crate) forwarders: Vec<Arc<ForwarderState>>,
    /// Whether each of them is listed now.
    pub(crate) listed: Vec<bool>,
}

impl ActiveConfig {
    /// Reads the files that the section names. Forwarders in `before` keep their ids and state.
    pub(crate) fn new(
        config: &TrackerConfig,
        subscriptions: &Subscriptions,
        before: &[Arc<ForwarderState>],
    ) -> Result<ActiveConfig, Error> {
        let list = named_forwarders(config, subscriptions)?;
        let mut active = ActiveConfig {
            config: config.clone(),
            access: Access::read(config)?,
            trusted: trusted_proxies(config),
            forwarders: before.to_vec(),
            listed: vec![false; before.len()],
        };
        for (forwarder, name) in &list {
            active.add(forwarder, name);
        }
        match u16::try_from(active.forwarders.len()) {
            Ok(_) => Ok(active),
            Err(_) => Err(Error::TooManyForwarders(active.forwarders.len())),
        }
    }

    fn add(&mut self, forwarder: &Forwarder, name: &str) {
        let same = |state: &Arc<ForwarderState>| state.matches(forwarder, name);
        if let Some(index) = self.forwarders.iter().position(same) {
            self.listed[index] = true;
        } else if let Some(state) = ForwarderState::new(forwarder, name) {
            self.forwarders.push(Arc::new(state));
            self.listed.push(true);
        }
    }

    /// Returns the forwarders that are listed now.
    pub(crate) fn listed_forwarders(
        &self,
    ) -> impl Iterator<Item = (ForwarderId, &Arc<ForwarderState>)> {
        let all = self.forwarders.iter().zip(&self.listed).enumerate();
        all.filter(|(_, (_, listed))| **listed)
            .map(|(index, (state, _))| (ForwarderId::from_index(index), state))
    }

    /// Returns the listed forwarder with that name.
    pub(crate) fn find_forwarder(&self, name: &str) -> Option<(ForwarderId, &Arc<ForwarderState>)> {
        self.listed_forwarders()
            .find(|(_, state)| state.name == name)
    }

    /// Whether announces of the torrent may be forwarded.
    pub(crate) fn may_forward(&self, hash: &InfoHash) -> bool {
        !self.forwarders.is_empty() && !self.access.is_private(hash)
    }

    /// Returns the most peers of a torrent that are announced to forwarders. In `ask_only` mode all
    /// announces look the same, so one is enough.
    pub(crate) fn announced_peers(&self) -> usize {
        match self.config.ask_only {
            true => 1,
            false => self.config.announce_peers.limit(),
        }
    }

    /// Whether forwarders learn of this peer and its events. In `ask_only` mode they do not.
    pub(crate) fn reveals_peer(&self, announce: &Announce) -> bool {
        !self.config.ask_only && self.may_forward(&announce.info_hash)
    }
}

/// Returns the forwarders of the section and of the lists that it names. Duplicates and this
/// tracker itself are dropped, and every forwarder gets a unique name.
fn named_forwarders(
    config: &TrackerConfig,
    subscriptions: &Subscriptions,
) -> Result<Vec<(Forwarder, String)>, Error> {
    let mut list = config.forwarders.clone();
    for source in config.list_sources() {
        let read = match subscriptions.list(&source) {
            Some(list) => list,
            None => forwarders::read(Path::new(&source))?,
        };
        read.log_skipped(&source);
        list.extend(read.forwarders);
    }
    let (mut seen, before) = (HashSet::new(), list.len());
    list.retain(|forwarder| seen.insert((forwarder.identity(), forwarder.ip)));
    let distinct = list.len();
    list.retain(|forwarder| !is_ourselves(config, forwarder));
    if list.len() < before {
        let (duplicates, ourselves) = (before - distinct, distinct - list.len());
        tracing::info!(
            duplicates,
            ourselves,
            "entries of lists of forwarders dropped"
        );
    }
    let mut names = HashSet::new();
    let with_name = |forwarder: Forwarder| {
        let plain = forwarder.name();
        let others = (2..).map(|number| format!("{plain} ({number})"));
        let mut candidates = std::iter::once(plain.clone()).chain(others);
        let name = candidates.find(|name| names.insert(name.clone()));
        (forwarder, name.unwrap_or(plain))
    };
    Ok(list.into_iter().map(with_name).collect())
}

/// Whether a forwarder is this tracker, as far as its address tells.
fn is_ourselves(config: &TrackerConfig, forwarder: &Forwarder) -> bool {
    let Some(uri) = forwarder.parsed() else {
        return false;
    };
    let (listen, port) = match uri.scheme_str() {
        Some("udp") => (&config.udp_listen, uri.port_u16()),
        _ => (&config.listen, uri.port_u16().or(Some(80))),
    };
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    let Ok(ip) = host.parse::<IpAddr>() else {
        return false;
    };
    listen.addresses().iter().any(|own| {
        let all = own.ip().is_unspecified();
        let known = ip.is_loopback() || config.public_addresses.contains(&ip);
        own.port() != 0 && Some(own.port()) == port && (own.ip() == ip || all && known)
    })
}

fn trusted_proxies(config: &TrackerConfig) -> TrustedProxies {
    if config.x_real_ip && config.trusted_proxies.is_empty() {
        let local = ["127.0.0.0/8", "::1"].map(str::parse::<Network>);
        let local: Vec<Network> = local.into_iter().filter_map(Result::ok).collect();
        return TrustedProxies::new(&local, ClientHeader::XRealIp);
    }
    let header = match config.x_real_ip {
        true => ClientHeader::XRealIp,
        false => config.client_header,
    };
    TrustedProxies::new(&config.trusted_proxies, header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(uris: &[&str], before: &[Arc<ForwarderState>]) -> ActiveConfig {
        let config = TrackerConfig {
            forwarders: uris.iter().map(|uri| Forwarder::at(uri)).collect(),
            ..TrackerConfig::default()
        };
        ActiveConfig::new(&config, &Subscriptions::default(), before).unwrap()
    }

    #[test]
    fn forwarders_keep_their_ids_over_a_reload() {
        let (a, b, c) = (
            "http://a.example/",
            "udp://b.example:1",
            "http://c.example/",
        );
        let first = active(&[a, b], &[]);
        let second = active(&[c, b, b], &first.forwarders);
        let ids: Vec<_> = second.listed_forwarders().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [1, 2], "the first is no longer listed");
        assert_eq!(second.find_forwarder("c.example").unwrap().0.0, 2);
        assert!(second.find_forwarder("a.example").is_none());
        let third = active(&[a], &second.forwarders);
        assert_eq!(
            third.find_forwarder("a.example").unwrap().0.0,
            0,
            "listed again, it keeps its id"
        );
        assert!(Arc::ptr_eq(&third.forwarders[0], &first.forwarders[0]));
    }

    #[test]
    fn duplicates_and_ourselves_are_dropped() {
        let active = active(
            &[
                "udp://a.example:80/announce",
                "udp://A.example:80",
                "http://b.example/announce",
                "http://b.example:80/announce",
                "http://b.example/other",
                "http://127.0.0.1:6969/announce",
                "udp://localhost:6969",
                "udp://127.0.0.1:6970",
            ],
            &[],
        );
        let names: Vec<_> = active.forwarders.iter().map(|s| s.name.as_str()).collect();
        let expected = [
            "a.example:80",
            "b.example",
            "b.example (2)",
            "127.0.0.1:6970",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn every_forwarder_has_a_unique_name() {
        let active = active(&["http://a.example/1", "http://a.example/2"], &[]);
        let names: Vec<_> = active.forwarders.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a.example", "a.example (2)"]);
    }
}
