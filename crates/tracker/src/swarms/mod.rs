//! Swarms: the peers of every torrent, and the record of what forwarders reported about it.
//!
//! [`Swarms`] is a table in many shards. Each shard has its own lock, which is held while one
//! request is handled and never across I/O. Addresses are stored in the compact form of the
//! protocol, so a response is a copy. The record of forwards is part of the swarm: a torrent whose
//! forwarders are not due costs a single lookup per announce.

mod address;
mod address_counts;
mod announce_record;
mod by_forwarder;
mod cached_peers;
mod claims;
mod peers;
mod recent_stops;
mod sample;
mod swarm;
mod table;

pub(crate) use address::PackedAddress;
pub(crate) use announce_record::{
    AnnounceRecord, AnnouncedPeer, ForwarderSchedule, MIN_REPEAT, Schedule, StayId,
};
pub(crate) use peers::{Peer, PeerChange};
pub(crate) use sample::PeerSample;
pub(crate) use swarm::Swarm;
pub(crate) use table::Swarms;

#[cfg(test)]
mod tests;
