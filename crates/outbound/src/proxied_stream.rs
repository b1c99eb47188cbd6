//! A connection that knows whether it ends at a forwarding proxy, and that acknowledges responses
//! at once.
//!
//! A server that writes the head and the body of a response separately may hold the body back until
//! the head is acknowledged (Nagle's algorithm), while the receiving kernel delays the
//! acknowledgement by up to 40 ms. The kernel returns to delayed acknowledgements whenever
//! something is sent, so `TCP_QUICKACK` is set again after every request. See docs/adr/0025.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The transport: TCP, with TLS if the proxy itself speaks it.
pub(super) type Transport = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The address at the other end of a direct connection, an extension of its responses.
#[derive(Clone, Copy, Debug)]
struct DirectPeer(IpAddr);

/// Returns the address that a response came from; `None` if it came through a proxy.
#[must_use]
pub fn direct_peer<B>(response: &Response<B>) -> Option<IpAddr> {
    let peer = response.extensions().get::<DirectPeer>();
    peer.map(|DirectPeer(ip)| *ip)
}

/// A connection: direct, through a tunnel, or to a forwarding proxy.
pub(crate) struct ProxiedStream {
    pub(super) transport: Transport,
    /// A forwarding proxy needs the whole address in the request line.
    forwarded: bool,
    /// Whether it ends at the host itself.
    direct: bool,
    /// Whether something was sent since `TCP_QUICKACK` was last set.
    sent: bool,
}

impl ProxiedStream {
    pub(super) fn new(transport: Transport, forwarded: bool) -> ProxiedStream {
        ProxiedStream {
            transport,
            forwarded,
            direct: false,
            sent: false,
        }
    }

    /// A connection to the host itself.
    pub(super) fn direct(transport: Transport) -> ProxiedStream {
        let mut stream = ProxiedStream::new(transport, false);
        stream.direct = true;
        stream
    }

    /// Sets `TCP_QUICKACK`. If that fails, responses are merely slower.
    fn acknowledge(&self) {
        let _ = self.tcp().set_quickack(true);
    }

    fn tcp(&self) -> &TcpStream {
        match &self.transport {
            MaybeHttpsStream::Http(tcp) => tcp.inner(),
            MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
        }
    }
}

impl Connection for ProxiedStream {
    fn connected(&self) -> Connected {
        let connected = self.transport.connected().proxy(self.forwarded);
        match self.tcp().peer_addr() {
            Ok(peer) if self.direct => connected.extra(DirectPeer(peer.ip())),
            _ => connected,
        }
    }
}

impl Read for ProxiedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.sent) {
            self.acknowledge();
        }
        Pin::new(&mut self.transport).poll_read(cx, buf)
    }
}

impl Write for ProxiedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sent = true;
        Pin::new(&mut self.transport).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sent = true;
        Pin::new(&mut self.transport).poll_write_vectored(cx, bytes)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Regression test: a server that writes the head and the body of a response separately, with
    /// Nagle's algorithm on, waits for the acknowledgement of the head. Every response took 40 ms
    /// longer than necessary.
    #[tokio::test]
    async fn every_response_is_acknowledged_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (mut server, _) = listener.accept().await.unwrap();
        let transport = Transport::Http(TokioIo::new(stream.unwrap()));
        let mut client = TokioIo::new(ProxiedStream::new(transport, false));
        for _ in 0..60 {
            // As the kernel does when something is sent.
            client.inner().tcp().set_quickack(false).unwrap();
            client.write_all(b"request").await.unwrap();
            let mut request = [0; 7];
            server.read_exact(&mut request).await.unwrap();
            server.write_all(b"head").await.unwrap();
            let mut head = [0; 4];
            client.read_exact(&mut head).await.unwrap();
            assert!(client.inner().tcp().quickack().unwrap());
        }
    }
}
