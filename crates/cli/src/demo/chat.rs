//! Synthetic clients of the gateway: a team that chats, one that does research, and a batch that
//! asks for more than there is.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Counts, count};

/// Concurrent clients of the tenants that always have more to ask.
const RESEARCHERS: usize = 4;
const BATCHES: usize = 48;
/// Pause between two chat requests.
const CHAT_PAUSE: Duration = Duration::from_millis(400);
/// Pause between two requests that the model `limited` answers with 429.
const LIMITED_PAUSE: Duration = Duration::from_secs(20);

/// Milliseconds until the model of a gateway without configuration answers: more requests than
/// places, so that some wait.
const UNCONFIGURED_LATENCY: u32 = 2000;

/// The keys of the tenants.
#[derive(Clone)]
pub(super) struct Keys {
    chat: String,
    research: String,
    batch: String,
}

impl Keys {
    pub(super) fn random(random: impl Fn() -> u32) -> Keys {
        let key = |tenant| {
            let parts = [random(), random(), random(), random()];
            let [a, b, c, d] = parts;
            format!("demo-{tenant}-{a:08x}{b:08x}{c:08x}{d:08x}")
        };
        Keys {
            chat: key("chat"),
            research: key("research"),
            batch: key("batch"),
        }
    }

    /// Tenant, class, weight and key.
    pub(super) fn all(&self) -> [(&'static str, u8, u32, &str); 3] {
        [
            ("chat", 1, 4, &self.chat),
            ("research", 6, 3, &self.research),
            ("batch", 6, 1, &self.batch),
        ]
    }
}

/// How a client names itself. A gateway without keys knows one tenant, whose requests may ask for a
/// less urgent class.
#[derive(Clone)]
enum Identity {
    Key(String),
    Priority(&'static str),
}

impl Identity {
    fn header(&self) -> String {
        match self {
            Identity::Key(key) => format!("Authorization: Bearer {key}"),
            Identity::Priority(name) => {
                format!("X-Priority: {name}\r\nX-Echo-Latency-Ms: {UNCONFIGURED_LATENCY}")
            }
        }
    }

    /// The model that the demo's configuration has, or the one of a gateway without configuration.
    fn model(&self) -> &'static str {
        match self {
            Identity::Key(_) => "model",
            Identity::Priority(_) => "echo",
        }
    }
}

type Client = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The clients, each to be run by a task of its own.
pub(super) fn clients(at: SocketAddr, keys: Option<&Keys>, counts: &Arc<Counts>) -> Vec<Client> {
    let identity = |key: fn(&Keys) -> &String, priority| match keys {
        Some(keys) => Identity::Key(key(keys).clone()),
        None => Identity::Priority(priority),
    };
    let chat = identity(|keys| &keys.chat, "normal");
    let research = identity(|keys| &keys.research, "low");
    let batch = identity(|keys| &keys.batch, "background");
    let mut clients: Vec<Client> = vec![Box::pin(chatting(at, chat, counts.clone()))];
    for _ in 0..RESEARCHERS {
        clients.push(Box::pin(asking(at, research.clone(), counts.clone())));
    }
    for _ in 0..BATCHES {
        clients.push(Box::pin(asking(at, batch.clone(), counts.clone())));
    }
    if keys.is_some() {
        clients.push(Box::pin(being_limited(at, batch)));
    }
    clients
}

/// Short requests at a steady pace, whatever becomes of the ones before.
async fn chatting(at: SocketAddr, identity: Identity, counts: Arc<Counts>) {
    let mut requests = tokio::task::JoinSet::new();
    loop {
        tokio::time::sleep(CHAT_PAUSE).await;
        while requests.try_join_next().is_some() {}
        if requests.len() >= 64 {
            continue;
        }
        let (identity, counts) = (identity.clone(), counts.clone());
        requests.spawn(async move {
            count(&counts.chat);
            if let Ok(Answer { status: 429, .. }) =
                ask(at, &identity, identity.model(), 40, "").await
            {
                count(&counts.rejected);
            }
        });
    }
}

/// One request after the other, and again when the gateway says that there is room.
async fn asking(at: SocketAddr, identity: Identity, counts: Arc<Counts>) {
    loop {
        count(&counts.batch);
        let pause = match ask(at, &identity, identity.model(), 150, "").await {
            Ok(Answer {
                status: 429,
                retry_after,
            }) => {
                count(&counts.rejected);
                retry_after.clamp(Duration::from_millis(50), Duration::from_secs(30))
            }
            Ok(Answer { status: 200, .. }) => Duration::from_millis(10),
            // The gateway is reloading or gone.
            Ok(_) | Err(_) => Duration::from_secs(1),
        };
        tokio::time::sleep(pause).await;
    }
}

/// Requests that an upstream rejects, so that it is suspended for a while.
async fn being_limited(at: SocketAddr, identity: Identity) {
    loop {
        let limit = "X-Echo-Status: 429\r\nX-Echo-Retry-After: 10\r\n";
        let _ = ask(at, &identity, "limited", 10, limit).await;
        tokio::time::sleep(LIMITED_PAUSE).await;
    }
}

struct Answer {
    status: u16,
    retry_after: Duration,
}

/// Sends one request on a connection of its own, and reads the response to its end.
async fn ask(
    at: SocketAddr,
    identity: &Identity,
    model: &str,
    tokens: u32,
    headers: &str,
) -> io::Result<Answer> {
    let body = format!(
        r#"{{"model":"{model}","max_tokens":{tokens},"messages":[{{"role":"user","content":"A synthetic question of the demo."}}]}}"#
    );
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {at}\r\n{}\r\nX-Echo-Tokens: {tokens}\r\n\
         {headers}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        identity.header(),
        body.len()
    );
    let response = exchange(TcpStream::connect(at).await?, &request).await?;
    Ok(Answer {
        status: status(&response).ok_or(io::ErrorKind::InvalidData)?,
        retry_after: Duration::from_millis(header(&response, "retry-after-ms").unwrap_or(0)),
    })
}

/// Sends a request and reads until the other side closes.
pub(super) async fn exchange(mut stream: TcpStream, request: &str) -> io::Result<String> {
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

fn status(response: &str) -> Option<u16> {
    response.split(' ').nth(1)?.parse().ok()
}

fn header(response: &str, name: &str) -> Option<u64> {
    let head = response.split("\r\n\r\n").next()?;
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let (_, value) = lines.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_understood() {
        let response = "HTTP/1.1 429 Too Many Requests\r\nRetry-After-Ms: 1500\r\n\r\n{\"a: 1\"}";
        assert_eq!(status(response), Some(429));
        assert_eq!(header(response, "retry-after-ms"), Some(1500));
        assert_eq!(header(response, "retry-after"), None);
        assert_eq!(status("garbage"), None);
    }

    #[test]
    fn keys_differ() {
        let next = std::cell::Cell::new(0);
        let keys = Keys::random(|| next.replace(next.get() + 1));
        let [(_, _, _, chat), (_, _, _, research), (_, _, _, batch)] = keys.all();
        assert!(chat != research && research != batch && chat != batch);
    }
}
