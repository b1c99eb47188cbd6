//! Swarms to bytes.

use super::{MAGIC, checksum};
use crate::plane::Shared;
use crate::swarm::{Known, Swarm};
use headworks_tracker_wire::InfoHash;

pub(super) fn encode(shared: &Shared, names: &[String]) -> Vec<u8> {
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
    shared.swarms.each(|hash, swarm| {
        count += 1;
        put_swarm(&mut out, hash, swarm);
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
    for (at, id, seeder, heard) in swarm.v4.iter() {
        out.extend_from_slice(&at);
        put_peer(out, &id.0, seeder, heard);
    }
    put_u32(out, swarm.v6.len());
    for (at, id, seeder, heard) in swarm.v6.iter() {
        out.extend_from_slice(&at);
        put_peer(out, &id.0, seeder, heard);
    }
    let nothing = Known::default();
    let known = swarm.known.as_deref().unwrap_or(&nothing);
    put_u32(out, known.v4.iter().count());
    for (at, forwarder, seen) in known.v4.iter() {
        out.extend_from_slice(&at);
        put_found(out, forwarder, seen);
    }
    put_u32(out, known.v6.iter().count());
    for (at, forwarder, seen) in known.v6.iter() {
        out.extend_from_slice(&at);
        put_found(out, forwarder, seen);
    }
    let asked: Vec<_> = known.all_asked().collect();
    put_u32(out, asked.len());
    for (forwarder, asked) in asked {
        put_u16(out, usize::from(forwarder));
        for number in [asked.due, asked.last, asked.contributed] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    let told: Vec<_> = known.all_told().collect();
    put_u32(out, told.len());
    for (peer, forwarder) in told {
        out.extend_from_slice(&peer.0);
        put_u16(out, usize::from(forwarder));
    }
}

fn put_peer(out: &mut Vec<u8>, id: &[u8; 20], seeder: bool, heard: u32) {
    out.extend_from_slice(id);
    out.push(u8::from(seeder));
    out.extend_from_slice(&heard.to_le_bytes());
}

fn put_found(out: &mut Vec<u8>, forwarder: u16, seen: u32) {
    put_u16(out, usize::from(forwarder));
    out.extend_from_slice(&seen.to_le_bytes());
}

fn put_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u16).to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}
