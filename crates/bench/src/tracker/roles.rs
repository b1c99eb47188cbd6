//! The roles in which the bench starts itself again: our tracker, a bare hyper server, or
//! misbehaving forwarders.

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

/// The peers per response in every comparison.
pub(super) const PEERS: usize = 30;

/// The load comes from one address, which no real client is.
const UNLIMITED: &str = "max_torrents_per_client = 1000000000\nmax_peers_per_client = 1000000000\n";

pub(super) fn run(role: &str, settings: &str) -> ExitCode {
    if role == "misbehaving" {
        // The forwarders share a CPU with the load, which must not wait for them.
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
            "hyper" => hyper(settings.parse().expect("the size of a response")).await,
            "misbehaving" => misbehaving().await,
            _ => panic!("no such role: {role}"),
        }
    });
    ExitCode::SUCCESS
}

/// Prints the line that the parent process reads.
fn announce_address(address: impl std::fmt::Display) {
    println!("{address}");
    let _ = std::io::stdout().flush();
}

async fn ours(settings: &str) {
    let shutdown = Shutdown::new();
    // A free port may be taken by another process before it is bound.
    let tracker = (0..10).find_map(|_| start(settings, &shutdown));
    let tracker = tracker.expect("a free port");
    announce_address(tracker.http()[0]);
    shutdown.requested().await;
}

/// Starts the tracker on one port for both transports; `None` if the port was taken meanwhile.
fn start(settings: &str, shutdown: &Shutdown) -> Option<Tracker> {
    let port = crate::process::Process::free().port();
    let text = format!(
        "[tracker]\nlisten = '127.0.0.1:{port}'\nudp_listen = '127.0.0.1:{port}'\nworkers = 1\nmax_peers = {PEERS}\n{UNLIMITED}{settings}"
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

/// Serves the same bytes for every request: the least work of a hyper server.
async fn hyper(size: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    announce_address(listener.local_addr().expect("a bound address"));
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
            async move { Ok::<_, Infallible>(answer.body(body).expect("a response")) }
        });
        let connection = hyper::server::conn::http1::Builder::new();
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

/// Serves an HTTP tracker that misbehaves as the path says.
async fn misbehaving() {
    // Created before the measurement, because compressing takes CPU time.
    LazyLock::force(&LARGE);
    LazyLock::force(&BOMB);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    announce_address(listener.local_addr().expect("a bound address"));
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
    let bytes = match path {
        b"/429" => status("429 X"),
        b"/500" => status("500 X"),
        b"/404" => status("404 X"),
        b"/lie" => impossible_peers(),
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
    stream.write_all(&bytes).await?;
    stream.shutdown().await
}

fn response(body: &[u8], encoding: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\n{encoding}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Returns a response with two thousand impossible peers.
fn impossible_peers() -> Vec<u8> {
    let peers = [0u8, 0, 0, 0, 0, 1].repeat(2000);
    let body = [b"d8:intervali1e5:peers12000:".as_slice(), &peers, b"e"].concat();
    response(&body, "")
}

/// Sends bytes at the speed of a remote server. At the speed of loopback they would disturb the
/// measurement.
async fn trickle(mut stream: TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    for part in bytes.chunks(64 << 10) {
        stream.write_all(part).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stream.shutdown().await
}

static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| response(&vec![b'd'; 10 << 20], ""));

/// A gzip response that decompresses to a thousand times its size.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..64 {
        packed.write_all(&zeros).expect("memory takes everything");
    }
    let packed = packed.finish().expect("memory takes everything");
    response(&packed, "Content-Encoding: gzip\r\n")
});
