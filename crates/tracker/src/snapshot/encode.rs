//! The encoder.

use super::format::{MAGIC, checksum};
use crate::clock::Seconds;
use crate::forwarders::ForwarderId;
use crate::state::TrackerState;
use crate::swarms::{AnnounceRecord, PackedAddress, Peer, Swarm};
use headworks_tracker_wire::InfoHash;

/// Encodes all swarms. `names` are the names of the forwarders, by id.
pub(super) fn encode(state: &TrackerState, names: &[String]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_u16(&mut out, names.len());
    for name in names {
        let name = &name.as_bytes()[..name.len().min(usize::from(u16::MAX))];
        put_u16(&mut out, name.len());
        out.extend_from_slice(name);
    }
    let count_at = out.len();
    put_u32(&mut out, 0);
    let mut count = 0u32;
    state.swarms.for_each(|hash, swarm| {
        count += 1;
        put_swarm(&mut out, hash, swarm);
    });
    state.swarms.for_each_downloads(|hash, downloaded| {
        count += 1;
        let mut swarm = Swarm::default();
        swarm.downloaded = downloaded;
        put_swarm(&mut out, hash, &swarm);
    });
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

fn put_swarm(out: &mut Vec<u8>, hash: &InfoHash, swarm: &Swarm) {
    out.extend_from_slice(&hash.0);
    put_u32(out, swarm.downloaded as usize);
    put_u32(out, swarm.v4.len());
    for (address, peer) in swarm.v4.iter() {
        out.extend_from_slice(&address);
        put_peer(out, &peer);
    }
    put_u32(out, swarm.v6.len());
    for (address, peer) in swarm.v6.iter() {
        out.extend_from_slice(&address);
        put_peer(out, &peer);
    }
    let claims = swarm.claims();
    put_u32(out, claims.len());
    for (address, client) in claims {
        put_address(out, address);
        put_address(out, PackedAddress::new(client, 0));
    }
    let empty = AnnounceRecord::default();
    let record = swarm.record.as_deref().unwrap_or(&empty);
    put_u32(out, record.v4.len());
    for (address, forwarder, last_seen) in record.v4.iter() {
        out.extend_from_slice(&address);
        put_cached(out, forwarder, last_seen);
    }
    put_u32(out, record.v6.len());
    for (address, forwarder, last_seen) in record.v6.iter() {
        out.extend_from_slice(&address);
        put_cached(out, forwarder, last_seen);
    }
    let schedules: Vec<_> = record.schedules().collect();
    put_u32(out, schedules.len());
    for (forwarder, schedule) in schedules {
        put_u16(out, forwarder.index());
        for number in [schedule.due, schedule.last, schedule.contributed] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    let announced: Vec<_> = record.announced().collect();
    put_u32(out, announced.len());
    for (peer, forwarder) in announced {
        out.extend_from_slice(&peer.0);
        put_u16(out, forwarder.index());
    }
}

fn put_peer(out: &mut Vec<u8>, peer: &Peer) {
    out.extend_from_slice(&peer.id.0);
    out.push(u8::from(peer.seeder));
    out.extend_from_slice(&peer.last_announce.to_le_bytes());
    out.extend_from_slice(&peer.key.to_le_bytes());
}

/// Appends an address behind the number of its family.
fn put_address(out: &mut Vec<u8>, address: PackedAddress) {
    match address {
        PackedAddress::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address);
        }
        PackedAddress::V6(address) => {
            out.push(6);
            out.extend_from_slice(&address);
        }
    }
}

fn put_cached(out: &mut Vec<u8>, forwarder: ForwarderId, last_seen: Seconds) {
    put_u16(out, forwarder.index());
    out.extend_from_slice(&last_seen.to_le_bytes());
}

fn put_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u16).to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}
