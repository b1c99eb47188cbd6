//! One HTTP thread: an epoll loop over its listeners and connections.

use super::connection::{Connection, Interest, IoBuffers};
use super::handler::HttpHandler;
use super::pages::Pages;
use crate::active_config::ActiveConfig;
use crate::announce::{AnnounceHandler, ResponseBuffers};
use crate::clock::Seconds;
use crate::counters::Counters;
use fastrand::Rng;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use slab::Slab;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time after which an idle connection is closed.
const IDLE_TIMEOUT: Seconds = 75;
/// The time between two searches for idle connections.
const SWEEP_INTERVAL: Seconds = 15;
/// The most connections accepted before other events are handled.
const MAX_ACCEPTS: usize = 64;

/// The time for which no connection is accepted after the system had no descriptor left for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// The most bytes that wait for clients to read them, per thread. Beyond it, a connection that adds
/// to them is closed.
const MAX_UNSENT: usize = 64 << 20;

/// The source of an epoll event.
enum EventSource {
    /// A page was built, or the thread is to stop.
    Wake,
    Listener(usize),
    Connection(usize),
}

impl EventSource {
    fn token(&self) -> u64 {
        let (kind, number) = match self {
            EventSource::Wake => (0, 0),
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
            _ => EventSource::Wake,
        }
    }
}

/// The state of one HTTP thread.
pub(in crate::serve) struct HttpWorker {
    announces: Arc<AnnounceHandler>,
    pages: Arc<Pages>,
    wake: Arc<EventFd>,
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    epoll: Option<Epoll>,
    listeners: Vec<TcpListener>,
    connections: Slab<Connection>,
    /// Connections that wait for a page.
    waiting: Vec<usize>,
    /// Bytes that wait for clients to read them, over all connections.
    unsent: usize,
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
        pages: Arc<Pages>,
        (wake, stop): (Arc<EventFd>, Arc<AtomicBool>),
        max_connections: usize,
        random: Rng,
    ) -> HttpWorker {
        let counters = announces.state.new_counters();
        HttpWorker {
            announces,
            pages,
            wake,
            stop,
            counters,
            epoll: None,
            listeners: Vec::new(),
            connections: Slab::new(),
            waiting: Vec::new(),
            unsent: 0,
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
        epoll.add(&self.wake, event(EventSource::Wake))?;
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

    /// Serves until the stop flag is set.
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
                    EventSource::Wake if self.stop.load(Ordering::Relaxed) => return,
                    EventSource::Wake => {
                        let _ = self.wake.read();
                        self.resume_waiting(&epoll, &active, now);
                    }
                    EventSource::Listener(number) => self.accept(&epoll, number, &active, now),
                    EventSource::Connection(number) => {
                        self.serve(&epoll, number, Some(event.events()), &active, now);
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

    fn accept(&mut self, epoll: &Epoll, number: usize, active: &ActiveConfig, now: Seconds) {
        for _ in 0..MAX_ACCEPTS {
            let (stream, peer) = match self.listeners[number].accept() {
                Ok(accepted) => accepted,
                Err(error) if is_exhausted(&error) => return self.pause_accepting(epoll, &error),
                Err(_) => return,
            };
            self.counters.connections.add(1);
            let ready = stream.set_nonblocking(true).and(stream.set_nodelay(true));
            let room = self.connections.len() < self.max_connections
                && self.has_room_for(peer.ip().to_canonical(), active);
            if !room || ready.is_err() {
                self.counters.connections_dropped.add(1);
                continue;
            }
            let entry = self.connections.vacant_entry();
            let token = EventSource::Connection(entry.key()).token();
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
            if epoll.add(&stream, event).is_ok() {
                let connection = Connection::new(stream, peer.ip(), now);
                self.announces.state.connections.add(connection.peer);
                entry.insert(connection);
            }
        }
    }

    /// Whether a client may open another connection.
    fn has_room_for(&self, client: IpAddr, active: &ActiveConfig) -> bool {
        let open = self.announces.state.connections.estimate(client);
        open < active.config.max_connections_per_address || active.trusted.contains(client)
    }

    /// Accepts nothing for a while. The connection stays in the listener's queue, which would
    /// report it again at once and keep this thread busy.
    fn pause_accepting(&mut self, epoll: &Epoll, error: &io::Error) {
        self.counters.accept_failures.add(1);
        if let Some(failures) = self.announces.state.accept_failures.note(1) {
            tracing::warn!(%error, failures, connections = self.connections.len(), "cannot accept connections: lower `max_connections` or raise the limit of open files");
        }
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

    /// Continues with the connections that wait for a page.
    fn resume_waiting(&mut self, epoll: &Epoll, active: &ActiveConfig, now: Seconds) {
        for number in std::mem::take(&mut self.waiting) {
            let connection = self.connections.get(number);
            if connection.is_some_and(|connection| connection.registered == Interest::Page) {
                self.serve(epoll, number, None, active, now);
            }
        }
    }

    /// Reads or writes a connection that is ready; without `events`, its page may be.
    fn serve(
        &mut self,
        epoll: &Epoll,
        number: usize,
        events: Option<EpollFlags>,
        active: &ActiveConfig,
        now: Seconds,
    ) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let mut handler = HttpHandler {
            announces: &self.announces,
            pages: &self.pages,
            active,
            counters: &self.counters,
            buffers: &mut self.response_buffers,
            body: &mut self.body,
            now,
            random: &mut self.random,
        };
        let (buffers, before) = (&mut self.io_buffers, connection.unsent());
        let interest = match events {
            None => connection.resume(&mut handler, buffers),
            Some(_) if connection.registered == Interest::Page => {
                // Nothing is registered but errors and the end of the connection.
                Interest::Close
            }
            Some(events) if events.contains(EpollFlags::EPOLLOUT) => {
                connection.write(&mut handler, buffers)
            }
            Some(_) => connection.read(&mut handler, buffers),
        };
        self.unsent = self.unsent + connection.unsent() - before;
        let hoards = self.unsent > MAX_UNSENT && connection.unsent() > before;
        self.announces
            .submit_pending(&mut self.response_buffers, &self.counters);
        if hoards {
            self.counters.connections_dropped.add(1);
        }
        let interest = if hoards { Interest::Close } else { interest };
        self.rearm(epoll, number, interest);
    }

    /// Registers what a connection waits for next, or closes it.
    fn rearm(&mut self, epoll: &Epoll, number: usize, interest: Interest) {
        let wanted = match interest {
            Interest::Close => return self.close(number),
            Interest::Read => EpollFlags::EPOLLIN,
            Interest::Write => EpollFlags::EPOLLOUT,
            Interest::Page => EpollFlags::empty(),
        };
        if interest == Interest::Page {
            self.waiting.push(number);
        }
        let connection = &mut self.connections[number];
        if interest == connection.registered {
            return;
        }
        connection.registered = interest;
        let token = EventSource::Connection(number).token();
        let mut event = EpollEvent::new(wanted, token);
        if epoll.modify(connection.stream.as_fd(), &mut event).is_err() {
            self.close(number);
        }
    }

    /// Closes a connection. Closing its stream removes it from the epoll set.
    fn close(&mut self, number: usize) {
        let connection = self.connections.remove(number);
        self.announces.state.connections.remove(connection.peer);
        self.unsent -= connection.unsent();
    }

    /// Closes idle connections.
    fn sweep(&mut self, now: Seconds) {
        let idle =
            |(_, connection): &(usize, &Connection)| connection.last_active + IDLE_TIMEOUT < now;
        let idle: Vec<usize> = (self.connections.iter().filter(idle))
            .map(|(number, _)| number)
            .collect();
        self.counters.connections_dropped.add(idle.len() as u64);
        for number in idle {
            self.close(number);
        }
    }
}

/// Whether the system has no descriptor or memory left for a connection.
fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| exhausted.contains(&code))
}
