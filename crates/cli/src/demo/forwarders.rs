//! Trackers in this process that the demo's tracker forwards to. Most of them misbehave as trackers
//! on public lists do.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Most connections that one forwarder serves at once.
const MAX_CONNECTIONS: usize = 64;
/// Most bytes of a request that are read.
const MAX_REQUEST: usize = 8 << 10;

/// How a forwarder behaves.
#[derive(Clone, Copy)]
enum Manner {
    /// Answers at once, with three peers.
    Good,
    /// Answers after some seconds.
    Slow,
    /// Answers 429 with a time.
    Limited,
    /// Answers with `retry in`.
    Later,
    /// Answers 500.
    Broken,
}

const MANNERS: [(&str, Manner); 5] = [
    ("good", Manner::Good),
    ("slow", Manner::Slow),
    ("rate-limited", Manner::Limited),
    ("comes-back-later", Manner::Later),
    ("broken", Manner::Broken),
];

/// A forwarder whose port is open.
pub(super) struct Forwarder {
    name: &'static str,
    address: SocketAddr,
    kind: Kind,
}

enum Kind {
    Http(TcpListener, Manner),
    /// Never answers. The socket keeps the port.
    Silent(UdpSocket),
    /// Nobody listens.
    Closed,
}

/// Opens the ports of all forwarders.
pub(super) fn open() -> Result<Vec<Forwarder>> {
    let any = (Ipv4Addr::LOCALHOST, 0);
    let open = || -> std::io::Result<Vec<Forwarder>> {
        let mut forwarders = Vec::new();
        for (name, manner) in MANNERS {
            let listener = TcpListener::bind(any)?;
            listener.set_nonblocking(true)?;
            forwarders.push(Forwarder {
                name,
                address: listener.local_addr()?,
                kind: Kind::Http(listener, manner),
            });
        }
        let silent = UdpSocket::bind(any)?;
        forwarders.push(Forwarder {
            name: "silent",
            address: silent.local_addr()?,
            kind: Kind::Silent(silent),
        });
        // The port of a listener that is closed at once.
        let address = TcpListener::bind(any)?.local_addr()?;
        forwarders.push(Forwarder {
            name: "closed",
            address,
            kind: Kind::Closed,
        });
        Ok(forwarders)
    };
    open().context("no port for the demo's forwarders")
}

/// The list of forwarders for the tracker.
pub(super) fn list(forwarders: &[Forwarder]) -> String {
    let mut text = String::new();
    for Forwarder {
        name,
        address,
        kind,
    } in forwarders
    {
        let uri = match kind {
            Kind::Silent(_) => format!("udp://{address}"),
            _ => format!("http://{address}/announce"),
        };
        let _ = writeln!(text, "- uri: {uri}\n  name: {name}");
    }
    text
}

impl Forwarder {
    /// Serves until it is dropped.
    pub(super) async fn serve(self) {
        match self.kind {
            Kind::Http(listener, manner) => serve(listener, manner).await,
            Kind::Silent(socket) => {
                let _kept = socket;
                std::future::pending::<()>().await;
            }
            Kind::Closed => {}
        }
    }
}

async fn serve(listener: TcpListener, manner: Manner) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(respond(stream, manner));
            }
            // Out of descriptors: some are free in a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one request and closes.
async fn respond(mut stream: TcpStream, manner: Manner) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && request.len() < MAX_REQUEST {
        match stream.read_buf(&mut request).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    if let Manner::Slow = manner {
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let (status, body): (_, &[u8]) = match manner {
        Manner::Good | Manner::Slow => (
            "200 OK",
            b"d8:intervali90e5:peers18:\xc0\xa8\x4d\x01\x1a\xe1\xc0\xa8\x4d\x02\x1a\xe1\xc0\xa8\x4d\x03\x1a\xe1e",
        ),
        Manner::Limited => ("429 Too Many Requests\r\nRetry-After: 120", b""),
        Manner::Later => ("200 OK", b"d14:failure reason4:busy8:retry in1:5e"),
        Manner::Broken => ("500 Internal Server Error", b""),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
}
