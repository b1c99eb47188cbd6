//! Load generators: open-loop requests, and many waiting clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A request of about two hundred tokens.
pub(super) const BODY: &str = concat!(
    r#"{"model":"m","max_tokens":64,"temperature":0.2,"messages":[{"role":"system","content":"You are a patient engineer who "#,
    "explains how structures at the head of a waterway decide how much water goes where, in plain words and short sentences, ",
    "without ever guessing, and who says so when something is not known or cannot be known from what was given. Answer in the ",
    "language of the question. Prefer one good example to three poor ones, and a number to an adjective wherever there is one. ",
    r#"Do not repeat the question."},{"role":"user","content":"What are headworks, who built the oldest ones that still stand, "#,
    r#"and what would happen to the fields below if one of their gates stayed open for a week in a dry summer?"}]}"#
);

/// Response header with the service time of the mock upstream, in nanoseconds.
pub(super) const SERVED: &str = "x-served-ns";

/// Duration of a request, in nanoseconds.
pub(super) struct RequestTime {
    /// From the time at which it was due. A late start of the load generator counts, so that a
    /// stall is not hidden (coordinated omission).
    pub(super) since_due: f64,
    /// From the time at which it was sent, without the service time of the upstream. `None` if the
    /// contender drops the header. Inaccurate timers in this program and in the upstream do not
    /// count.
    pub(super) beyond: Option<f64>,
}

pub(super) struct Load {
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
    uri: String,
    client: Client<HttpConnector, Full<Bytes>>,
    key: &'static str,
}

fn request(uri: &str, key: &str) -> Request<Full<Bytes>> {
    let request = Request::post(uri).header("content-type", "application/json");
    let request = match key {
        "" => request,
        key => request.header("x-api-key", key),
    };
    let body = Full::new(Bytes::from_static(BODY.as_bytes()));
    request.body(body).expect("a request")
}

impl Load {
    pub(super) fn new(address: SocketAddr) -> Load {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be built");
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Load {
            runtime,
            address,
            uri: format!("http://{address}/v1/chat/completions"),
            client: Client::builder(TokioExecutor::new()).build(connector),
            key: "",
        }
    }

    /// The same load with an API key.
    pub(super) fn with_key(self, key: &'static str) -> Load {
        Load { key, ..self }
    }

    /// Sends `requests` requests with at most `most` in flight, and returns the total time in
    /// nanoseconds.
    pub(super) fn burst(&self, requests: usize, most: usize) -> f64 {
        let (client, uri, places) = (&self.client, &self.uri, Arc::new(Semaphore::new(most)));
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let start = Instant::now();
            for _ in 0..requests {
                let (answer, places) = (client.request(request(uri, self.key)), places.clone());
                tasks.spawn(async move {
                    let _place = places.acquire().await;
                    let response = answer.await.expect("an answer");
                    assert_eq!(response.status(), 200);
                    let body = response.into_body().collect().await;
                    body.expect("a whole answer");
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended.expect("a request does not panic");
            }
            start.elapsed().as_nanos() as f64
        })
    }

    /// Sends requests at a fixed rate, independent of the responses, and returns the duration of
    /// each.
    pub(super) fn open_loop(&self, requests: usize, rate: f64) -> Vec<RequestTime> {
        let times = Arc::new(Mutex::new(Vec::with_capacity(requests)));
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let start = Instant::now() + Duration::from_millis(50);
            for n in 0..requests {
                let due = start + Duration::from_secs_f64(n as f64 / rate);
                tokio::time::sleep_until(due.into()).await;
                let (answer, times) = (
                    self.client.request(request(&self.uri, self.key)),
                    times.clone(),
                );
                tasks.spawn(async move {
                    let sent = Instant::now();
                    let response = answer.await.expect("an answer");
                    assert_eq!(response.status(), 200);
                    let served = response.headers().get(SERVED);
                    let served =
                        served.and_then(|served| served.to_str().ok()?.parse::<f64>().ok());
                    response
                        .into_body()
                        .collect()
                        .await
                        .expect("a whole answer");
                    times.lock().push(RequestTime {
                        since_due: due.elapsed().as_nanos() as f64,
                        beyond: served.map(|served| sent.elapsed().as_nanos() as f64 - served),
                    });
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended.expect("a request does not panic");
            }
        });
        std::mem::take(&mut *times.lock())
    }

    /// Opens connections that each send a request and wait.
    pub(super) fn waiting_clients(&self, count: usize) -> WaitingClients {
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        let waiting_streams = self.runtime.block_on(async {
            let mut waiting_streams = Vec::with_capacity(count);
            for _ in 0..count {
                let mut stream = TcpStream::connect(self.address)
                    .await
                    .expect("a connection");
                stream
                    .write_all(request.as_bytes())
                    .await
                    .expect("it takes the request");
                waiting_streams.push(stream);
            }
            waiting_streams
        });
        WaitingClients {
            _connections: waiting_streams,
            _tasks: JoinSet::new(),
        }
    }

    /// The same over HTTP/2, with 500 streams per connection.
    pub(super) fn waiting_streams(&self, count: usize) -> WaitingClients {
        const EACH: usize = 500;
        let mut tasks = JoinSet::new();
        self.runtime.block_on(async {
            for first in (0..count).step_by(EACH) {
                let stream = TcpStream::connect(self.address)
                    .await
                    .expect("a connection");
                let (io, executor) = (TokioIo::new(stream), TokioExecutor::new());
                let handshake = hyper::client::conn::http2::handshake(executor, io).await;
                let (mut sender, connection) = handshake.expect("it speaks HTTP/2");
                tasks.spawn(async move { drop(connection.await) });
                for _ in first..count.min(first + EACH) {
                    sender.ready().await.expect("the connection stays");
                    let answer = sender.send_request(request(&self.uri, self.key));
                    tasks.spawn(async move { drop(answer.await) });
                }
            }
        });
        WaitingClients {
            _connections: Vec::new(),
            _tasks: tasks,
        }
    }
}

/// Waiting clients. Dropping this disconnects them.
pub(super) struct WaitingClients {
    _connections: Vec<TcpStream>,
    _tasks: JoinSet<()>,
}
