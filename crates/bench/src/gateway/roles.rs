//! Roles of the child processes: mock upstream, bare pass-through and gateway.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headworks_gateway::{Gateway, GatewayConfig};
use headworks_service::config::{Schema, Sources};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::shutdown::Shutdown;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;

use super::hostile;
use super::load::SERVED;

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Service time of the mock upstream.
const SERVICE: Duration = Duration::from_millis(5);

const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"It is a machine that decides how much water goes where, and it has done so for a long time."},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":22,"total_tokens":222}}"#;

pub(super) fn run(role: &str, upstream: Option<SocketAddr>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        match (role, upstream) {
            ("mock", _) => serve(|_| async { answer().await }).await,
            ("obedient", _) => serve(obey).await,
            ("tenants", Some(upstream)) => {
                let keys = "scheduler_max_concurrent = 1000\n\
                            [[gateway.key]]\nprefix = 'sk-victim'\ntenant = 'victim'\n\
                            [[gateway.key]]\nprefix = 'sk-hostile'\ntenant = 'hostile'";
                ours(upstream, keys).await;
            }
            ("hostile", Some(gateway)) => hostile::attack(gateway).await,
            ("hanging", _) => serve(|_| std::future::pending()).await,
            ("bare", Some(upstream)) => bare(upstream).await,
            ("ours", Some(upstream)) => ours(upstream, "scheduler_max_concurrent = 1000").await,
            ("ten", Some(upstream)) => ours(upstream, "scheduler_max_concurrent = 10").await,
            ("narrow", Some(upstream)) => {
                let narrow = "scheduler_max_concurrent = 1\nscheduler_max_queue_depth = 100000\nscheduler_queue_timeout = '1h'";
                ours(upstream, narrow).await;
            }
            _ => panic!("no such role: {role}"),
        }
    });
    ExitCode::SUCCESS
}

/// Answers as the request asks.
async fn obey(request: Request<Incoming>) -> Response<Body> {
    let action = request.headers().get(hostile::ACTION);
    let action = action.and_then(|action| action.to_str().ok()).unwrap_or("");
    let status = http::StatusCode::from_bytes(action.as_bytes());
    let mut response = answer().await;
    if let Ok(status) = status {
        *response.status_mut() = status;
    }
    if action == "stream" {
        let events = http::HeaderValue::from_static("text/event-stream");
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, events);
    }
    response
}

async fn answer() -> Response<Body> {
    let came = Instant::now();
    tokio::time::sleep(SERVICE).await;
    let body = Full::new(Bytes::from_static(ANSWER.as_bytes()));
    let mut response = Response::new(body.map_err(Into::into).boxed_unsync());
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    let took = came.elapsed().as_nanos() as u64;
    response.headers_mut().insert(SERVED, took.into());
    response
}

async fn serve<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static)
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    println!("{}", listener.local_addr().expect("it is bound"));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The cheapest possible pass-through: the same server and the same client, with nothing in
/// between.
async fn bare(upstream: SocketAddr) {
    let outbound = Outbound::new(&OutboundConfig::default()).expect("certificates");
    serve(move |mut request| {
        let outbound = outbound.clone();
        async move {
            let path = request.uri().path();
            let uri: Uri = format!("http://{upstream}{path}")
                .parse()
                .expect("an address");
            *request.uri_mut() = uri;
            request.headers_mut().remove(http::header::HOST);
            let response = outbound.send(request).await.expect("the mock answers");
            response.map(|body| body.map_err(Into::into).boxed_unsync())
        }
    })
    .await;
}

async fn ours(upstream: SocketAddr, settings: &str) {
    let text = format!(
        "[gateway]\nlisten = '127.0.0.1:0'\nscheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\nopen = true\n{settings}\n\
         [[gateway.upstream]]\nname = 'mock'\nurl = 'http://{upstream}'\n"
    );
    let schema = Schema::new().with::<GatewayConfig>();
    let loaded = schema.load(&Sources::new().text("bench.toml", text));
    let config = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    let outbound = Outbound::new(&OutboundConfig::default()).expect("certificates");
    let shutdown = Shutdown::new();
    let config: Arc<GatewayConfig> = config.section();
    let gateway = Gateway::start(&config, outbound, &shutdown).expect("it starts");
    println!("{}", gateway.address());
    shutdown.requested().await;
}
