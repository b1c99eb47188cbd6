//! One HTTP thread: an epoll loop over its listeners and connections.

use super::connection::{Connection, Interest, IoBuffers};
use super::handler::HttpHandler;
use crate::active_config::ActiveConfig;
use crate::announce::{AnnounceHandler, ResponseBuffers};
use crate::clock::Seconds;
use crate::counters::Counters;
use crate::serve::random::Random;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use slab::Slab;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The time after which an idle connection is closed.
const IDLE_TIMEOUT: Seconds = 75;
/// The time between two searches for idle connections.
const SWEEP_INTERVAL: Seconds = 15;
/// The most connections accepted before other events are handled.
const MAX_ACCEPTS: usize = 64;

/// The source of an epoll event.
enum EventSource {
    Stop,
    Listener(usize),
    Connection(usize),
}

impl EventSource {
    fn token(&self) -> u64 {
        let (kind, number) = match self {
            EventSource::Stop => (0, 0),
            EventSource::Listener(number) => (1, *number),
            EventSource::Connection(number) => (2, *number),
        };
        kind << 56 | number as u64
    }

    fn from_token(token: u64) -> EventSource {
        let number = (token & ((1 << 56) - 1)) as usize;
        match token >> 56 {
            1 => EventSource::Listener(number),
            2 => EventSource::Connection(number),
            _ => EventSource::Stop,
        }
    }
}

/// The state of one HTTP thread.
pub(in crate::serve) struct HttpWorker {
    announces: Arc<AnnounceHandler>,
    stop: Arc<EventFd>,
    counters: Arc<Counters>,
    epoll: Option<Epoll>,
    listeners: Vec<TcpListener>,
    connections: Slab<Connection>,
    max_connections: usize,
    response_buffers: ResponseBuffers,
    body: Vec<u8>,
    io_buffers: IoBuffers,
    random: Random,
}

impl HttpWorker {
    pub(in crate::serve) fn new(
        announces: Arc<AnnounceHandler>,
        stop: Arc<EventFd>,
        max_connections: usize,
        random: Random,
    ) -> HttpWorker {
        let counters = announces.state.new_counters();
        HttpWorker {
            announces,
            stop,
            counters,
            epoll: None,
            listeners: Vec::new(),
            connections: Slab::new(),
            max_connections,
            response_buffers: ResponseBuffers::default(),
            body: Vec::with_capacity(64 * 1024),
            io_buffers: IoBuffers::new(),
            random,
        }
    }

    /// Registers the listeners.
    pub(in crate::serve) fn listen(mut self, tcp: Vec<TcpListener>) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let event = |source: EventSource| EpollEvent::new(EpollFlags::EPOLLIN, source.token());
        epoll.add(&self.stop, event(EventSource::Stop))?;
        for listener in tcp {
            epoll.add(
                &listener,
                event(EventSource::Listener(self.listeners.len())),
            )?;
            self.listeners.push(listener);
        }
        self.epoll = Some(epoll);
        Ok(self)
    }

    /// Serves until the stop event.
    pub(in crate::serve) fn run(mut self) {
        let epoll = self.epoll.take().expect("the listeners are registered");
        let mut events = [EpollEvent::empty(); 256];
        let mut swept = self.announces.state.clock.now();
        loop {
            let timeout = match self.connections.is_empty() {
                true => EpollTimeout::NONE,
                false => EpollTimeout::from(SWEEP_INTERVAL as u16 * 1000),
            };
            let count = match epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "an HTTP thread ends: epoll failed");
                    return;
                }
            };
            let now = self.announces.state.clock.now();
            let active = self.announces.state.active();
            for event in &events[..count] {
                match EventSource::from_token(event.data()) {
                    EventSource::Stop => return,
                    EventSource::Listener(number) => self.accept(&epoll, number, now),
                    EventSource::Connection(number) => {
                        let interest = self.serve(number, event.events(), &active, now);
                        self.rearm(&epoll, number, event.events(), interest);
                    }
                }
            }
            if now >= swept + SWEEP_INTERVAL {
                swept = now;
                self.sweep(now);
            }
        }
    }

    fn accept(&mut self, epoll: &Epoll, number: usize, now: Seconds) {
        for _ in 0..MAX_ACCEPTS {
            let Ok((stream, peer)) = self.listeners[number].accept() else {
                return;
            };
            self.counters.connections.add(1);
            let ready = stream.set_nonblocking(true).and(stream.set_nodelay(true));
            if self.connections.len() >= self.max_connections || ready.is_err() {
                self.counters.connections_dropped.add(1);
                continue;
            }
            let entry = self.connections.vacant_entry();
            let token = EventSource::Connection(entry.key()).token();
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
            if epoll.add(&stream, event).is_ok() {
                entry.insert(Connection::new(stream, peer.ip(), now));
            }
        }
    }

    /// Reads or writes a connection that is ready.
    fn serve(
        &mut self,
        number: usize,
        events: EpollFlags,
        active: &ActiveConfig,
        now: Seconds,
    ) -> Interest {
        let Some(connection) = self.connections.get_mut(number) else {
            return Interest::Close;
        };
        if events.contains(EpollFlags::EPOLLOUT) {
            return connection.write();
        }
        let mut handler = HttpHandler {
            announces: &self.announces,
            active,
            counters: &self.counters,
            buffers: &mut self.response_buffers,
            body: &mut self.body,
            now,
            random: &mut self.random,
        };
        let interest = connection.read(&mut handler, &mut self.io_buffers);
        self.announces
            .submit_pending(&mut self.response_buffers, &self.counters);
        interest
    }

    /// Registers what a connection waits for next, or closes it.
    fn rearm(&mut self, epoll: &Epoll, number: usize, events: EpollFlags, interest: Interest) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let writes = events.contains(EpollFlags::EPOLLOUT);
        let wanted = match interest {
            // Closing the stream removes it from the epoll set.
            Interest::Close => {
                self.connections.remove(number);
                return;
            }
            Interest::Read if !writes => return,
            Interest::Read => EpollFlags::EPOLLIN,
            Interest::Write if writes => return,
            Interest::Write => EpollFlags::EPOLLOUT,
        };
        let token = EventSource::Connection(number).token();
        let mut event = EpollEvent::new(wanted, token);
        if epoll.modify(connection.stream.as_fd(), &mut event).is_err() {
            self.connections.remove(number);
        }
    }

    /// Closes idle connections.
    fn sweep(&mut self, now: Seconds) {
        let before = self.connections.len();
        self.connections
            .retain(|_, connection| connection.last_active + IDLE_TIMEOUT >= now);
        let dropped = before - self.connections.len();
        self.counters.connections_dropped.add(dropped as u64);
    }
}
