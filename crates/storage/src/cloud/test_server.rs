//! An HTTP server for tests, which imitates a token service or a storage service.

use super::Environment;
use headworks_outbound::{Outbound, Settings};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as the server received it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Method and target, as in `GET /x?y=1`.
    pub(crate) line: String,
    /// The header lines, with names in lower case.
    headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A response: status, header lines, body.
pub(crate) type Reply = (u16, &'static str, String);

/// Returns a successful response.
pub(crate) fn ok(body: impl Into<String>) -> Reply {
    (200, "", body.into())
}

/// A running server. It ends with the test's runtime.
pub(crate) struct TestServer {
    pub(crate) address: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl TestServer {
    /// Starts a server that replies with `reply`.
    pub(crate) async fn start(
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let (log, reply) = (received.clone(), Arc::new(reply));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (log, reply) = (log.clone(), reply.clone());
                tokio::spawn(async move {
                    let request = read(&mut stream).await?;
                    log.lock().push(request.clone());
                    let (status, headers, body) = reply(&request);
                    let head = format!(
                        "HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
                        body.len()
                    );
                    let body = if request.line.starts_with("HEAD") {
                        ""
                    } else {
                        &body
                    };
                    let _ = stream.write_all((head + body).as_bytes()).await;
                    Some(())
                });
            }
        });
        TestServer { address, received }
    }

    /// Returns the requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    /// Returns the number of requests whose line starts like this.
    pub(crate) fn count(&self, line: &str) -> usize {
        let received = self.received.lock();
        received
            .iter()
            .filter(|one| one.line.starts_with(line))
            .count()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    };
    let headers: HashMap<_, _> = lines.filter_map(header).collect();
    let length = headers.get("content-length");
    let length = length.map_or(0, |length| length.parse().unwrap_or(0));
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&bytes[end..]).into_owned();
    Some(Received {
        line,
        headers,
        body,
    })
}

/// Returns an environment with these variables only.
pub(crate) fn variables(pairs: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let pairs: HashMap<String, String> = pairs.iter().map(owned).collect();
    Arc::new(move |name| pairs.get(name).cloned())
}

/// Returns a client that uses no proxy.
pub(crate) fn outbound() -> Outbound {
    let mut settings = Settings::default();
    settings.proxy_from_environment = false;
    Outbound::new(settings).unwrap()
}

/// Returns a time in this many seconds, as services write it.
pub(crate) fn time_in(seconds: i64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string()
}
