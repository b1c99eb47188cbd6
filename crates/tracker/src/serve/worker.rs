//! One thread of HTTP: waits for its connections, and serves whichever is ready.

use super::http::{self, Buffers, Connection, Turn};
use crate::counters::Counters;
use crate::plan::Plan;
use crate::plane::{Peers, Plane};
use crate::swarm::Seconds;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use slab::Slab;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A connection that says nothing for so long ends.
const SILENCE: Seconds = 75;
/// How often silent connections are looked for, while there are any.
const SWEEP: Seconds = 15;
/// Connections taken before anything else has its turn.
const ACCEPTS: usize = 64;

/// What an event is about.
enum Source {
    Stop,
    Listener(usize),
    Connection(usize),
}

impl Source {
    fn token(&self) -> u64 {
        let (kind, number) = match self {
            Source::Stop => (0, 0),
            Source::Listener(number) => (1, *number),
            Source::Connection(number) => (2, *number),
        };
        kind << 56 | number as u64
    }

    fn of(token: u64) -> Source {
        let number = (token & ((1 << 56) - 1)) as usize;
        match token >> 56 {
            1 => Source::Listener(number),
            2 => Source::Connection(number),
            _ => Source::Stop,
        }
    }
}

/// One thread's state.
pub(super) struct Worker {
    plane: Arc<Plane>,
    stop: Arc<EventFd>,
    counters: Arc<Counters>,
    epoll: Option<Epoll>,
    listeners: Vec<TcpListener>,
    connections: Slab<Connection>,
    most: usize,
    peers: Peers,
    body: Vec<u8>,
    buffers: Buffers,
    random: u64,
}

impl Worker {
    pub(super) fn new(plane: Arc<Plane>, stop: Arc<EventFd>, most: usize, seed: u64) -> Worker {
        let counters = plane.shared.counters();
        Worker {
            plane,
            stop,
            counters,
            epoll: None,
            listeners: Vec::new(),
            connections: Slab::new(),
            most,
            peers: Peers::default(),
            body: Vec::with_capacity(64 * 1024),
            buffers: Buffers::new(),
            random: seed | 1,
        }
    }

    /// Takes its sockets.
    pub(super) fn listen(mut self, tcp: Vec<TcpListener>) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let event = |source: Source| EpollEvent::new(EpollFlags::EPOLLIN, source.token());
        epoll.add(&self.stop, event(Source::Stop))?;
        for listener in tcp {
            epoll.add(&listener, event(Source::Listener(self.listeners.len())))?;
            self.listeners.push(listener);
        }
        self.epoll = Some(epoll);
        Ok(self)
    }

    /// Serves until told to stop.
    pub(super) fn work(mut self) {
        let epoll = self.epoll.take().expect("it has its sockets");
        let mut events = [EpollEvent::empty(); 256];
        let mut swept = self.plane.shared.clock.now();
        loop {
            let timeout = match self.connections.is_empty() {
                true => EpollTimeout::NONE,
                false => EpollTimeout::from(SWEEP as u16 * 1000),
            };
            let count = match epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "a thread of the announce plane ends");
                    return;
                }
            };
            let now = self.plane.shared.clock.now();
            let plan = self.plane.shared.plan();
            for event in &events[..count] {
                match Source::of(event.data()) {
                    Source::Stop => return,
                    Source::Listener(number) => self.accept(&epoll, number, now),
                    Source::Connection(number) => {
                        let turn = self.turn(number, event.events(), &plan, now);
                        self.next(&epoll, number, event.events(), turn);
                    }
                }
            }
            if now >= swept + SWEEP {
                swept = now;
                self.sweep(now);
            }
        }
    }

    fn accept(&mut self, epoll: &Epoll, number: usize, now: Seconds) {
        for _ in 0..ACCEPTS {
            let Ok((stream, peer)) = self.listeners[number].accept() else {
                return;
            };
            self.counters.connections.add(1);
            let ready = stream.set_nonblocking(true).and(stream.set_nodelay(true));
            if self.connections.len() >= self.most || ready.is_err() {
                self.counters.connections_dropped.add(1);
                continue;
            }
            let entry = self.connections.vacant_entry();
            let token = Source::Connection(entry.key()).token();
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
            if epoll.add(&stream, event).is_ok() {
                entry.insert(Connection::new(stream, peer.ip(), now));
            }
        }
    }

    /// Lets a connection do what it is ready for.
    fn turn(&mut self, number: usize, events: EpollFlags, plan: &Plan, now: Seconds) -> Turn {
        let Some(connection) = self.connections.get_mut(number) else {
            return Turn::End;
        };
        if events.contains(EpollFlags::EPOLLOUT) {
            return connection.write();
        }
        let random = &mut || next(&mut self.random);
        let mut desk = http::Desk {
            plane: &self.plane,
            plan,
            counters: &self.counters,
            peers: &mut self.peers,
            body: &mut self.body,
            now,
            random,
        };
        let turn = connection.read(&mut desk, &mut self.buffers);
        self.plane.hand_in_later(&mut self.peers, &self.counters);
        turn
    }

    /// Has a connection wait for what it needs next, or ends it.
    fn next(&mut self, epoll: &Epoll, number: usize, events: EpollFlags, turn: Turn) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let writes = events.contains(EpollFlags::EPOLLOUT);
        let wanted = match turn {
            // Closing the stream takes it out of the epoll set.
            Turn::End => {
                self.connections.remove(number);
                return;
            }
            Turn::Read if !writes => return,
            Turn::Read => EpollFlags::EPOLLIN,
            Turn::Write if writes => return,
            Turn::Write => EpollFlags::EPOLLOUT,
        };
        let token = Source::Connection(number).token();
        let mut event = EpollEvent::new(wanted, token);
        if epoll.modify(connection.stream.as_fd(), &mut event).is_err() {
            self.connections.remove(number);
        }
    }

    fn sweep(&mut self, now: Seconds) {
        let before = self.connections.len();
        self.connections
            .retain(|_, connection| connection.heard + SILENCE >= now);
        let dropped = before - self.connections.len();
        self.counters.connections_dropped.add(dropped as u64);
    }
}

/// The next random number: xorshift, good enough to spread answers.
pub(super) fn next(state: &mut u64) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 32) as u32
}
