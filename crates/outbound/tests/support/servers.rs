//! Local servers and proxies to connect to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use headworks_outbound::Settings;
use http::header::PROXY_AUTHORIZATION;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

type Answer = Result<Response<Full<Bytes>>, Infallible>;

/// Echoes the request.
async fn echo(request: Request<Incoming>) -> Answer {
    let asked = format!("{} {}", request.method(), request.uri());
    let body = request
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    // HTTP/2 puts the host into the URI; the tests compare only the path.
    let path = asked
        .split("://")
        .nth(1)
        .and_then(|rest| Some(&rest[rest.find('/')?..]));
    let said = path.map_or(asked.clone(), |path| format!("GET {path}"));
    Ok(Response::new(Full::new(Bytes::from(format!(
        "{said} {body}"
    )))))
}

/// Starts a server without TLS.
pub(crate) async fn plain() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server
                    .serve_connection(TokioIo::new(stream), service_fn(echo))
                    .await;
            });
        }
    });
    address
}

/// A private certificate authority that issues a certificate for `localhost`.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = format!("headworks-ca-{}-{name}.pem", std::process::id());
        let file = std::env::temp_dir().join(file);
        std::fs::write(&file, issuer.pem()).unwrap();
        Authority { issuer, file }
    }

    /// Settings that trust this authority.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.ca_file = Some(self.file.clone());
        settings
    }

    fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Starts a TLS server that speaks `protocols`.
pub(crate) async fn tls(authority: &Authority, protocols: &[&[u8]]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = authority.acceptor(protocols);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server
                    .serve_connection(TokioIo::new(stream), service_fn(echo))
                    .await;
            });
        }
    });
    address
}

/// A proxy that forwards and tunnels.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// The target and credentials of each CONNECT.
    pub(crate) tunnels: mpsc::UnboundedReceiver<String>,
}

pub(crate) async fn proxy() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, tunnels) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| pass_on(request, seen.clone()));
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades()
                    .await;
            });
        }
    });
    Proxy { address, tunnels }
}

async fn pass_on(request: Request<Incoming>, seen: mpsc::UnboundedSender<String>) -> Answer {
    let password = request.headers().get(PROXY_AUTHORIZATION);
    let password = password
        .and_then(|value| value.to_str().ok())
        .unwrap_or("nobody")
        .to_owned();
    if request.method() != Method::CONNECT {
        let said = format!(
            "{} {} via proxy, {password}",
            request.method(),
            request.uri()
        );
        return Ok(Response::new(Full::new(Bytes::from(said))));
    }
    let target = request.uri().to_string();
    let _ = seen.send(format!("{target} {password}"));
    tokio::spawn(async move {
        let Ok(near) = hyper::upgrade::on(request).await else {
            return;
        };
        let Ok(mut far) = TcpStream::connect(&target).await else {
            return;
        };
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(near), &mut far).await;
    });
    Ok(Response::new(Full::new(Bytes::new())))
}

/// Starts a SOCKS 5 proxy without authentication that resolves names itself.
pub(crate) async fn socks() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(socks_tunnel(stream));
        }
    });
    address
}

async fn socks_tunnel(mut near: TcpStream) -> std::io::Result<()> {
    let mut greeting = [0; 2];
    near.read_exact(&mut greeting).await?;
    let mut methods = vec![0; usize::from(greeting[1])];
    near.read_exact(&mut methods).await?;
    near.write_all(&[5, 0]).await?;
    // Version, command (connect), reserved, address type (name), length of the name.
    let mut asked = [0; 5];
    near.read_exact(&mut asked).await?;
    assert_eq!(asked[..4], [5, 1, 0, 3]);
    let mut name = vec![0; usize::from(asked[4])];
    near.read_exact(&mut name).await?;
    let port = near.read_u16().await?;
    let mut far = TcpStream::connect((String::from_utf8_lossy(&name).as_ref(), port)).await?;
    near.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).await?;
    tokio::io::copy_bidirectional(&mut near, &mut far).await?;
    Ok(())
}
