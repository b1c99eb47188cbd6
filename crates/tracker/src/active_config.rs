//! The active configuration: the `[tracker]` section, the lists that it names and its forwarders.
//! Immutable; a reload builds a new one.

use crate::access::Access;
use crate::config::TrackerConfig;
use crate::error::Error;
use crate::forwarders::{
    self, Forwarder, ForwarderAddress, ForwarderId, ForwarderState, Host, MAX_FORWARDERS,
    SkipReason, SkippedEntries,
};
use crate::subscriptions::Subscriptions;
use headworks_service::proxies::{ClientHeader, Network, TrustedProxies};
use headworks_tracker_wire::{Announce, InfoHash};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
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
    /// The entries of lists that are not used.
    pub(crate) skipped: SkippedEntries,
}

/// The ids that are left to the operator's own entries: those of published lists may change with
/// every fetch, and an id is never used again.
const RESERVED: usize = 16_384;

impl ActiveConfig {
    /// Reads the files that the section names. Forwarders in `before` keep their ids and state.
    pub(crate) fn new(
        config: &TrackerConfig,
        subscriptions: &Subscriptions,
        before: &[Arc<ForwarderState>],
    ) -> Result<ActiveConfig, Error> {
        let mut skipped = SkippedEntries::default();
        let (list, local) = named_forwarders(config, subscriptions, &mut skipped)?;
        let mut active = ActiveConfig {
            config: config.clone(),
            access: Access::read(config)?,
            trusted: trusted_proxies(config),
            forwarders: before.to_vec(),
            listed: vec![false; before.len()],
            skipped,
        };
        let known = before.iter().enumerate();
        let mut known: HashMap<_, _> = known.map(|(id, state)| (state.address(), id)).collect();
        let mut left_out = 0;
        for (
            index,
            (
                Listed {
                    forwarder,
                    list: of,
                },
                name,
            ),
        ) in list.iter().enumerate()
        {
            let limit = match index < local {
                true => MAX_FORWARDERS,
                false => MAX_FORWARDERS - RESERVED,
            };
            if active.add(forwarder, name, limit, &mut known) {
                continue;
            }
            // The operator can shorten a file of their own. A published list must not prevent a
            // start or a reload.
            if index < local {
                return Err(Error::TooManyForwarders(before.len() + list.len()));
            }
            active.skipped.add(of, name, SkipReason::Limit);
            left_out += 1;
        }
        if left_out > 0 {
            tracing::warn!(
                left_out,
                limit = MAX_FORWARDERS - RESERVED,
                "published lists have had too many forwarders since the start: some are left out"
            );
        }
        Ok(active)
    }

    /// Lists a forwarder. Returns `false` if there is no id below `limit` left for it.
    fn add(
        &mut self,
        forwarder: &Forwarder,
        name: &str,
        limit: usize,
        known: &mut HashMap<ForwarderAddress, usize>,
    ) -> bool {
        let address = ForwarderAddress::new(forwarder, name);
        if let Some(index) = address.as_ref().and_then(|address| known.get(address)) {
            self.listed[*index] = true;
            return true;
        }
        let state = ForwarderState::new(forwarder, name);
        let (Some(address), Some(state)) = (address, state) else {
            return true;
        };
        let room = self.forwarders.len() < limit;
        if room {
            known.insert(address, self.forwarders.len());
            self.forwarders.push(Arc::new(state));
            self.listed.push(true);
        }
        room
    }

    /// Returns the forwarders that are listed now.
    pub(crate) fn listed_forwarders(
        &self,
    ) -> impl Iterator<Item = (ForwarderId, &Arc<ForwarderState>)> {
        let all = self.forwarders.iter().zip(&self.listed).enumerate();
        all.filter(|(_, (_, listed))| **listed)
            .map(|(index, (state, _))| (ForwarderId::from_index(index), state))
    }

    /// Returns the number of networks that the listed forwarders are in.
    pub(crate) fn networks(&self) -> usize {
        let networks = self.listed_forwarders().map(|(_, one)| one.network());
        networks.collect::<HashSet<_>>().len()
    }

    /// Returns the listed forwarder with that name.
    pub(crate) fn find_forwarder(&self, name: &str) -> Option<(ForwarderId, &Arc<ForwarderState>)> {
        self.listed_forwarders()
            .find(|(_, state)| state.name == name)
    }

    /// Whether announces of the torrent may be forwarded.
    pub(crate) fn may_forward(&self, hash: &InfoHash) -> bool {
        let denied = self.access.is_private(hash) || self.access.denies_torrent(hash);
        !self.forwarders.is_empty() && !denied
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

/// A forwarder, and the list that names it.
struct Listed {
    forwarder: Forwarder,
    list: Arc<str>,
}

/// The name of the forwarders in the section itself, beside lists.
const IN_SECTION: &str = "tracker.forwarders";

/// Returns the forwarders of the section and of the lists that it names. Duplicates and this
/// tracker itself are skipped, and every forwarder gets a unique name. Those of the section and of
/// files come first; the second value is their number.
fn named_forwarders(
    config: &TrackerConfig,
    subscriptions: &Subscriptions,
    skipped: &mut SkippedEntries,
) -> Result<(Vec<(Listed, String)>, usize), Error> {
    let listed = |list: &str, forwarders: Vec<Forwarder>| {
        let list = Arc::<str>::from(list);
        let forwarders = forwarders.into_iter();
        forwarders.map(move |forwarder| Listed {
            forwarder,
            list: list.clone(),
        })
    };
    let mut list: Vec<Listed> = listed(IN_SECTION, config.forwarders.clone()).collect();
    let mut fetched = Vec::new();
    for source in config.list_sources() {
        match subscriptions.list(&source) {
            Some(read) => {
                let name = forwarders::shown_url(&source);
                read.note_skipped(&name, skipped);
                fetched.extend(listed(&name, read.forwarders));
            }
            None => {
                let read = forwarders::read(Path::new(&source))?;
                read.note_skipped(&source, skipped);
                if read.forwarders.is_empty() {
                    tracing::warn!(list = source, "a list of forwarders is empty");
                }
                list.extend(listed(&source, read.forwarders));
            }
        }
    }
    let mut skip = |entries: Vec<Listed>, reason: SkipReason| {
        for entry in entries {
            skipped.add(&entry.list, &entry.forwarder.name(), reason);
        }
    };
    skip(take_duplicates(&mut list), SkipReason::Duplicate);
    let is_ourselves = |listed: &mut Listed| is_ourselves(config, &listed.forwarder);
    skip(
        list.extract_if(.., is_ourselves).collect(),
        SkipReason::Ourselves,
    );
    let local = list.len();
    list.extend(fetched);
    skip(take_duplicates(&mut list), SkipReason::Duplicate);
    skip(
        list.extract_if(.., is_ourselves).collect(),
        SkipReason::Ourselves,
    );
    Ok((with_names(list), local))
}

/// Removes and returns the entries that are the same tracker as an earlier one.
fn take_duplicates(list: &mut Vec<Listed>) -> Vec<Listed> {
    forwarders::take_duplicates(list, |listed| &mut listed.forwarder)
}

/// Gives every forwarder a unique name. The search for a free number goes on where the last one for
/// the same name ended: a list may have thousands of entries of one host.
fn with_names(list: Vec<Listed>) -> Vec<(Listed, String)> {
    let (mut names, mut numbers) = (HashSet::new(), HashMap::<String, u32>::new());
    let with_name = |listed: Listed| {
        let plain = listed.forwarder.name();
        let number = numbers.entry(plain.clone()).or_insert(1);
        let mut name = plain.clone();
        while !names.insert(name.clone()) {
            *number += 1;
            name = format!("{plain} ({number})");
        }
        (listed, name)
    };
    list.into_iter().map(with_name).collect()
}

/// Whether a forwarder is this tracker, as far as its address tells.
fn is_ourselves(config: &TrackerConfig, forwarder: &Forwarder) -> bool {
    let Some(uri) = forwarder.parsed() else {
        return false;
    };
    let listen = match uri.scheme_str() {
        Some("udp") => &config.udp_listen,
        _ => &config.listen,
    };
    let port = forwarders::port(&uri);
    let ips = Host::parse(uri.host().unwrap_or_default()).local_addresses();
    listen.addresses().iter().any(|own| {
        let all = own.ip().is_unspecified();
        let is_own = |ip: &IpAddr| {
            let known = || config.public_addresses.contains(ip) || is_of_this_machine(*ip);
            own.ip().to_canonical() == *ip || all && known()
        };
        own.port() != 0 && Some(own.port()) == port && ips.iter().any(is_own)
    })
}

/// Whether this machine has an address: only then a socket can have it. Where sockets may have any
/// (`ip_nonlocal_bind`), even one for documentation, only loopback is certain.
pub(crate) fn is_of_this_machine(ip: IpAddr) -> bool {
    let can_bind = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
    let foreign: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    ip.is_loopback() || can_bind(ip) && !can_bind(foreign)
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
    use crate::captured_log::captured_log;
    use crate::listen::Listen;

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
                "udp://127.0.0.01:6970",
                "http://B.Example.:80/announce",
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
    fn every_skipped_entry_is_counted_and_named() {
        let url = "http://lists.example/s3cr3tpasskey99/list.txt";
        let mut text: String = (0..30).map(|n| format!("wss://w{n}.example\n")).collect();
        text += "udp://own.example:1\nudp://b.example:1\nudp://B.example:1\nudp://localhost:6969\n";
        let lists = Subscriptions::with_list(url, &text);
        let own = ["udp://own.example:1/announce", "udp://127.0.0.1:6969"];
        let config = TrackerConfig {
            forwarders: own.iter().map(|uri| Forwarder::at(uri)).collect(),
            forwarder_lists: vec![url.to_owned()],
            ..TrackerConfig::default()
        };
        let mut counts = None;
        let lines = captured_log(|| {
            let active = ActiveConfig::new(&config, &lists, &[]).unwrap();
            counts = Some(SkipReason::ALL.map(|reason| active.skipped.count(reason)));
        });
        assert_eq!(counts, Some([30, 2, 2, 0]));
        let with = |parts: &[&str]| {
            let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
            lines.iter().filter(has_all).count()
        };
        // Everything is named, the first of each list at the usual level.
        let list = "list=\"http://lists.example/[redacted]/list.txt\"";
        assert_eq!(
            with(&["WARN", list, "reason=\"unusable\""]),
            20,
            "{lines:#?}"
        );
        assert_eq!(with(&["DEBUG", list, "reason=\"unusable\""]), 10);
        for number in 0..30 {
            assert_eq!(with(&[&format!("`w{number}.example`")]), 1, "{number}");
        }
        assert_eq!(
            with(&["DEBUG", list, "own.example:1", "reason=\"duplicate\""]),
            1
        );
        assert_eq!(
            with(&["DEBUG", list, "B.example:1", "reason=\"duplicate\""]),
            1
        );
        assert_eq!(
            with(&["DEBUG", list, "localhost:6969", "reason=\"ourselves\""]),
            1
        );
        let section = "list=\"tracker.forwarders\"";
        assert_eq!(
            with(&["INFO", section, "127.0.0.1:6969", "reason=\"ourselves\""]),
            1
        );
    }

    #[test]
    fn every_form_of_our_own_address_is_dropped() {
        let own = [
            "http://127.1:6969/announce",
            "http://2130706433:6969/announce",
            "http://0x7f.1:6969/announce",
            "http://[::ffff:127.0.0.1]:6969/announce",
            "http://0.0.0.0:6969/announce",
            "http://0:6969/announce",
            "http://[::]:6969/announce",
            "http://127.0.0.1.:6969/announce",
            "http://LOCALHOST:6969/announce",
            "http://localhost.:6969/announce",
            "http://tracker.localhost:6969/announce",
            "http://user:password@127.0.0.1:6969/announce",
            "udp://127.1:6969",
            "udp://[::ffff:7f00:1]:6969",
            "udp://0.0.0.0:6969",
            "udp://localhost.:6969",
        ];
        for listen in ["127.0.0.1:6969", ":6969"] {
            let listen = Listen::try_from(listen.to_owned()).unwrap();
            let config = TrackerConfig {
                forwarders: own.iter().map(|uri| Forwarder::at(uri)).collect(),
                listen: listen.clone(),
                udp_listen: listen,
                ..TrackerConfig::default()
            };
            let active = ActiveConfig::new(&config, &Subscriptions::default(), &[]).unwrap();
            let names: Vec<_> = active.forwarders.iter().map(|s| s.name.as_str()).collect();
            assert!(names.is_empty(), "{names:?}");
        }
        let others = active(&["http://127.0.0.2:6969/", "http://127.1:6968/"], &[]);
        assert_eq!(others.forwarders.len(), 2, "other addresses and ports");
    }

    /// With a search per entry, this would take hours.
    #[test]
    fn a_long_list_of_one_host_is_applied_in_linear_time() {
        let uris: Vec<String> = (0..70_000).map(|n| format!("http://a.b/{n}")).collect();
        let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
        let limited = &uris[..MAX_FORWARDERS];
        let first = active(limited, &[]);
        let second = active(limited, &first.forwarders);
        assert!(second.listed.iter().all(|listed| *listed));
        assert_eq!(second.forwarders.len(), MAX_FORWARDERS);
        assert_eq!(second.forwarders[MAX_FORWARDERS - 1].name, "a.b (65535)");
        let config = TrackerConfig {
            forwarders: uris.iter().map(|uri| Forwarder::at(uri)).collect(),
            ..TrackerConfig::default()
        };
        let local = ActiveConfig::new(&config, &Subscriptions::default(), &[]);
        assert!(matches!(local, Err(Error::TooManyForwarders(70_000))));
        let url = "http://lists.example/list.txt";
        let fetched = Subscriptions::with_list(url, &uris.join("\n"));
        let config = TrackerConfig {
            forwarder_lists: vec![url.to_owned()],
            ..TrackerConfig::default()
        };
        let fetched = ActiveConfig::new(&config, &fetched, &[]).unwrap();
        assert_eq!(
            fetched.forwarders.len(),
            MAX_FORWARDERS - RESERVED,
            "it never prevents a start"
        );
    }

    #[test]
    fn published_lists_leave_ids_to_the_operator() {
        let url = "http://lists.example/list.txt";
        let published: String = (0..70_000).map(|n| format!("http://h{n}.b/\n")).collect();
        let lists = Subscriptions::with_list(url, &published);
        let mut config = TrackerConfig {
            forwarder_lists: vec![url.to_owned()],
            ..TrackerConfig::default()
        };
        let first = ActiveConfig::new(&config, &lists, &[]).unwrap();
        config.forwarders = vec![Forwarder::at("udp://own.example:1")];
        let second = ActiveConfig::new(&config, &lists, &first.forwarders).unwrap();
        assert!(second.find_forwarder("own.example:1").is_some());
    }

    #[test]
    fn every_forwarder_has_a_unique_name() {
        let active = active(&["http://a.example/1", "http://a.example/2"], &[]);
        let names: Vec<_> = active.forwarders.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a.example", "a.example (2)"]);
    }
}
