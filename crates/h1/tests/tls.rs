//! The server under TLS, called by curl and by our own client.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use headworks_h1::{
    BoxError, ClientConnection, HeadError, OutgoingRequest, Received, RequestBody, ResponseFraming,
    ServerConnection, Service, Transport,
};
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_util::sync::CancellationToken;

/// TLS as a transport: the few lines that a user of this crate writes.
struct Tls(TlsStream<TcpStream>);

impl Transport for Tls {
    fn socket(&self) -> &TcpStream {
        self.0.get_ref().0
    }
}

impl AsyncRead for Tls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Tls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Sends the path and the body back.
struct Echo;

type EchoBody = UnsyncBoxBody<Bytes, BoxError>;

fn body(bytes: impl Into<Bytes>) -> EchoBody {
    let body = Full::new(bytes.into()).map_err(|never: Infallible| match never {});
    UnsyncBoxBody::new(body)
}

impl<S: Transport> Service<S> for Echo {
    type Request = String;
    type Body = EchoBody;

    async fn receive(&self, parts: Parts, body: RequestBody<'_, S>) -> Received<String, EchoBody> {
        let bytes = body.read_all(1 << 20, &mut ()).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Received::Request(format!("{} {text}", parts.uri.path()))
    }

    async fn serve(&self, request: String) -> Response<EchoBody> {
        Response::new(body(request))
    }

    fn reject(&self, error: &HeadError) -> Response<EchoBody> {
        let mut response = Response::new(body(error.to_string()));
        *response.status_mut() = error.status();
        response
    }

    fn replace(&self, _: &HeaderMap, _: &io::Error) -> Option<Response<EchoBody>> {
        None
    }

    fn write_timeout(&self) -> Duration {
        Duration::from_secs(30)
    }
}

struct Server {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    pem: String,
}

async fn serve() -> Server {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(issued.signing_key.serialize_der().into());
    let certificate = issued.cert.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let connection = ServerConnection::new(Tls(stream.into()), Echo);
                    connection.serve(&CancellationToken::new()).await;
                }
            });
        }
    });
    let pem = issued.cert.pem();
    Server {
        address,
        certificate,
        pem,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_is_served_over_tls() {
    let server = serve().await;
    let file = std::env::temp_dir().join(format!("headworks-h1-{}.pem", std::process::id()));
    std::fs::write(&file, &server.pem).unwrap();
    let url = format!("https://localhost:{}", server.address.port());
    let curl = |arguments: &[&str]| {
        let mut command = tokio::process::Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "60", "--http1.1"]);
        command.arg("--cacert").arg(&file).args(arguments);
        command.stdin(Stdio::null()).output()
    };
    let large = "x".repeat(300_000);
    let sent = std::env::temp_dir().join(format!("headworks-h1-{}.body", std::process::id()));
    std::fs::write(&sent, &large).unwrap();
    let data = format!("@{}", sent.display());
    for framing in ["Content-Type: text/plain", "Transfer-Encoding: chunked"] {
        let output = curl(&["-H", framing, "--data-binary", &data, &format!("{url}/a")]).await;
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, format!("/a {large}"), "{framing}");
    }
    // Two requests on one connection, and one that is no HTTP.
    let (one, two) = (format!("{url}/1"), format!("{url}/2"));
    let output = curl(&[&one, &two]).await.unwrap();
    assert_eq!(output.stdout, b"/1 /2 ");
    let refused = curl(&["-H", "Transfer-Encoding: gzip", &url])
        .await
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stdout).contains("only `chunked` is supported"));
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(&sent).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_calls_a_server_over_tls() {
    let server = serve().await;
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    let mut connection = ClientConnection::new(Tls(stream.into()));
    for path in ["/a", "/b"] {
        let headers = HeaderMap::new();
        let mut request = OutgoingRequest::new(path, "localhost", &headers, "hello".into());
        let head = connection.send(&mut request).await.unwrap();
        assert_eq!(head.status.as_u16(), 200);
        let expected = format!("{path} hello");
        assert_eq!(head.end, ResponseFraming::Length(expected.len() as u64));
        while connection.input.len() < expected.len() {
            let read = std::future::poll_fn(|cx| connection.poll_fill(cx)).await;
            assert!(read.unwrap() > 0, "the connection stays open");
        }
        assert_eq!(connection.input, expected.as_bytes());
        connection.input.clear();
    }
}
