//! Announces over UDP: many packets received, answered and sent with two system calls. A socket has
//! a thread of its own, so that waiting for packets and taking them is one.

use super::connection_id::ConnectionIds;
use super::worker::next;
use crate::counters::Counters;
use crate::plan::Plan;
use crate::plane::{Call, Families, Peers, Plane, Verdict};
use crate::swarm::Seconds;
use headworks_tracker_wire::udp::{self, Request, RequestError, TransactionId};
use headworks_tracker_wire::{Announce, Event, InfoHash};
use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike, recvmmsg, sendmmsg,
};
use std::array;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Packets that are received at once.
const BATCH: usize = 64;

/// The largest request: a scrape of 74 torrents, or an announce with a long path.
const REQUEST: usize = 1600;

/// What the two families differ in.
pub(crate) trait Family: SockaddrLike + Copy {
    const FAMILIES: Families;
    fn ip(&self) -> IpAddr;
}

impl Family for SockaddrIn {
    const FAMILIES: Families = Families::V4;
    fn ip(&self) -> IpAddr {
        IpAddr::V4(SockaddrIn::ip(self))
    }
}

impl Family for SockaddrIn6 {
    const FAMILIES: Families = Families::V6;
    fn ip(&self) -> IpAddr {
        IpAddr::V6(SockaddrIn6::ip(self))
    }
}

/// A socket and the buffers of its batches.
pub(crate) struct UdpPort<S> {
    socket: UdpSocket,
    received: MultiHeaders<S>,
    sent: MultiHeaders<S>,
    requests: Box<[[u8; REQUEST]]>,
    answers: Vec<Vec<u8>>,
    clients: [Option<S>; BATCH],
}

/// What a packet is answered with.
struct Desk<'a> {
    plane: &'a Plane,
    ids: &'a ConnectionIds,
    counters: &'a Counters,
    peers: &'a mut Peers,
    random: &'a mut dyn FnMut() -> u32,
}

/// Who sent a packet, and what is in force as it is answered.
struct From<'a> {
    client: IpAddr,
    families: Families,
    now: Seconds,
    plan: &'a Plan,
}

impl<S: Family> UdpPort<S> {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        UdpPort {
            socket,
            received: MultiHeaders::preallocate(BATCH, None),
            sent: MultiHeaders::preallocate(BATCH, None),
            requests: vec![[0; REQUEST]; BATCH].into_boxed_slice(),
            answers: (0..BATCH).map(|_| Vec::with_capacity(2048)).collect(),
            clients: [None; BATCH],
        }
    }

    /// Serves until told to stop.
    pub(crate) fn work(mut self, plane: &Plane, ids: &ConnectionIds, seed: u64, stop: &AtomicBool) {
        let (counters, mut peers) = (plane.shared.counters(), Peers::default());
        let mut state = seed | 1;
        let mut desk = Desk {
            plane,
            ids,
            counters: &counters,
            peers: &mut peers,
            random: &mut || next(&mut state),
        };
        while !stop.load(Ordering::Relaxed) {
            match self.receive(&mut desk) {
                Ok(0) | Err(Errno::EINTR | Errno::EAGAIN) => {}
                Ok(count) => {
                    let unsent = self.send(count);
                    desk.counters.udp_unsent.add(unsent as u64);
                    desk.plane.hand_in_later(desk.peers, desk.counters);
                }
                Err(error) => {
                    tracing::error!(%error, "receiving over UDP");
                    // Whatever it is must not keep a core busy.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Waits for a packet, takes whatever else is there, and makes the answers; says how many.
    fn receive(&mut self, desk: &mut Desk<'_>) -> Result<usize, Errno> {
        let mut requests = self.requests.iter_mut();
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] = array::from_fn(|_| {
            let request = requests.next().expect("there is a buffer for each");
            [IoSliceMut::new(request)]
        });
        let flags = MsgFlags::MSG_WAITFORONE;
        let socket = self.socket.as_raw_fd();
        let packets = recvmmsg(socket, &mut self.received, slices.iter_mut(), flags, None)?;
        let (now, plan) = (desk.plane.shared.clock.now(), desk.plane.shared.plan());
        let mut count = 0;
        for packet in packets {
            let Some(client) = packet.address else {
                continue;
            };
            let request = packet.iovs().next().unwrap_or_default();
            let answer = &mut self.answers[count];
            answer.clear();
            let from = From {
                client: client.ip(),
                families: S::FAMILIES,
                now,
                plan: &plan,
            };
            desk.answer(&from, request, answer);
            if !answer.is_empty() {
                self.clients[count] = Some(client);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Sends the first `count` answers, and says how many the system would not take.
    fn send(&mut self, count: usize) -> usize {
        let (mut done, mut unsent) = (0, 0);
        while done < count {
            let left = &self.answers[done..count];
            let slices: [[IoSlice<'_>; 1]; BATCH] = array::from_fn(|place| {
                let answer = left.get(place).map_or(&[][..], Vec::as_slice);
                [IoSlice::new(answer)]
            });
            let (socket, clients) = (self.socket.as_raw_fd(), &self.clients[done..count]);
            let slices = &slices[..left.len()];
            let flags = MsgFlags::MSG_DONTWAIT;
            match sendmmsg(socket, &mut self.sent, slices, clients, [], flags).map(Iterator::count)
            {
                Ok(sent) if sent > 0 => done += sent,
                Ok(_) | Err(Errno::EAGAIN) => return unsent + count - done,
                // The first of them cannot be sent (no route, a forbidden address): the others may.
                Err(_) => (done, unsent) = (done + 1, unsent + 1),
            }
        }
        unsent
    }
}

impl Desk<'_> {
    /// Answers one packet; nothing if it deserves none.
    fn answer(&mut self, from: &From<'_>, packet: &[u8], out: &mut Vec<u8>) {
        match udp::parse_request(packet) {
            Ok(Request::Connect { transaction }) => {
                self.counters.udp_connects.add(1);
                let id = self.ids.give(from.now, from.client);
                udp::write_connect_response(transaction, id, out);
            }
            Ok(Request::Announce {
                connection,
                transaction,
                announce,
                ..
            }) if self.admits(connection, from) => {
                self.counters.udp_announces.add(1);
                self.announce(from, transaction, &announce, out);
            }
            Ok(Request::Scrape {
                connection,
                transaction,
                hashes,
            }) if self.admits(connection, from) => {
                self.counters.udp_scrapes.add(1);
                if from.plan.access.refuses_client(from.client) {
                    return udp::write_error_response(
                        transaction,
                        "this client is not served here",
                        out,
                    );
                }
                let counts = hashes
                    .iter()
                    .map(|hash| self.plane.scrape(from.plan, &InfoHash(*hash)));
                udp::write_scrape_response(transaction, counts, out);
            }
            Err(RequestError::Invalid {
                connection,
                transaction,
                text,
            }) if self.admits(connection, from) => {
                self.counters.udp_bad.add(1);
                udp::write_error_response(transaction, text, out);
            }
            // A bad connection id may be a forged address: its owner must not be sent anything.
            _ => self.counters.udp_bad.add(1),
        }
    }

    fn admits(&self, connection: u64, from: &From<'_>) -> bool {
        self.ids.is_good(connection, from.now, from.client)
    }

    fn announce(
        &mut self,
        from: &From<'_>,
        transaction: TransactionId,
        announce: &Announce,
        out: &mut Vec<u8>,
    ) {
        if announce.port == 0 && announce.event != Event::Stopped {
            return udp::write_error_response(transaction, "invalid port", out);
        }
        let call = Call {
            plan: from.plan,
            now: from.now,
            client: from.client,
            announce,
            families: from.families,
            named: false,
            random: (self.random)(),
            counters: self.counters,
        };
        match self.plane.announce(&call, self.peers) {
            Verdict::Peers { interval, counts } => {
                udp::write_announce_response(transaction, interval, counts, out);
                out.extend_from_slice(&self.peers.v4);
                out.extend_from_slice(&self.peers.v6);
            }
            Verdict::Refused { why, retry } => {
                udp::write_error_response(transaction, &why.words(retry), out);
            }
            Verdict::Denied(words) => udp::write_error_response(transaction, words, out),
        }
    }
}
