//! A tracker, clients for it, and forwarders with configurable behaviour.

use headworks_service::config::{Schema, Sources};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::shutdown::Shutdown;
use headworks_tracker::{Tracker, TrackerConfig};
use headworks_tracker_wire::response::{self, AnnounceResponse};
use headworks_tracker_wire::udp::{self, Request, Response};
use headworks_tracker_wire::{Announce, Counts, Event, InfoHash, PeerId, query};
use socket2::{Domain, Socket, Type};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The time after which a wait fails. Long enough for the slowest machine; no passing test waits so
/// long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    pub(crate) tracker: Tracker,
    shutdown: Shutdown,
    /// Forwards that were offered before the test began.
    offered: Mutex<f64>,
}

/// Loads the section from settings in TOML.
pub(crate) fn config(settings: &str) -> Arc<TrackerConfig> {
    let sources = Sources::new().text("headworks.toml", format!("[tracker]\n{settings}"));
    let schema = Schema::shared().with::<TrackerConfig>();
    let config = schema
        .load(&sources)
        .unwrap_or_else(|problems| panic!("{problems}"));
    config.section::<TrackerConfig>()
}

impl Running {
    /// Starts a tracker on loopback with settings of its section in TOML.
    pub(crate) fn start(settings: &str) -> Running {
        Running::listening("127.0.0.1:0", settings)
    }

    /// Starts a tracker at an address.
    pub(crate) fn listening(at: &str, settings: &str) -> Running {
        Running::try_listening(at, settings).unwrap()
    }

    /// Starts a tracker with a number of threads per transport.
    pub(crate) fn with_workers(workers: usize, settings: &str) -> Running {
        let settings = format!("workers = {workers}\n{settings}");
        Running::try_starting("127.0.0.1:0", &settings).unwrap()
    }

    /// Starts a tracker at an address, or returns its error.
    pub(crate) fn try_listening(
        at: &str,
        settings: &str,
    ) -> Result<Running, headworks_tracker::Error> {
        Running::try_starting(at, &format!("workers = 2\n{settings}"))
    }

    fn try_starting(at: &str, settings: &str) -> Result<Running, headworks_tracker::Error> {
        let section = config(&format!("listen = '{at}'\nudp_listen = '{at}'\n{settings}"));
        let shutdown = Shutdown::new();
        let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
        let outbound = Outbound::with_proxies(&OutboundConfig::default(), proxies).unwrap();
        let tracker = Tracker::start(&section, outbound, &shutdown)?;
        let offered = Mutex::default();
        Ok(Running {
            tracker,
            shutdown,
            offered,
        })
    }

    pub(crate) async fn stop(self) {
        assert!(self.shutdown.drain(TIMEOUT).await.unfinished.is_empty());
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.tracker.http()[0]
    }

    pub(crate) fn udp(&self) -> SocketAddr {
        self.tracker.udp()[0]
    }

    /// Returns the body at a path.
    pub(crate) async fn get(&self, path: &str) -> Vec<u8> {
        let (at, path) = (self.http(), path.to_owned());
        tokio::task::spawn_blocking(move || get(at, &path, ""))
            .await
            .unwrap()
    }

    /// Announces over HTTP from a local address, with more header lines and query parameters.
    pub(crate) async fn announce_from(
        &self,
        from: IpAddr,
        announce: &Announce,
        headers: &str,
        more: &str,
    ) -> AnnounceResponse {
        let same_family = |at: &&SocketAddr| at.is_ipv4() == from.is_ipv4();
        let at = *self.tracker.http().iter().find(same_family).unwrap();
        let mut path = String::from("/announce?");
        query::write_announce(announce, None, &mut path);
        let (path, headers) = (path + more, headers.to_owned());
        let body = tokio::task::spawn_blocking(move || get_from(Some(from), at, &path, &headers));
        response::parse(&body.await.unwrap()).unwrap()
    }

    /// Returns the text at a path, requested with a token.
    pub(crate) async fn with_token(&self, path: &str, token: &str) -> String {
        let (at, path) = (self.http(), path.to_owned());
        let header = format!("Authorization: Bearer {token}\r\n");
        let answer = tokio::task::spawn_blocking(move || get(at, &path, &header)).await;
        String::from_utf8(answer.unwrap()).unwrap()
    }

    pub(crate) async fn announce(&self, announce: &Announce) -> AnnounceResponse {
        let mut path = String::from("/announce?");
        query::write_announce(announce, None, &mut path);
        let body = self.get(&path).await;
        response::parse(&body).unwrap_or_else(|error| panic!("{error}: {}", body.escape_ascii()))
    }

    /// Announces and returns the addresses in the response.
    pub(crate) async fn peers(&self, announce: &Announce) -> Vec<SocketAddr> {
        let AnnounceResponse::Peers(peers) = self.announce(announce).await else {
            panic!("a failure")
        };
        peers.peers.into_iter().map(|(at, _)| at).collect()
    }

    pub(crate) async fn stats(&self) -> String {
        String::from_utf8(self.get("/stats").await).unwrap()
    }

    /// Returns the value of a metric at a time after the call.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        value(&self.metrics().await, name)
    }

    /// Returns the metrics at a time after the call. The page is served again for a moment, so this
    /// waits until another one is built.
    pub(crate) async fn metrics(&self) -> String {
        let page = async || String::from_utf8(self.get("/metrics").await).unwrap();
        let built = |text: &str| value(text, "headworks_tracker_pages_built_total");
        let (first, end) = (page().await, Instant::now() + TIMEOUT);
        loop {
            let next = page().await;
            if built(&next) > built(&first) {
                return next;
            }
            assert!(Instant::now() < end, "the metrics are never built again");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Announces torrents until every forwarder has responded, because one that is not known to
    /// respond is asked for one torrent at a time. Then forgets all of it.
    pub(crate) async fn prove(&self, forwarders: &[&Forwarder]) {
        let end = Instant::now() + TIMEOUT;
        let mut hash = 1 << 30;
        let unasked = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            let mut lines = text.lines();
            lines.any(|line| line.contains("_forwarder_requests_total{") && line.ends_with(" 0"))
        };
        while unasked(self.metrics().await.as_bytes()) {
            assert!(Instant::now() < end, "a forwarder is not asked");
            let before = self
                .metric("headworks_tracker_forwards_offered_total")
                .await;
            self.announce(&announce(hash, 99, Event::None)).await;
            hash += 1;
            loop {
                let page = self.metrics().await;
                let offered = value(&page, "headworks_tracker_forwards_offered_total");
                if offered > before && value(&page, "queue_depth") == 0.0 {
                    break;
                }
                assert!(Instant::now() < end, "the announce is not forwarded");
            }
        }
        for hash in 1 << 30..hash {
            self.announce(&announce(hash, 99, Event::Stopped)).await;
        }
        self.shows("/stats", "torrents: 0\n").await;
        self.shows("/stats", "delayed 0, running 0").await;
        let offered = "headworks_tracker_forwards_offered_total";
        *self.offered.lock().unwrap() = self.metric(offered).await;
        for forwarder in forwarders {
            forwarder.received.lock().unwrap().clear();
            forwarder.requests.lock().unwrap().clear();
        }
    }

    /// Waits until `offered` forwards were offered to the queue and `waiting` of them are still
    /// queued.
    pub(crate) async fn queues(&self, offered: u32, waiting: u32) {
        let end = Instant::now() + TIMEOUT;
        let wanted = (f64::from(offered), f64::from(waiting));
        loop {
            let page = self.metrics().await;
            let offered = value(&page, "headworks_tracker_forwards_offered_total");
            let offered = offered - *self.offered.lock().unwrap();
            let current = (offered, value(&page, "queue_depth"));
            if current == wanted {
                return;
            }
            assert!(Instant::now() < end, "expected {wanted:?}, got {current:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a page holds `text`.
    pub(crate) async fn shows(&self, page: &str, text: &str) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let body = String::from_utf8(self.get(page).await).unwrap();
            if body.contains(text) {
                return;
            }
            assert!(Instant::now() < end, "expected `{text}` in\n{body}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns the value of a metric in a page.
fn value(page: &str, name: &str) -> f64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}"))
        .parse()
        .unwrap()
}

fn get(at: SocketAddr, path: &str, headers: &str) -> Vec<u8> {
    get_from(None, at, path, headers)
}

fn get_from(from: Option<IpAddr>, at: SocketAddr, path: &str, headers: &str) -> Vec<u8> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None).unwrap();
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    }
    socket.connect(&at.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: t\r\n{headers}Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .expect("a head");
    answer.split_off(end + 4)
}

/// Waits for a condition.
pub(crate) async fn until(description: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "timed out: {description}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Creates an announce of peer number `peer` in torrent number `hash`.
pub(crate) fn announce(hash: u32, peer: u16, event: Event) -> Announce {
    let mut announce = Announce {
        port: 10_000 + peer,
        left: Some(1),
        event,
        ..Announce::default()
    };
    announce.info_hash.0[..4].copy_from_slice(&hash.to_be_bytes());
    announce.peer_id.0[..2].copy_from_slice(&peer.to_be_bytes());
    announce.key = Some(7);
    announce
}

/// A UDP client.
pub(crate) struct Client(pub(crate) UdpSocket, pub(crate) SocketAddr);

impl Client {
    pub(crate) fn at(from: &str, to: SocketAddr) -> Client {
        let socket = UdpSocket::bind(from).unwrap();
        // A burst of responses must fit into the socket.
        socket2::SockRef::from(&socket)
            .set_recv_buffer_size(4 << 20)
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Client(socket, to)
    }

    pub(crate) fn exchange(&self, packet: &[u8]) -> Option<Vec<u8>> {
        self.0.send_to(packet, self.1).unwrap();
        self.receive()
    }

    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(buffer[..length].to_vec())
    }

    pub(crate) fn connect(&self) -> u64 {
        let mut packet = Vec::new();
        udp::write_connect(1, &mut packet);
        match udp::parse_response(&self.exchange(&packet).expect("a response")) {
            Some(Response::Connect {
                transaction: 1,
                connection,
            }) => connection,
            other => panic!("{other:?}"),
        }
    }
}

/// The behaviour of a forwarder.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Reports these peers.
    Peers(Vec<SocketAddr>),
    /// Responds with this body.
    Body(Vec<u8>),
    /// Responds with these bytes, head and body.
    Raw(Vec<u8>),
    /// Accepts the request and never responds.
    Silent,
    /// Sends one byte per second.
    Drip,
}

impl Behaviour {
    pub(crate) fn status(status: u16) -> Behaviour {
        Behaviour::Raw(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes())
    }
}

/// An announce that a forwarder received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedAnnounce {
    pub(crate) hash: InfoHash,
    pub(crate) peer: PeerId,
    pub(crate) event: Event,
}

/// A tracker with a configurable behaviour that logs its requests.
#[derive(Clone)]
pub(crate) struct Forwarder {
    pub(crate) address: SocketAddr,
    pub(crate) behaviour: Arc<Mutex<Behaviour>>,
    pub(crate) received: Arc<Mutex<Vec<ReceivedAnnounce>>>,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    _task: Arc<Task>,
}

struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Forwarder {
    /// Starts an HTTP tracker.
    pub(crate) async fn http(behaviour: Behaviour) -> Forwarder {
        Forwarder::http_at(address("127.0.0.1:0"), behaviour).await
    }

    /// Starts an HTTP tracker at an address.
    pub(crate) async fn http_at(at: SocketAddr, behaviour: Behaviour) -> Forwarder {
        let listener = tokio::net::TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let (received, requests) = (
            Arc::<Mutex<Vec<ReceivedAnnounce>>>::default(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let shared = (behaviour.clone(), received.clone(), requests.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (behaviour, received, requests) = shared.clone();
                tokio::spawn(serve(stream, behaviour, received, requests));
            }
        });
        let task = Arc::new(Task(task));
        Forwarder {
            address,
            behaviour,
            received,
            requests,
            _task: task,
        }
    }

    /// Starts a UDP tracker. It reports peers or stays silent.
    pub(crate) async fn udp(behaviour: Behaviour) -> Forwarder {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let (received, requests) = (
            Arc::<Mutex<Vec<ReceivedAnnounce>>>::default(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let shared = (behaviour.clone(), received.clone(), requests.clone());
        let task = tokio::spawn(async move {
            let (mut buffer, mut logged) = ([0; 4096], HashSet::new());
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let (behaviour, received, requests) = &shared;
                let packet = &buffer[..length];
                // On a busy machine a packet is sent again, with the same transaction id. Among
                // ten thousand torrents, two may have the same id by chance.
                let (start, end) = (8.min(length), 36.min(length));
                let again = !logged.insert(packet[start..end].to_vec());
                let ignored = (Mutex::default(), Mutex::default());
                let (received, requests) = match again {
                    true => (&ignored.0, &ignored.1),
                    false => (&**received, &**requests),
                };
                let response = udp_response(packet, behaviour, received, requests);
                if let Some(response) = response {
                    let _ = socket.send_to(&response, from).await;
                }
            }
        });
        let task = Arc::new(Task(task));
        Forwarder {
            address,
            behaviour,
            received,
            requests,
            _task: task,
        }
    }

    pub(crate) fn set(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    pub(crate) fn received(&self) -> Vec<ReceivedAnnounce> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.received()
            .iter()
            .map(|received| received.event)
            .collect()
    }
}

fn udp_response(
    packet: &[u8],
    behaviour: &Mutex<Behaviour>,
    received: &Mutex<Vec<ReceivedAnnounce>>,
    requests: &Mutex<Vec<String>>,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let Behaviour::Peers(peers) = behaviour.lock().unwrap().clone() else {
        return None;
    };
    match udp::parse_request(packet).ok()? {
        Request::Connect { transaction } => {
            requests.lock().unwrap().push("connect".into());
            udp::write_connect_response(transaction, 99, &mut out);
        }
        Request::Announce {
            connection: 99,
            transaction,
            announce,
            options,
        } => {
            received.lock().unwrap().push(ReceivedAnnounce {
                hash: announce.info_hash,
                peer: announce.peer_id,
                event: announce.event,
            });
            requests
                .lock()
                .unwrap()
                .push(String::from_utf8(udp::url_data(options)).unwrap());
            udp::write_announce_response(transaction, 900, Counts::default(), &mut out);
            for peer in peers {
                let SocketAddr::V4(peer) = peer else { continue };
                out.extend(headworks_tracker_wire::compact::pack4(
                    *peer.ip(),
                    peer.port(),
                ));
            }
        }
        Request::Announce { transaction, .. } => {
            udp::write_error_response(transaction, "connection id", &mut out);
        }
        Request::Scrape { .. } => return None,
    }
    Some(out)
}

async fn serve(
    mut stream: tokio::net::TcpStream,
    behaviour: Arc<Mutex<Behaviour>>,
    received: Arc<Mutex<Vec<ReceivedAnnounce>>>,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let mut input = Vec::new();
    loop {
        let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            match stream.read_buf(&mut input).await {
                Ok(length) if length > 0 => continue,
                _ => return,
            }
        };
        let head = String::from_utf8(input.drain(..end + 4).collect()).unwrap();
        let line = head.lines().next().unwrap();
        requests.lock().unwrap().push(head.clone());
        let query = line
            .split(' ')
            .nth(1)
            .unwrap()
            .split_once('?')
            .map_or("", |(_, query)| query);
        if let Ok(announce) = query::parse_announce(query.as_bytes()) {
            received.lock().unwrap().push(ReceivedAnnounce {
                hash: announce.info_hash,
                peer: announce.peer_id,
                event: announce.event,
            });
        }
        let behaviour = behaviour.lock().unwrap().clone();
        let body = match behaviour {
            Behaviour::Peers(peers) => {
                let mut body = Vec::new();
                let head = response::ResponseFields {
                    interval: 900,
                    ..response::ResponseFields::default()
                };
                response::write_dict(&head, peers.iter().map(|peer| (None, *peer)), &mut body);
                body
            }
            Behaviour::Body(body) => body,
            Behaviour::Raw(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
                continue;
            }
            Behaviour::Silent => std::future::pending().await,
            Behaviour::Drip => {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                    .await;
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if stream.write_all(b"d").await.is_err() {
                        return;
                    }
                }
            }
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(head.as_bytes()).await.is_err()
            || stream.write_all(&body).await.is_err()
        {
            return;
        }
    }
}

/// Lists forwarders as a section does.
pub(crate) fn listed(uris: impl IntoIterator<Item = String>) -> String {
    let one = |uri| format!("[[tracker.forwarders]]\nuri = '{uri}'\n");
    uris.into_iter().map(one).collect()
}

pub(crate) fn http_uri(forwarder: &Forwarder) -> String {
    format!("http://{}/announce", forwarder.address)
}

pub(crate) fn udp_uri(forwarder: &Forwarder) -> String {
    format!("udp://{}/announce?passkey=k", forwarder.address)
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
