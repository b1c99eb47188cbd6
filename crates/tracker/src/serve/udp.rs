//! Announces over UDP. A batch of packets is received with one system call and the responses are
//! sent with another. Each socket has its own thread, so that waiting and receiving are one call.

use super::connection_id::ConnectionIds;
use crate::active_config::ActiveConfig;
use crate::announce::{AnnounceHandler, AnnounceOutcome, ResponseBuffers};
use crate::clock::Seconds;
use crate::counters::Counters;
use crate::request::{AddressFamilies, AnnounceRequest};
use fastrand::Rng;
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

/// The most packets per system call.
const BATCH: usize = 64;

/// The largest request in bytes: a scrape of 74 torrents, or an announce with a long path.
const MAX_REQUEST: usize = 1600;

/// A socket address of one family.
pub(super) trait Family: SockaddrLike + Copy {
    const FAMILIES: AddressFamilies;
    fn ip(&self) -> IpAddr;
}

impl Family for SockaddrIn {
    const FAMILIES: AddressFamilies = AddressFamilies::V4;
    fn ip(&self) -> IpAddr {
        IpAddr::V4(SockaddrIn::ip(self))
    }
}

impl Family for SockaddrIn6 {
    const FAMILIES: AddressFamilies = AddressFamilies::V6;
    fn ip(&self) -> IpAddr {
        IpAddr::V6(SockaddrIn6::ip(self))
    }
}

/// A UDP socket and the buffers of its batches.
pub(super) struct UdpWorker<S> {
    socket: UdpSocket,
    receive_headers: MultiHeaders<S>,
    send_headers: MultiHeaders<S>,
    requests: Box<[[u8; MAX_REQUEST]]>,
    responses: Vec<Vec<u8>>,
    clients: [Option<S>; BATCH],
}

/// Handles packets.
struct PacketHandler<'a> {
    announces: &'a AnnounceHandler,
    ids: &'a ConnectionIds,
    counters: &'a Counters,
    buffers: ResponseBuffers,
    random: Rng,
}

/// The sender of a packet and the circumstances of its arrival.
struct PacketContext<'a> {
    client: IpAddr,
    families: AddressFamilies,
    now: Seconds,
    active: &'a ActiveConfig,
}

impl<S: Family> UdpWorker<S> {
    pub(super) fn new(socket: UdpSocket) -> Self {
        UdpWorker {
            socket,
            receive_headers: MultiHeaders::preallocate(BATCH, None),
            send_headers: MultiHeaders::preallocate(BATCH, None),
            requests: vec![[0; MAX_REQUEST]; BATCH].into_boxed_slice(),
            responses: (0..BATCH).map(|_| Vec::with_capacity(2048)).collect(),
            clients: [None; BATCH],
        }
    }

    /// Serves until `stop` is set.
    pub(super) fn run(
        mut self,
        announces: &AnnounceHandler,
        ids: &ConnectionIds,
        random: Rng,
        stop: &AtomicBool,
    ) {
        let counters = announces.state.new_counters();
        let mut handler = PacketHandler {
            announces,
            ids,
            counters: &counters,
            buffers: ResponseBuffers::default(),
            random,
        };
        while !stop.load(Ordering::Relaxed) {
            match self.receive(&mut handler) {
                Ok(0) | Err(Errno::EINTR | Errno::EAGAIN) => {}
                Ok(count) => {
                    let unsent = self.send(count);
                    counters.udp_unsent.add(unsent as u64);
                    announces.submit_pending(&mut handler.buffers, &counters);
                }
                Err(error) => {
                    tracing::error!(%error, "cannot receive over UDP");
                    // An error that persists must not keep a core busy.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Waits for a packet, receives all others that are there, and writes the responses. Returns
    /// their number.
    fn receive(&mut self, handler: &mut PacketHandler<'_>) -> Result<usize, Errno> {
        let mut requests = self.requests.iter_mut();
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] = array::from_fn(|_| {
            let request = requests.next().expect("there is a buffer per packet");
            [IoSliceMut::new(request)]
        });
        let flags = MsgFlags::MSG_WAITFORONE;
        let socket = self.socket.as_raw_fd();
        let packets = recvmmsg(
            socket,
            &mut self.receive_headers,
            slices.iter_mut(),
            flags,
            None,
        )?;
        let state = &handler.announces.state;
        let (now, active) = (state.clock.now(), state.active());
        let mut count = 0;
        for packet in packets {
            let Some(client) = packet.address else {
                continue;
            };
            let request = packet.iovs().next().unwrap_or_default();
            let response = &mut self.responses[count];
            response.clear();
            let context = PacketContext {
                client: client.ip(),
                families: S::FAMILIES,
                now,
                active: &active,
            };
            handler.handle(&context, request, response);
            if !response.is_empty() {
                self.clients[count] = Some(client);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Sends the first `count` responses and returns how many the socket did not accept.
    fn send(&mut self, count: usize) -> usize {
        let (mut done, mut unsent) = (0, 0);
        while done < count {
            let left = &self.responses[done..count];
            let slices: [[IoSlice<'_>; 1]; BATCH] = array::from_fn(|index| {
                let response = left.get(index).map_or(&[][..], Vec::as_slice);
                [IoSlice::new(response)]
            });
            let (socket, clients) = (self.socket.as_raw_fd(), &self.clients[done..count]);
            let slices = &slices[..left.len()];
            let flags = MsgFlags::MSG_DONTWAIT;
            match sendmmsg(socket, &mut self.send_headers, slices, clients, [], flags)
                .map(Iterator::count)
            {
                Ok(sent) if sent > 0 => done += sent,
                Ok(_) | Err(Errno::EAGAIN) => return unsent + count - done,
                // The first response cannot be sent (no route, a forbidden address); the others
                // may.
                Err(_) => (done, unsent) = (done + 1, unsent + 1),
            }
        }
        unsent
    }
}

impl PacketHandler<'_> {
    /// Appends the response to a packet, or nothing if it gets none.
    fn handle(&mut self, context: &PacketContext<'_>, packet: &[u8], out: &mut Vec<u8>) {
        match udp::parse_request(packet) {
            Ok(Request::Connect { transaction }) => {
                self.counters.udp_connects.add(1);
                let id = self.ids.issue(context.now, context.client);
                udp::write_connect_response(transaction, id, out);
            }
            Ok(Request::Announce {
                connection,
                transaction,
                announce,
                ..
            }) if self.is_connected(connection, context) => {
                self.counters.udp_announces.add(1);
                self.announce(context, transaction, &announce, out);
            }
            Ok(Request::Scrape {
                connection,
                transaction,
                hashes,
            }) if self.is_connected(connection, context) => {
                self.counters.udp_scrapes.add(1);
                if context.active.access.denies_client(context.client) {
                    return udp::write_error_response(
                        transaction,
                        "this client is not served here",
                        out,
                    );
                }
                let counts = hashes
                    .iter()
                    .map(|hash| self.announces.scrape(context.active, &InfoHash(*hash)));
                udp::write_scrape_response(transaction, counts, out);
            }
            Err(RequestError::Invalid {
                connection,
                transaction,
                text,
            }) if self.is_connected(connection, context) => {
                self.counters.udp_bad.add(1);
                udp::write_error_response(transaction, text, out);
            }
            // An invalid connection id may come with a spoofed address, whose owner must not
            // receive anything.
            _ => self.counters.udp_bad.add(1),
        }
    }

    fn is_connected(&self, connection: u64, context: &PacketContext<'_>) -> bool {
        self.ids.is_valid(connection, context.now, context.client)
    }

    fn announce(
        &mut self,
        context: &PacketContext<'_>,
        transaction: TransactionId,
        announce: &Announce,
        out: &mut Vec<u8>,
    ) {
        if announce.port == 0 && announce.event != Event::Stopped {
            return udp::write_error_response(transaction, "invalid port", out);
        }
        let request = AnnounceRequest {
            active: context.active,
            now: context.now,
            client: context.client,
            announce,
            families: context.families,
            as_dicts: false,
            random: self.random.u32(..),
            counters: self.counters,
        };
        match self.announces.announce(&request, &mut self.buffers) {
            AnnounceOutcome::Peers { interval, counts } => {
                udp::write_announce_response(transaction, interval, counts, out);
                out.extend_from_slice(&self.buffers.v4);
                out.extend_from_slice(&self.buffers.v6);
            }
            AnnounceOutcome::Rejected { reason, retry } => {
                udp::write_error_response(transaction, &reason.message(retry), out);
            }
            AnnounceOutcome::Denied(message) => {
                udp::write_error_response(transaction, message, out);
            }
        }
    }
}
