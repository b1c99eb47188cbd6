//! The outbound client against local servers and proxies.

mod support;

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use headworks_outbound::{Outbound, Settings};
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::client::proxy::matcher::Matcher;
use support::servers::{self, Authority};

fn direct() -> Matcher {
    Matcher::builder().build()
}

fn get(url: &str) -> Request<Empty<Bytes>> {
    Request::get(url).body(Empty::new()).unwrap()
}

async fn body(outbound: &Outbound, url: &str) -> String {
    let answer = outbound.send(get(url)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[tokio::test]
async fn plain_http_with_a_body() {
    let server = servers::plain().await;
    let outbound = Outbound::with_proxies(Settings::default(), direct()).unwrap();
    let url = format!("http://{server}/echo");
    let request = Request::post(url)
        .body(Full::new(Bytes::from("water")))
        .unwrap();
    let answer = outbound.send(request).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_11);
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "POST /echo water"
    );
}

#[tokio::test]
async fn plain_http_through_a_forwarding_proxy_with_its_password() {
    let server = servers::plain().await;
    let proxy = servers::proxy().await;
    let matcher = Matcher::builder()
        .all(format!("http://user:pass@{}", proxy.address))
        .build();
    let outbound = Outbound::with_proxies(Settings::default(), matcher).unwrap();
    let said = body(&outbound, &format!("http://{server}/hello")).await;
    assert_eq!(
        said,
        format!("GET http://{server}/hello via proxy, Basic dXNlcjpwYXNz")
    );
}

/// The environment belongs to a process, so a child process sends the request: this test binary
/// again, with only `asks_as_the_environment_says` to run.
#[tokio::test]
async fn proxies_come_from_the_environment() {
    let proxy = servers::proxy().await;
    let ask = move |no_proxy: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "asks_as_the_environment_says", "--nocapture"])
            .env("HTTP_PROXY", format!("http://{}", proxy.address))
            .env("NO_PROXY", no_proxy)
            .env(ASK, "http://far.invalid/hello")
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap()
    };
    let both = tokio::task::spawn_blocking(move || (ask(""), ask("far.invalid"))).await;
    let (through, past) = both.unwrap();
    assert!(
        through.contains("GET http://far.invalid/hello via proxy, nobody"),
        "{through}"
    );
    assert!(past.contains("no answer"), "{past}");
}

const ASK: &str = "HEADWORKS_TEST_ASK";

#[tokio::test]
async fn asks_as_the_environment_says() {
    let Ok(url) = std::env::var(ASK) else { return };
    let outbound = Outbound::new(Settings::default()).unwrap();
    match outbound.send(get(&url)).await {
        Ok(_) => println!("{}", body(&outbound, &url).await),
        Err(error) => println!("no answer: {}", chain(&error)),
    }
}

#[tokio::test]
async fn through_socks() {
    let server = servers::plain().await;
    let socks = servers::socks().await;
    let matcher = Matcher::builder().all(format!("socks5h://{socks}")).build();
    let outbound = Outbound::with_proxies(Settings::default(), matcher).unwrap();
    let url = format!("http://localhost:{}/hello", server.port());
    assert_eq!(body(&outbound, &url).await, "GET /hello ");
}

#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_named() {
    let matcher = Matcher::builder().all("socks4://127.0.0.1:1").build();
    let outbound = Outbound::with_proxies(Settings::default(), matcher).unwrap();
    let why = chain(&outbound.send(get("http://127.0.0.1:1/")).await.unwrap_err());
    assert!(why.contains("unsupported proxy scheme `socks4`"), "{why}");
}

#[tokio::test]
async fn a_host_that_needs_no_proxy_gets_none() {
    let server = servers::plain().await;
    let proxy = servers::proxy().await;
    let matcher = Matcher::builder()
        .all(format!("http://{}", proxy.address))
        .no("127.0.0.1")
        .build();
    let outbound = Outbound::with_proxies(Settings::default(), matcher).unwrap();
    assert_eq!(
        body(&outbound, &format!("http://{server}/hello")).await,
        "GET /hello "
    );
}

#[tokio::test]
async fn https_with_a_private_authority_speaks_http2() {
    let authority = Authority::new("direct");
    let server = servers::tls(&authority, &[b"h2", b"http/1.1"]).await;
    let outbound = Outbound::with_proxies(authority.settings(), direct()).unwrap();
    let answer = outbound
        .send(get(&format!("https://localhost:{}/", server.port())))
        .await
        .unwrap();
    assert_eq!(
        (answer.status(), answer.version()),
        (StatusCode::OK, Version::HTTP_2)
    );
}

#[tokio::test]
async fn https_falls_back_to_http1() {
    let authority = Authority::new("fallback");
    let server = servers::tls(&authority, &[b"http/1.1"]).await;
    let outbound = Outbound::with_proxies(authority.settings(), direct()).unwrap();
    let answer = outbound
        .send(get(&format!("https://localhost:{}/", server.port())))
        .await
        .unwrap();
    assert_eq!(answer.version(), Version::HTTP_11);
}

#[tokio::test]
async fn https_from_a_stranger_is_refused() {
    let server = servers::tls(&Authority::new("stranger"), &[b"h2"]).await;
    let outbound = Outbound::with_proxies(Settings::default(), direct()).unwrap();
    let refused = outbound
        .send(get(&format!("https://localhost:{}/", server.port())))
        .await;
    let why = chain(&refused.unwrap_err());
    assert!(why.contains("UnknownIssuer"), "{why}");
}

#[tokio::test]
async fn https_through_a_tunnel_hides_the_proxys_password() {
    let authority = Authority::new("tunnel");
    let server = servers::tls(&authority, &[b"h2", b"http/1.1"]).await;
    let mut proxy = servers::proxy().await;
    let matcher = Matcher::builder()
        .https(format!("http://user:pass@{}", proxy.address))
        .build();
    let outbound = Outbound::with_proxies(authority.settings(), matcher).unwrap();
    let said = body(
        &outbound,
        &format!("https://localhost:{}/hello", server.port()),
    )
    .await;
    assert_eq!(said, "GET /hello ");
    let tunnel = proxy.tunnels.recv().await.unwrap();
    assert_eq!(
        tunnel,
        format!("localhost:{} Basic dXNlcjpwYXNz", server.port())
    );
}

#[tokio::test]
async fn connecting_takes_no_longer_than_allowed() {
    // Accepts the connection, but never starts the TLS handshake.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Settings::default();
    config.connect_timeout = Duration::from_millis(200);
    let outbound = Outbound::with_proxies(config, direct()).unwrap();
    let url = format!("https://localhost:{}/", silent.local_addr().unwrap().port());
    let why = chain(&outbound.send(get(&url)).await.unwrap_err());
    assert!(why.contains("connect timeout after 200ms"), "{why}");
}

#[tokio::test]
async fn small_packets_go_out_at_once() {
    let server = servers::plain().await;
    let outbound = Outbound::with_proxies(Settings::default(), direct()).unwrap();
    let url = format!("http://{server}/").parse().unwrap();
    assert!(outbound.connect(url).await.unwrap().nodelay().unwrap());
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_named() {
    let mut config = Settings::default();
    config.ca_file = Some("Cargo.toml".into());
    let error = Outbound::with_proxies(config, direct()).unwrap_err();
    insta::assert_snapshot!(error, @"cannot read PEM certificates from `Cargo.toml`: the file has no certificates");
}
