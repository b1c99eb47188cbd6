//! Scripted upstream on the byte level that counts its requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Most bytes of a body that are remembered.
const MAX_KEPT_BODY: usize = 4 << 20;

/// One received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) at: Instant,
    /// Requests before it on the same connection.
    pub(crate) before: usize,
    /// Request line and headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))
    }
}

/// Scripted reaction to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    /// Respond after a while, with this usage.
    Answer { after: Duration, tokens: u64 },
    /// Respond after a while, with this usage, even if the client has disconnected.
    Finish { after: Duration, tokens: u64 },
    /// Respond once the semaphore has a permit, with this usage.
    When(Arc<Semaphore>, u64),
    /// Send events at intervals, with a usage report at the end.
    Stream { events: usize, gap: Duration },
    /// Send large events without a pause or an end. Each counts as a token.
    Flood,
    /// Respond with an error and these headers.
    Status(u16, &'static str),
    /// Never respond.
    Hang,
    /// Close the connection.
    Close,
    /// Send something that is not HTTP.
    Garbage,
    /// Send an event and a half, then close.
    BreakOff { in_event: bool },
    /// Send exactly these bytes.
    Raw(&'static str),
    /// Send exactly these bytes, then close.
    Last(&'static str),
}

#[derive(Default)]
pub(crate) struct Seen {
    now: AtomicUsize,
    peak: AtomicUsize,
    /// Requests whose client disconnected before the end of the response.
    left: AtomicUsize,
    /// Those before its first token.
    silent: AtomicUsize,
    /// Tokens generated, whether somebody received them or not.
    generated: AtomicUsize,
    calls: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    /// Connections that the gateway closed while they were idle.
    closed: AtomicUsize,
}

pub(crate) struct Upstream {
    is_tls: bool,
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstream {
    pub(crate) async fn start(
        reaction: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static,
    ) -> Upstream {
        Upstream::start_with(None, reaction).await
    }

    /// Starts an upstream that speaks TLS if there is an acceptor.
    pub(crate) async fn start_with(
        tls: Option<TlsAcceptor>,
        reaction: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static,
    ) -> Upstream {
        let is_tls = tls.is_some();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, reaction) = (Arc::new(Seen::default()), Arc::new(reaction));
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (seen, reaction, tls) = (shared.clone(), reaction.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, &seen, &*reaction).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &seen, &*reaction).await;
                            }
                        }
                    }
                });
            }
        });
        Upstream {
            is_tls,
            address,
            seen,
            task,
        }
    }

    pub(crate) async fn answering(after: Duration, tokens: u64) -> Upstream {
        Upstream::start(move |_| Reaction::Answer { after, tokens }).await
    }

    /// Its entry in the configuration.
    pub(crate) fn toml(&self, name: &str, more: &str) -> String {
        let url = match self.is_tls {
            // A certificate is for a name.
            true => format!("https://localhost:{}", self.address.port()),
            false => format!("http://{}", self.address),
        };
        format!("[[gateway.upstream]]\nname = '{name}'\nurl = '{url}'\n{more}\n")
    }

    pub(crate) fn peak(&self) -> usize {
        self.seen.peak.load(Ordering::SeqCst)
    }

    pub(crate) fn now(&self) -> usize {
        self.seen.now.load(Ordering::SeqCst)
    }

    pub(crate) fn left(&self) -> usize {
        self.seen.left.load(Ordering::SeqCst)
    }

    /// Number of those that left before the first token.
    pub(crate) fn silent(&self) -> u64 {
        self.seen.silent.load(Ordering::SeqCst) as u64
    }

    /// Tokens generated so far.
    pub(crate) fn generated(&self) -> u64 {
        self.seen.generated.load(Ordering::SeqCst) as u64
    }

    /// Number of connections ever opened.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Number of connections that the gateway closed between two requests.
    pub(crate) fn closed(&self) -> usize {
        self.seen.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> Vec<ReceivedRequest> {
        self.seen.calls.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.calls.lock().len()
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite,
    seen: &Seen,
    reaction: &(dyn Fn(&ReceivedRequest) -> Reaction + Send + Sync),
) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut buffer, mut before) = (Vec::new(), 0);
    while let Some(mut call) = read(&mut reader, &mut buffer).await {
        call.before = before;
        before += 1;
        let reaction = reaction(&call);
        seen.calls.lock().push(call);
        let mut at_upstream = AtUpstream::new(seen);
        let ignores_disconnects = matches!(reaction, Reaction::Finish { .. });
        let mut byte = [0];
        let done = tokio::select! {
            biased;
            _ = reader.read(&mut byte), if !ignores_disconnects => None,
            goes_on = perform(&mut writer, &reaction, &mut at_upstream) => Some(goes_on),
        };
        at_upstream.leave();
        match done {
            None => {
                seen.left.fetch_add(1, Ordering::SeqCst);
                let is_silent = at_upstream.1 == 0;
                seen.silent
                    .fetch_add(usize::from(is_silent), Ordering::SeqCst);
                return;
            }
            Some(false) => return,
            Some(true) => {}
        }
    }
    seen.closed.fetch_add(1, Ordering::SeqCst);
}

/// A request at the upstream, and the tokens generated for it.
struct AtUpstream<'a>(Option<&'a Seen>, u64);

impl AtUpstream<'_> {
    fn new(seen: &Seen) -> AtUpstream<'_> {
        let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
        seen.peak.fetch_max(now, Ordering::SeqCst);
        AtUpstream(Some(seen), 0)
    }

    fn generated(&mut self, tokens: u64) {
        self.1 += tokens;
        if let Some(seen) = self.0 {
            seen.generated.fetch_add(tokens as usize, Ordering::SeqCst);
        }
    }

    /// Ends the count of this request. Called before the end of the response is sent, because the
    /// gateway may send the next request at once.
    fn leave(&mut self) {
        if let Some(seen) = self.0.take() {
            seen.now.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for AtUpstream<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> Option<ReceivedRequest> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end])
                .to_lowercase()
                .replace('\r', "");
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
            if buffer.len() >= end + 4 + length {
                // Of a very large body, the beginning is kept.
                let kept = &buffer[end + 4..end + 4 + length.min(MAX_KEPT_BODY)];
                let body = String::from_utf8_lossy(kept).into_owned();
                buffer.drain(..end + 4 + length);
                return Some(ReceivedRequest {
                    at: Instant::now(),
                    before: 0,
                    head,
                    body,
                });
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Performs an action. Returns whether the connection stays open.
async fn perform(
    writer: &mut (impl AsyncWriteExt + Unpin),
    reaction: &Reaction,
    at_upstream: &mut AtUpstream<'_>,
) -> bool {
    match reaction {
        Reaction::Answer { after, tokens } | Reaction::Finish { after, tokens } => {
            tokio::time::sleep(*after).await;
            at_upstream.generated(*tokens);
            at_upstream.leave();
            answer(writer, *tokens).await
        }
        Reaction::When(permits, tokens) => {
            permits.acquire().await.unwrap().forget();
            at_upstream.generated(*tokens);
            at_upstream.leave();
            answer(writer, *tokens).await
        }
        Reaction::Status(status, headers) => {
            at_upstream.leave();
            let head =
                format!("HTTP/1.1 {status} Ordered\r\ncontent-type: application/json{headers}");
            whole(
                writer,
                &head,
                r#"{"error":{"message":"ordered","type":"ordered"}}"#,
            )
            .await
        }
        Reaction::Stream { events, gap } => {
            let _ = writer.write_all(STREAM).await;
            for event in 0..*events {
                let event = format!("data: {{\"n\":{event},\"text\":\"a\"}}\n\n");
                if chunk(writer, &event).await.is_err() {
                    // The gateway has disconnected. The task that reads the socket notices.
                    std::future::pending::<()>().await;
                }
                at_upstream.generated(1);
                tokio::time::sleep(*gap).await;
            }
            let last = "data: {\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n";
            let _ = chunk(writer, last).await;
            at_upstream.leave();
            writer.write_all(b"0\r\n\r\n").await.is_ok()
        }
        Reaction::Flood => {
            let _ = writer.write_all(STREAM).await;
            let event = format!("data: {}\n\n", "x".repeat(64 << 10));
            while chunk(writer, &event).await.is_ok() {
                at_upstream.generated(1);
            }
            // The gateway has disconnected. The task that reads the socket notices.
            std::future::pending().await
        }
        Reaction::Hang => std::future::pending().await,
        Reaction::Close => false,
        Reaction::Garbage => {
            let _ = writer
                .write_all(b"\x16\x03\x01 this is not HTTP at all\r\n\r\n")
                .await;
            false
        }
        Reaction::BreakOff { in_event } => {
            let _ = writer.write_all(STREAM).await;
            let rest = if *in_event { "data: {\"n\":" } else { "" };
            let _ = chunk(writer, &format!("data: {{\"n\":0}}\n\n{rest}")).await;
            false
        }
        Reaction::Raw(bytes) => writer.write_all(bytes.as_bytes()).await.is_ok(),
        Reaction::Last(bytes) => {
            let _ = writer.write_all(bytes.as_bytes()).await;
            false
        }
    }
}

async fn answer(writer: &mut (impl AsyncWriteExt + Unpin), tokens: u64) -> bool {
    let body = format!(
        r#"{{"id":"x","object":"chat.completion","model":"m","choices":[],"usage":{{"prompt_tokens":0,"completion_tokens":{tokens}}}}}"#
    );
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-upstream: kept\r\nset-cookie: a=b";
    whole(writer, head, &body).await
}

async fn whole(writer: &mut (impl AsyncWriteExt + Unpin), head: &str, body: &str) -> bool {
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    writer.write_all(answer.as_bytes()).await.is_ok()
}

async fn chunk(writer: &mut (impl AsyncWriteExt + Unpin), text: &str) -> std::io::Result<()> {
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    writer.write_all(chunk.as_bytes()).await?;
    writer.flush().await
}
