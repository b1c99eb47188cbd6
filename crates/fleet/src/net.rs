//! Streams to the shared servers: TCP with keepalives, and verified TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{Error, Result};
use crate::url::{Host, Tls};

/// A server that vanished is noticed after about this time, even by a connection that only waits.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The system's root certificates, read once.
static SYSTEM_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
});

/// The TLS configuration for a URL; `None` for a connection without TLS.
pub(crate) fn tls_config(tls: &Tls) -> Result<Option<Arc<ClientConfig>>> {
    let roots = match tls {
        Tls::Off => return Ok(None),
        Tls::Verified { roots: None } => SYSTEM_ROOTS.clone(),
        // As with libpq, a named file replaces the system's certificates.
        Tls::Verified { roots: Some(path) } => headworks_outbound::read_certificates(path)?,
    };
    // Named explicitly, so that no second crypto provider enters through a default feature.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(headworks_outbound::Error::from)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Some(Arc::new(config)))
}

/// Opens a TCP connection. Without TLS, only loopback addresses are tried, whatever a name
/// resolves to.
pub(crate) async fn connect_tcp(host: &Host, loopback_only: bool) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host.name.as_str(), host.port)).await?;
    let mut failed = None;
    for address in addresses {
        if loopback_only && !address.ip().is_loopback() {
            failed = Some(io::Error::other(
                "the name leads to another machine, and the connection is not encrypted",
            ));
            continue;
        }
        match connect_address(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::other("the name has no address")))
}

async fn connect_address(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    // Keepalives are not sent while data waits for an acknowledgement; this bounds that wait.
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(stream)
}

/// Performs the TLS handshake, with the server's name verified.
pub(crate) async fn handshake(
    config: Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

/// A TCP stream, encrypted or not.
pub(crate) enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) async fn connect(host: &Host, tls: Option<Arc<ClientConfig>>) -> io::Result<Stream> {
        let stream = connect_tcp(host, tls.is_none()).await?;
        match tls {
            None => Ok(Stream::Plain(stream)),
            Some(config) => {
                let stream = handshake(config, &host.name, stream).await?;
                Ok(Stream::Encrypted(Box::new(stream)))
            }
        }
    }
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Stream::Encrypted(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}

/// Converts an I/O error into ours. A certificate that is not trusted is not cured by waiting.
pub(crate) fn connect_error(server: &str, error: &io::Error) -> Error {
    let server = server.to_owned();
    let cause = headworks_outbound::error_chain(error);
    let from_tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    let from_tls = from_tls.is_some_and(|_: &rustls::Error| true);
    if from_tls && error.kind() == io::ErrorKind::InvalidData {
        Error::Rejected { server, cause }
    } else {
        Error::Unreachable { server, cause }
    }
}
