//! Synthetic BitTorrent clients, on loopback addresses of their own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpSocket;

use super::chat::exchange;
use super::{Counts, count};

const TORRENTS: u32 = 24;
const PEERS: u32 = 8;
/// Pause between two announces: every client announces every 30 s or so.
const PAUSE: Duration = Duration::from_millis(150);
/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Announces one client of one torrent after the other, for ever.
pub(super) async fn announce(tracker: SocketAddr, counts: Arc<Counts>) {
    for turn in 0u32.. {
        count(&counts.announces);
        // Torrents have different numbers of clients, and some have one.
        let torrent = turn % TORRENTS;
        let peer = (turn / TORRENTS) % (1 + torrent % PEERS);
        let first = turn < TORRENTS * PEERS;
        let _ = tokio::time::timeout(TIMEOUT, announce_one(tracker, torrent, peer, first)).await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn announce_one(
    tracker: SocketAddr,
    torrent: u32,
    peer: u32,
    first: bool,
) -> io::Result<String> {
    let event = if first { "&event=started" } else { "" };
    // The first client of a torrent has all of it.
    let left = u64::from(peer) * 1_000_000;
    let port = 6881 + peer;
    let request = format!(
        "GET /announce?info_hash=demo-torrent-{torrent:07}&peer_id=-DE0001-{torrent:06}{peer:06}\
         &port={port}&uploaded=0&downloaded=0&left={left}&compact=1{event} HTTP/1.1\r\n\
         Host: {tracker}\r\nConnection: close\r\n\r\n"
    );
    let stream = match tracker {
        SocketAddr::V4(_) => {
            let socket = TcpSocket::new_v4()?;
            // Linux has all of 127.0.0.0/8, so every client has an address of its own.
            let own = Ipv4Addr::new(127, 77, 0, u8::try_from(peer + 1).unwrap_or(1));
            socket.bind((own, 0).into())?;
            socket.connect(tracker).await?
        }
        SocketAddr::V6(_) => TcpSocket::new_v6()?.connect(tracker).await?,
    };
    exchange(stream, &request).await
}
