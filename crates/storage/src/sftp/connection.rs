//! A connection: requests are sent as they come, and replies arrive in any order.

use super::packet::{self, Extensions, Packet, Reply, Status};
use super::ssh::Ssh;
use crate::error::{Error, ErrorKind};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

/// Timeout of the login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a reply; a disk may have to spin up.
const REPLY_TIMEOUT: Duration = Duration::from_secs(300);
/// How long `ssh` may take to print why it ended.
const STDERR_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum amount of its output that is kept.
const MAX_STDERR: usize = 8 << 10;
/// Requests queued for the pipe.
const MAX_QUEUED: usize = 64;
/// Size of a read or write, if the server does not announce limits.
const DEFAULT_IO_SIZE: u64 = 32 << 10;
/// Maximum size of a read or write, whatever a server allows.
const MAX_IO_SIZE: u64 = 256 << 10;

/// Number of requests by kind.
pub(super) type Counts = Mutex<BTreeMap<&'static str, u64>>;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refused it.
    Refused(Status),
    /// The connection could not be made, or was lost.
    Lost(ErrorKind, String),
    /// The reply is not what was expected.
    Wrong(ErrorKind, String),
}

impl Failure {
    pub(super) fn is(&self, wanted: u32) -> bool {
        matches!(self, Failure::Refused(Status { code, .. }) if *code == wanted)
    }

    pub(super) fn error(self, operation: &'static str, path: &[u8]) -> Error {
        let (kind, message) = match self {
            Failure::Lost(kind, message) | Failure::Wrong(kind, message) => (kind, message),
            Failure::Refused(status) => {
                let kind = match status.code {
                    Status::NO_SUCH_FILE => ErrorKind::NotFound,
                    Status::DENIED => ErrorKind::Denied,
                    Status::BAD_MESSAGE => ErrorKind::BadName,
                    Status::NO_CONNECTION | Status::LOST => ErrorKind::Temporary,
                    Status::UNSUPPORTED => ErrorKind::Unsupported,
                    _ => ErrorKind::Other,
                };
                (kind, format!("server error: {}", status.message))
            }
        };
        Error::new(kind, operation, path, message)
    }
}

struct State {
    next: u32,
    waiting: HashMap<u32, oneshot::Sender<Reply>>,
    broken: Option<String>,
}

struct Shared {
    state: Mutex<State>,
    counts: Arc<Counts>,
}

impl Shared {
    /// Marks the connection as ended: nothing is sent any more.
    fn mark_ended(&self) {
        let message = || "the connection ended".to_owned();
        self.state.lock().broken.get_or_insert_with(message);
    }

    fn fail(&self, message: String) {
        let mut state = self.state.lock();
        state.broken = Some(message);
        state.waiting.clear();
    }

    fn lost(&self) -> Failure {
        let message = self.state.lock().broken.clone();
        let message = message.unwrap_or_else(|| "the connection ended".to_owned());
        Failure::Lost(ErrorKind::Temporary, message)
    }
}

/// A request in flight.
pub(super) struct PendingReply {
    receiver: oneshot::Receiver<Reply>,
    shared: Arc<Shared>,
}

impl PendingReply {
    /// Waits for the reply; an error status is a failure.
    pub(super) async fn reply(self) -> Result<Reply, Failure> {
        match timeout(REPLY_TIMEOUT, self.receiver).await {
            Ok(Ok(Reply::Status(status))) if status.code != Status::OK => {
                Err(Failure::Refused(status))
            }
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(self.shared.lost()),
            Err(_) => {
                let message = format!("no reply within {} s", REPLY_TIMEOUT.as_secs());
                self.shared.fail(message);
                Err(self.shared.lost())
            }
        }
    }

    /// Waits until the request succeeded.
    pub(super) async fn done(self) -> Result<(), Failure> {
        self.reply().await.map(drop)
    }
}

pub(super) struct Connection {
    outgoing: mpsc::Sender<(u32, Packet)>,
    shared: Arc<Shared>,
    pub(super) extensions: Extensions,
    /// Maximum sizes of a read and a write.
    pub(super) max_io: (u64, u64),
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    pub(super) async fn open(ssh: &Ssh, counts: Arc<Counts>) -> Result<Connection, Failure> {
        *counts.lock().entry("connect").or_default() += 1;
        let mut pipes = SshProcess::start(ssh)?;
        let greeted = timeout(LOGIN_TIMEOUT, pipes.handshake()).await;
        let extensions = match greeted {
            Ok(Ok(extensions)) => extensions,
            Ok(Err(message)) => {
                let stderr = pipes.drain_stderr().await;
                // A message here is about the protocol; otherwise the output of `ssh` explains the
                // failure.
                let (kind, message) = match message {
                    Some(message) => (ErrorKind::Unsupported, message),
                    None => ssh.explain_exit(&stderr),
                };
                return Err(Failure::Lost(kind, message));
            }
            Err(_) => {
                let message = format!("could not log in within {} s", LOGIN_TIMEOUT.as_secs());
                return Err(Failure::Lost(ErrorKind::Temporary, message));
            }
        };
        let state = State {
            next: 0,
            waiting: HashMap::new(),
            broken: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            counts,
        });
        let (outgoing, requests) = mpsc::channel(MAX_QUEUED);
        let task = tokio::spawn(run(pipes, requests, shared.clone())).abort_handle();
        let longest = (DEFAULT_IO_SIZE, DEFAULT_IO_SIZE);
        let mut connection = Connection {
            outgoing,
            shared,
            extensions,
            max_io: longest,
            task,
        };
        if connection.extensions.limits {
            connection.max_io = connection.query_limits().await?;
        }
        Ok(connection)
    }

    async fn query_limits(&self) -> Result<(u64, u64), Failure> {
        let reply = self.request(Packet::limits()).await;
        let Ok(Reply::Extended(body)) = reply else {
            return reply.map(|_| (DEFAULT_IO_SIZE, DEFAULT_IO_SIZE));
        };
        let (read, write) = packet::parse_limits(body).unwrap_or_default();
        // A server without a limit accepts what the specification requires.
        let sane = |bytes: u64| {
            if bytes == 0 {
                DEFAULT_IO_SIZE
            } else {
                bytes.min(MAX_IO_SIZE)
            }
        };
        Ok((sane(read), sane(write)))
    }

    pub(super) fn is_broken(&self) -> bool {
        self.shared.state.lock().broken.is_some()
    }

    /// Sends a request. Requests are executed in the order in which they were sent.
    pub(super) async fn send(&self, packet: Packet) -> Result<PendingReply, Failure> {
        let waiting = self.register(packet.label)?;
        match self.outgoing.send((waiting.0, packet)).await {
            Ok(()) => Ok(waiting.1),
            Err(_) => Err(self.shared.lost()),
        }
    }

    /// Sends a request if the queue has room, and ignores the reply.
    pub(super) fn send_ignoring_reply(&self, packet: Packet) {
        if let Ok((id, _)) = self.register(packet.label)
            && self.outgoing.try_send((id, packet)).is_err()
        {
            self.shared.state.lock().waiting.remove(&id);
        }
    }

    pub(super) async fn request(&self, packet: Packet) -> Result<Reply, Failure> {
        self.send(packet).await?.reply().await
    }

    fn register(&self, label: &'static str) -> Result<(u32, PendingReply), Failure> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.shared.state.lock();
        if state.broken.is_some() {
            drop(state);
            return Err(self.shared.lost());
        }
        let id = state.next;
        state.next = id.wrapping_add(1);
        state.waiting.insert(id, sender);
        drop(state);
        *self.shared.counts.lock().entry(label).or_default() += 1;
        let shared = self.shared.clone();
        Ok((id, PendingReply { receiver, shared }))
    }
}

/// A running `ssh`.
struct SshProcess {
    _child: Child,
    input: ChildStdin,
    output: ChildStdout,
    received: BytesMut,
    stderr: Arc<Mutex<Vec<u8>>>,
    listener: JoinHandle<()>,
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl SshProcess {
    fn start(ssh: &Ssh) -> Result<SshProcess, Failure> {
        let mut child = ssh.start().map_err(|error| {
            let message = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "the program `ssh` is not installed; install openssh-client".to_owned()
                }
                _ => format!("cannot start `ssh`: {error}"),
            };
            Failure::Lost(ErrorKind::Unsupported, message)
        })?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let errors = errors.expect("stderr is piped");
        let listener = tokio::spawn(collect_stderr(errors, stderr.clone()));
        Ok(SshProcess {
            _child: child,
            input: input.expect("stdin is piped"),
            output: output.expect("stdout is piped"),
            received: BytesMut::with_capacity(64 << 10),
            stderr,
            listener,
        })
    }

    /// Negotiates the version. An error without a message means that `ssh` ended and explains it
    /// itself.
    async fn handshake(&mut self) -> Result<Extensions, Option<String>> {
        let sent = self.input.write_all(&packet::init_packet()).await;
        sent.map_err(|_| None)?;
        match next(&mut self.output, &mut self.received).await {
            Ok(Some(packet)) => packet::parse_version(packet).map_err(Some),
            Ok(None) => Err(None),
            Err(message) => Err(Some(message)),
        }
    }

    async fn drain_stderr(&mut self) -> String {
        // A helper of `ssh` may keep the pipe open for longer than it lives.
        let _ = timeout(STDERR_TIMEOUT, &mut self.listener).await;
        String::from_utf8_lossy(&self.stderr.lock()).into_owned()
    }
}

async fn collect_stderr(mut errors: ChildStderr, stderr: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = [0; 1024];
    while let Ok(length @ 1..) = errors.read(&mut chunk).await {
        let mut stderr = stderr.lock();
        let too_much = (stderr.len() + length).saturating_sub(MAX_STDERR);
        let too_much = too_much.min(stderr.len());
        stderr.drain(..too_much);
        stderr.extend_from_slice(&chunk[..length]);
    }
}

/// Reads the next packet; `None` at the end.
async fn next(output: &mut ChildStdout, received: &mut BytesMut) -> Result<Option<Bytes>, String> {
    loop {
        if let Some(packet) = packet::split_packet(received)? {
            return Ok(Some(packet));
        }
        received.reserve(64 << 10);
        match output.read_buf(received).await {
            Ok(1..) => {}
            Ok(0) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Transports packets until one direction ends.
async fn run(mut pipes: SshProcess, requests: mpsc::Receiver<(u32, Packet)>, shared: Arc<Shared>) {
    let ended = tokio::select! {
        ended = receive(&mut pipes.output, &mut pipes.received, &shared) => ended,
        () = transmit(&mut pipes.input, requests) => None,
    };
    shared.mark_ended();
    let stderr = pipes.drain_stderr().await;
    let last = stderr
        .lines()
        .map(str::trim)
        .rfind(|connection| !connection.is_empty());
    let message = match (ended, last) {
        (Some(message), _) => message,
        (None, Some(last)) => format!("the connection ended: {last}"),
        (None, None) => "the connection ended".to_owned(),
    };
    shared.fail(message);
}

async fn receive(
    output: &mut ChildStdout,
    received: &mut BytesMut,
    shared: &Shared,
) -> Option<String> {
    loop {
        let packet = match next(output, received).await {
            Ok(Some(packet)) => packet,
            Ok(None) => return None,
            Err(message) => return Some(message),
        };
        let (id, reply) = match packet::reply(packet) {
            Ok(reply) => reply,
            Err(message) => return Some(message),
        };
        let waiting = shared.state.lock().waiting.remove(&id);
        match waiting {
            // The requester may be gone.
            Some(waiting) => drop(waiting.send(reply)),
            None => return Some("the server replied to an unknown request".to_owned()),
        }
    }
}

async fn transmit(input: &mut ChildStdin, mut requests: mpsc::Receiver<(u32, Packet)>) {
    let (mut some, mut buffer) = (Vec::with_capacity(MAX_QUEUED), BytesMut::new());
    while requests.recv_many(&mut some, MAX_QUEUED).await > 0 {
        buffer.clear();
        for (id, packet) in some.drain(..) {
            packet.put(id, &mut buffer);
        }
        if input.write_all(&buffer).await.is_err() {
            return;
        }
    }
}
