//! What is in force: the section, the lists that it names, and its forwarders. Never changes; a
//! reload makes another.

use crate::access::Access;
use crate::config::TrackerConfig;
use crate::error::Error;
use crate::forward::Station;
use crate::forwarders::{self, Forwarder};
use headworks_service::proxies::{ClientHeader, Network, TrustedProxies};
use headworks_tracker_wire::{Announce, InfoHash};
use std::collections::HashSet;
use std::sync::Arc;

/// What is in force.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) config: TrackerConfig,
    pub(crate) access: Access,
    pub(crate) trusted: TrustedProxies,
    /// Every forwarder since the start, each at its place for good: swarms and jobs know them by
    /// it.
    pub(crate) stations: Vec<Arc<Station>>,
    /// Which of them are listed now.
    pub(crate) listed: Vec<bool>,
}

impl Plan {
    /// Reads what the section names. Forwarders that `before` had keep their places.
    pub(crate) fn new(config: &TrackerConfig, before: &[Arc<Station>]) -> Result<Plan, Error> {
        let list = listed(config)?;
        let mut plan = Plan {
            config: config.clone(),
            access: Access::read(config)?,
            trusted: trusted(config),
            stations: before.to_vec(),
            listed: vec![false; before.len()],
        };
        for (forwarder, name) in &list {
            plan.seat(forwarder, name);
        }
        match u16::try_from(plan.stations.len()) {
            Ok(_) => Ok(plan),
            Err(_) => Err(Error::TooManyForwarders(plan.stations.len())),
        }
    }

    fn seat(&mut self, forwarder: &Forwarder, name: &str) {
        let known = |station: &Arc<Station>| station.is(forwarder, name);
        if let Some(place) = self.stations.iter().position(known) {
            self.listed[place] = true;
        } else if let Some(station) = Station::new(forwarder, name) {
            self.stations.push(Arc::new(station));
            self.listed.push(true);
        }
    }

    /// The forwarders that are listed now, with their places.
    pub(crate) fn forwarders(&self) -> impl Iterator<Item = (u16, &Arc<Station>)> {
        let all = self.stations.iter().zip(&self.listed).enumerate();
        all.filter(|(_, (_, listed))| **listed)
            .map(|(place, (station, _))| (place as u16, station))
    }

    /// The listed forwarder of that name.
    pub(crate) fn find(&self, name: &str) -> Option<(u16, &Arc<Station>)> {
        self.forwarders().find(|(_, station)| station.name == name)
    }

    /// Whether forwarders may hear of the torrent, and there are any.
    pub(crate) fn forwards(&self, hash: &InfoHash) -> bool {
        !self.stations.is_empty() && !self.access.is_private(hash)
    }

    /// Whether forwarders hear of a peer's coming, finishing and leaving.
    pub(crate) fn tells(&self, announce: &Announce) -> bool {
        !self.config.ask_only && self.forwards(&announce.info_hash)
    }
}

/// The forwarders of the section and of the list that it names, each address once and each with a
/// name of its own.
fn listed(config: &TrackerConfig) -> Result<Vec<(Forwarder, String)>, Error> {
    let mut list = config.forwarders.clone();
    if let Some(path) = &config.forwarders_file {
        list.extend(forwarders::read(path)?);
    }
    let mut seen = HashSet::new();
    list.retain(|forwarder| seen.insert((forwarder.uri.reveal().to_owned(), forwarder.ip)));
    let mut names = HashSet::new();
    let named = |forwarder: Forwarder| {
        let plain = forwarder.name();
        let others = (2..).map(|number| format!("{plain} ({number})"));
        let mut candidates = std::iter::once(plain.clone()).chain(others);
        let name = candidates.find(|name| names.insert(name.clone()));
        (forwarder, name.unwrap_or(plain))
    };
    Ok(list.into_iter().map(named).collect())
}

fn trusted(config: &TrackerConfig) -> TrustedProxies {
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

    fn plan(uris: &[&str], before: &[Arc<Station>]) -> Plan {
        let config = TrackerConfig {
            forwarders: uris.iter().map(|uri| Forwarder::at(uri)).collect(),
            ..TrackerConfig::default()
        };
        Plan::new(&config, before).unwrap()
    }

    #[test]
    fn forwarders_keep_their_places_over_a_reload() {
        let (a, b, c) = (
            "http://a.example/",
            "udp://b.example:1",
            "http://c.example/",
        );
        let first = plan(&[a, b], &[]);
        let second = plan(&[c, b, b], &first.stations);
        let places: Vec<_> = second.forwarders().map(|(place, _)| place).collect();
        assert_eq!(places, [1, 2], "the first is no longer listed");
        assert_eq!(second.find("c.example").unwrap().0, 2);
        assert!(second.find("a.example").is_none());
        let third = plan(&[a], &second.stations);
        assert_eq!(
            third.find("a.example").unwrap().0,
            0,
            "it is back in its place"
        );
        assert!(Arc::ptr_eq(&third.stations[0], &first.stations[0]));
    }

    #[test]
    fn every_forwarder_has_a_name_of_its_own() {
        let plan = plan(&["http://a.example/1", "http://a.example/2"], &[]);
        let names: Vec<_> = plan.stations.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a.example", "a.example (2)"]);
    }
}
