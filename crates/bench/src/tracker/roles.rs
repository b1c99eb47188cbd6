//! What this program is when the bench starts it again: our tracker, a bare hyper responder, or
//! forwarders that misbehave.

use std::convert::Infallible;
use std::io::Write;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use headworks_service::config::{Schema, Sources};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::shutdown::Shutdown;
use headworks_tracker::{Tracker, TrackerConfig};
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Peers in an answer, in every comparison.
pub(super) const PEERS: usize = 30;

pub(super) fn run(role: &str, settings: &str) -> ExitCode {
    if role == "misbehaving" {
        // It shares its CPU with the load, which must not wait for it.
        let _ = rustix::process::setpriority_process(None, 19);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        match role {
            "ours" => ours(settings).await,
            "hyper" => hyper(settings.parse().expect("the size of an answer")).await,
            "misbehaving" => misbehaving().await,
            _ => panic!("no such role: {role}"),
        }
    });
    ExitCode::SUCCESS
}

/// The parent reads one line and no more.
fn say(what: impl std::fmt::Display) {
    println!("{what}");
    let _ = std::io::stdout().flush();
}

async fn ours(settings: &str) {
    let shutdown = Shutdown::new();
    // A port that was free may be somebody else's a moment later.
    let tracker = (0..10).find_map(|_| start(settings, &shutdown));
    let tracker = tracker.expect("a free port");
    say(tracker.http()[0]);
    shutdown.requested().await;
}

/// On one port for both transports, so that one address says it all; nothing if it was taken
/// meanwhile.
fn start(settings: &str, shutdown: &Shutdown) -> Option<Tracker> {
    let port = crate::process::Process::free().port();
    let text = format!(
        "[tracker]\nlisten = '127.0.0.1:{port}'\nudp_listen = '127.0.0.1:{port}'\nworkers = 1\nmax_peers = {PEERS}\n{settings}"
    );
    let schema = Schema::new().with::<TrackerConfig>();
    let loaded = schema.load(&Sources::new().text("bench.toml", text));
    let config = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    let outbound = Outbound::new(&OutboundConfig::default()).expect("certificates");
    let section = config.section::<TrackerConfig>();
    match Tracker::start(&section, outbound, shutdown) {
        Ok(tracker) => Some(tracker),
        Err(headworks_tracker::Error::Bind(..)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The least that a server of hyper's can do: the same bytes for every request.
async fn hyper(size: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    say(listener.local_addr().expect("it is bound"));
    let body = Bytes::from(vec![b'x'; size]);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let body = body.clone();
        let service = service_fn(move |_| {
            let body = Full::new(body.clone());
            let answer = Response::builder().header("content-type", "text/plain");
            async move { Ok::<_, Infallible>(answer.body(body).expect("an answer")) }
        });
        let connection = hyper::server::conn::http1::Builder::new();
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

/// An HTTP tracker that misbehaves in a way that the path names.
async fn misbehaving() {
    // Made before anybody waits: packing and filling would take CPU from whoever is measured.
    LazyLock::force(&LARGE);
    LazyLock::force(&BOMB);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    say(listener.local_addr().expect("it is bound"));
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(misbehave(stream));
    }
}

async fn misbehave(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let status = |line: &str| format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n").into_bytes();
    let answer = match path {
        b"/429" => status("429 X"),
        b"/500" => status("500 X"),
        b"/404" => status("404 X"),
        b"/lie" => lie(),
        b"/large" => return trickle(stream, &LARGE).await,
        b"/bomb" => BOMB.clone(),
        b"/drip" => {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
            stream.write_all(head).await?;
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                stream.write_all(b"d").await?;
            }
        }
        _ => std::future::pending().await,
    };
    stream.write_all(&answer).await?;
    stream.shutdown().await
}

fn answer(body: &[u8], encoding: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\n{encoding}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Two thousand peers that nobody can reach.
fn lie() -> Vec<u8> {
    let peers = [0u8, 0, 0, 0, 0, 1].repeat(2000);
    let body = [b"d8:intervali1e5:peers12000:".as_slice(), &peers, b"e"].concat();
    answer(&body, "")
}

/// As fast as a far side could: what this machine moves in a millisecond would be in its own way.
async fn trickle(mut stream: TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    for part in bytes.chunks(64 << 10) {
        stream.write_all(part).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stream.shutdown().await
}

static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| answer(&vec![b'd'; 10 << 20], ""));

/// A gzip that is a thousand times larger inside.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..64 {
        packed.write_all(&zeros).expect("memory takes everything");
    }
    let packed = packed.finish().expect("memory takes everything");
    answer(&packed, "Content-Encoding: gzip\r\n")
});
