//! One HTTP thread: an epoll loop over its listeners and connections.

use super::connection::{Connection, Interest, IoBuffers};
use super::handler::HttpHandler;
use crate::active_config::ActiveConfig;
use crate::announce::{AnnounceHandler, ResponseBuffers};
use crate::clock::Seconds;
use crate::counters::Counters;
use fastrand::Rng;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use slab::Slab;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time after which an idle connection is closed.
const IDLE_TIMEOUT: Seconds = 75;
/// The time between two searches for idle connections.
const SWEEP_INTERVAL: Seconds = 15;
/// The most connections accepted before other events are handled.
const MAX_ACCEPTS: usize = 64;

/// The time for which no connection is accepted after the system had no descriptor left for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

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
    random: Rng,
    /// The end of a pause in accepting.
    accepts_again: Option<Instant>,
}

impl HttpWorker {
    pub(in crate::serve) fn new(
        announces: Arc<AnnounceHandler>,
        stop: Arc<EventFd>,
        max_connections: usize,
        random: Rng,
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
            accepts_again: None,
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
            let timeout = match (self.accepts_again, self.connections.is_empty()) {
                (Some(_), _) => EpollTimeout::from(ACCEPT_PAUSE.as_millis() as u16),
                (None, true) => EpollTimeout::NONE,
                (None, false) => EpollTimeout::from(SWEEP_INTERVAL as u16 * 1000),
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
            if self.accepts_again.is_some_and(|at| Instant::now() >= at) {
                self.accepts_again = None;
                self.listen_to(&epoll, EpollFlags::EPOLLIN);
            }
            if now >= swept + SWEEP_INTERVAL {
                swept = now;
                self.sweep(now);
            }
        }
    }

    fn accept(&mut self, epoll: &Epoll, number: usize, now: Seconds) {
        for _ in 0..MAX_ACCEPTS {
            let (stream, peer) = match self.listeners[number].accept() {
                Ok(accepted) => accepted,
                Err(error) if is_exhausted(&error) => return self.pause_accepting(epoll, &error),
                Err(_) => return,
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

    /// Accepts nothing for a while. The connection stays in the listener's queue, which would
    /// report it again at once and keep this thread busy.
    fn pause_accepting(&mut self, epoll: &Epoll, error: &io::Error) {
        tracing::warn!(%error, connections = self.connections.len(), "cannot accept connections: lower `max_connections` or raise the limit of open files");
        self.accepts_again = Some(Instant::now() + ACCEPT_PAUSE);
        self.listen_to(epoll, EpollFlags::empty());
    }

    /// Sets the events of all listeners.
    fn listen_to(&self, epoll: &Epoll, events: EpollFlags) {
        for (number, listener) in self.listeners.iter().enumerate() {
            let token = EventSource::Listener(number).token();
            let _ = epoll.modify(listener, &mut EpollEvent::new(events, token));
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

/// Whether the system has no descriptor or memory left for a connection.
fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| exhausted.contains(&code))
}
