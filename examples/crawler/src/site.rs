//! A small web of hosts on 127.0.0.1, each with its own port and behaviour, and a common log of
//! requests.

use crate::fetch::Url;
use std::io::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The behaviour of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Normal.
    Plain,
    /// Slow responses.
    Slow,
    /// Three pages in ten fail at the first attempt.
    Flaky,
    /// The first response asks for a pause of a second.
    Strict,
    /// There is no last page.
    Endless,
}

/// All hosts, in the order of their ports.
pub const HOSTS: [Behaviour; 5] = [
    Behaviour::Plain,
    Behaviour::Slow,
    Behaviour::Flaky,
    Behaviour::Strict,
    Behaviour::Endless,
];

/// Pages of a host with a last page, including the home page.
pub const PAGES: u64 = 11;

/// One request, as the host saw it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The index of the host.
    pub host: usize,
    /// The requested path.
    pub path: String,
    /// The time of arrival.
    pub arrived: Instant,
    /// The time just before the response was sent.
    pub answered: Instant,
    /// The status of the response.
    pub status: u16,
    /// Requests in progress at the host on arrival, including this one.
    pub concurrent: u32,
}

/// The hosts; they stop on drop.
pub struct Site {
    hosts: Vec<String>,
    log: Log,
    _tasks: JoinSet<()>,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<(Vec<Request>, [u32; HOSTS.len()])>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, (Vec<Request>, [u32; HOSTS.len()])> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Site {
    /// Starts all hosts on free ports.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Site> {
        let (mut listeners, mut hosts) = (Vec::new(), Vec::new());
        for _ in HOSTS {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            hosts.push(listener.local_addr()?.to_string());
            listeners.push(listener);
        }
        let (log, mut tasks) = (Log::default(), JoinSet::new());
        for (host, listener) in listeners.into_iter().enumerate() {
            tasks.spawn(serve(host, listener, hosts.clone(), log.clone()));
        }
        Ok(Site {
            hosts,
            log,
            _tasks: tasks,
        })
    }

    /// The home page of a host.
    #[must_use]
    pub fn home(&self, host: usize) -> Url {
        Url {
            host: self.hosts[host].clone(),
            path: "/0".into(),
        }
    }

    /// The requests so far, in order of arrival.
    #[must_use]
    pub fn log(&self) -> Vec<Request> {
        let mut log = self.log.lock().0.clone();
        log.sort_by_key(|request| request.arrived);
        log
    }
}

async fn serve(host: usize, listener: TcpListener, hosts: Vec<String>, log: Log) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                let (hosts, log) = (hosts.clone(), log.clone());
                connections.spawn(async move { answer(host, stream, &hosts, &log).await.ok() });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(host: usize, mut stream: TcpStream, hosts: &[String], log: &Log) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let arrived = Instant::now();
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let (before, at_once) = {
        let (requests, serving) = &mut *log.lock();
        serving[host] += 1;
        let mine = requests.iter().filter(|request| request.host == host);
        let same = mine.clone().filter(|request| request.path == path).count();
        ((mine.count(), same), serving[host])
    };
    if HOSTS[host] == Behaviour::Slow {
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let (status, body) = page(host, &path, before, hosts);
    {
        let (requests, serving) = &mut *log.lock();
        serving[host] -= 1;
        requests.push(Request {
            host,
            path,
            arrived,
            answered: Instant::now(),
            status,
            concurrent: at_once,
        });
    }
    let wait = if status == 429 {
        "Retry-After: 1\r\n"
    } else {
        ""
    };
    let answer = format!("HTTP/1.1 {status} -\r\n{wait}Connection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// The response of a host. `before` counts its earlier requests, in total and for this path.
fn page(host: usize, path: &str, before: (usize, usize), hosts: &[String]) -> (u16, String) {
    let temper = HOSTS[host];
    let number = path.strip_prefix('/').and_then(|path| path.parse().ok());
    let Some(number) = number.filter(|n| temper == Behaviour::Endless || *n < PAGES) else {
        return (404, String::new());
    };
    if temper == Behaviour::Strict && before.0 == 0 {
        return (429, String::new());
    }
    if temper == Behaviour::Flaky && before.1 == 0 && number * 7 % 10 < 3 {
        return (503, String::new());
    }
    let mut links: Vec<String> = match (temper, number) {
        (Behaviour::Endless, n) => vec![format!("/{}", 2 * n + 1), format!("/{}", 2 * n + 2)],
        (_, 0) => (1..PAGES).map(|n| format!("/{n}")).collect(),
        (_, n) => vec![format!("/{}", n % (PAGES - 1) + 1), "/0".into()],
    };
    if number == 0 {
        // Other hosts are linked only by their home pages, so the first request to a host is for
        // that.
        let others = [1, 2].map(|step| format!("http://{}/0", hosts[(host + step) % hosts.len()]));
        links.extend(others);
        links.push("/gone".into());
    }
    let links = links
        .iter()
        .map(|link| format!("<a href=\"{link}\">{link}</a>\n"));
    (200, links.collect())
}
