//! Several `headworks gateway` processes that share one set of limits, in front of an upstream that
//! counts. Nothing is ever exceeded. How much of the limits is used, and how well weights hold,
//! depends on a quiet machine: that is asserted with `HEADWORKS_FULL=1`, which also counts for
//! longer.

#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod network;
mod restore;
mod servers;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headworks_fleet::testing::{PostgresServer, ValkeyServer};
use support::Folder;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

/// The password of the test servers.
const PASSWORD: &str = "only for tests";
/// The limit of all nodes together, in requests per second.
const LIMIT: f64 = 200.0;
/// Requests at once in the tests of slots.
const SLOTS: usize = 50;
/// Clients per node, each with one request at a time.
const CLIENTS: usize = 60;

fn is_full() -> bool {
    std::env::var_os("HEADWORKS_FULL").is_some()
}

/// An upstream that counts requests by model, and how many run at once.
struct Upstream {
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    arrivals: Mutex<Vec<(Instant, String)>>,
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Upstream {
    async fn start(takes: Duration) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(BufStream::new(stream), shared.clone(), takes));
            }
        });
        Upstream { address, counts }
    }

    fn arrivals(&self) -> Vec<(Instant, String)> {
        self.counts.arrivals.lock().unwrap().clone()
    }

    /// Requests per second in a span, as a part of the limit.
    fn part_of_limit(&self, from: Instant, to: Instant) -> f64 {
        let arrivals = self.arrivals();
        let within = arrivals.iter().filter(|(at, _)| from <= *at && *at < to);
        within.count() as f64 / (to - from).as_secs_f64() / LIMIT
    }

    /// The least and the most of any ten seconds between two times, as parts of the limit.
    fn extremes(&self, from: Instant, to: Instant) -> (f64, f64) {
        const WINDOW: Duration = Duration::from_secs(10);
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        let mut at = from;
        while at + WINDOW <= to {
            let part = self.part_of_limit(at, at + WINDOW);
            (least, most) = (least.min(part), most.max(part));
            at += Duration::from_millis(50);
        }
        (least, most)
    }
}

async fn serve(mut stream: BufStream<TcpStream>, counts: Arc<Counts>, takes: Duration) {
    while let Some((_, body)) = read_message(&mut stream).await {
        let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
        counts.peak.fetch_max(now, Ordering::SeqCst);
        let model = body
            .split("\"model\":\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let arrival = (Instant::now(), model.unwrap_or_default().to_owned());
        counts.arrivals.lock().unwrap().push(arrival);
        if !takes.is_zero() {
            sleep(takes).await;
        }
        counts.now.fetch_sub(1, Ordering::SeqCst);
        let answer = "{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}";
        let length = answer.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}"
        );
        let whole = format!("{head}\r\n\r\n{answer}");
        if stream.write_all(whole.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Reads a request or a response with a length: its first line and its body.
async fn read_message(stream: &mut BufStream<TcpStream>) -> Option<(String, String)> {
    let (mut first, mut length) = (String::new(), 0);
    stream
        .read_line(&mut first)
        .await
        .ok()
        .filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        stream
            .read_line(&mut line)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((first, String::from_utf8(body).ok()?))
}

/// A `headworks gateway` process; killed on drop.
struct Node {
    child: Child,
    address: SocketAddr,
    /// Its clients stop when an answer fails from here on.
    may_fail: Arc<AtomicBool>,
}

impl Node {
    fn start(folder: &Folder, name: &str, config: &str) -> Node {
        Node::start_with(folder, name, config, &[])
    }

    /// Starts it with more variables in its environment.
    fn start_with(folder: &Folder, name: &str, config: &str, more: &[(&str, &str)]) -> Node {
        let file = format!("{name}.toml");
        folder.write(&file, &config.replace("NAME", name));
        let mut command =
            folder.headworks(&["--config", &file, "gateway", "--listen", "127.0.0.1:0"]);
        command.args([
            "--admin-listen",
            "127.0.0.1:0",
            "--admin-token",
            "a-token-for-tests",
        ]);
        command
            .env("PGPASSWORD", PASSWORD)
            .env("VALKEYCLI_AUTH", PASSWORD)
            .envs(more.iter().copied());
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("{name} does not start:\n{seen}");
            };
            if let Some(rest) = line.strip_prefix("gateway: http://") {
                break rest.split('/').next().unwrap().parse().unwrap();
            }
            seen += &format!("{line}\n");
        };
        std::thread::spawn(move || lines.for_each(drop));
        Node {
            child,
            address,
            may_fail: Arc::default(),
        }
    }

    async fn is_ready(&self) -> bool {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut stream = BufStream::new(stream);
        let request = "GET /ready HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let answer = read_message(&mut stream).await;
        answer.is_some_and(|(first, _)| first.contains(" 200 "))
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([name, &id]).status().unwrap().success());
    }

    /// Ends it; its clients may fail.
    fn end(&self, signal: &str) -> Instant {
        self.may_fail.store(true, Ordering::SeqCst);
        self.signal(signal);
        Instant::now()
    }

    /// Starts clients that ask for a model as fast as they are answered, while `on`. Every answer
    /// must be 200 until the node may fail.
    fn load(&self, clients: &mut JoinSet<()>, key: &str, count: usize, on: &Arc<AtomicBool>) {
        let body = format!(
            r#"{{"model":"{key}","max_tokens":1,"messages":[{{"role":"user","content":"a"}}]}}"#
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-{key}-1\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        for _ in 0..count {
            let (address, may_fail) = (self.address, self.may_fail.clone());
            let (request, on) = (request.clone(), on.clone());
            clients.spawn(async move {
                let mut stream: Option<BufStream<TcpStream>> = None;
                loop {
                    if !on.load(Ordering::SeqCst) {
                        sleep(Duration::from_millis(20)).await;
                        continue;
                    }
                    let answer = ask(&mut stream, address, &request).await;
                    let first = answer.map_or("no answer".to_owned(), |(first, _)| first);
                    if !first.contains(" 200 ") {
                        assert!(may_fail.load(Ordering::SeqCst), "{first}");
                        return;
                    }
                }
            });
        }
    }
}

async fn ask(
    open: &mut Option<BufStream<TcpStream>>,
    address: SocketAddr,
    request: &str,
) -> Option<(String, String)> {
    if open.is_none() {
        *open = Some(BufStream::new(TcpStream::connect(address).await.ok()?));
    }
    let stream = open.as_mut()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    read_message(stream).await
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A configuration of all nodes. Tenants `a`, `b` and `c` have the weights 1, 9 and 10.
fn config(url: &str, upstream: &Upstream, fleet: &str, limits: &str) -> String {
    let tenant = |(name, weight): (&str, u32)| {
        format!(
            "[[gateway.tenant]]\nname = '{name}'\nweight = {weight}\n\
             [[gateway.key]]\nid = '{name}'\nprefix = 'sk-{name}-'\ntenant = '{name}'\n"
        )
    };
    let tenants: String = [("a", 1), ("b", 9), ("c", 10)].map(tenant).concat();
    format!(
        "[fleet]\nurl = '{url}'\nname = 'NAME'\nforget_after = '1h'\n{fleet}\n\
         [gateway]\nscheduler_max_tokens_per_sec = 0\nscheduler_queue_timeout = '5m'\n{limits}\n\
         {tenants}[[gateway.upstream]]\nname = 'one'\nurl = 'http://{}'\n",
        upstream.address
    )
}

async fn start_all(folder: &Folder, config: &str) -> [Node; 3] {
    let nodes = ["n1", "n2", "n3"].map(|name| Node::start(folder, name, config));
    all_ready(&nodes).await;
    nodes
}

async fn all_ready(nodes: &[Node]) {
    let deadline = Instant::now() + Duration::from_secs(300);
    for node in nodes {
        while !node.is_ready().await {
            assert!(Instant::now() < deadline, "never ready");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Panics with the panic of a client, if one has failed.
fn check_clients(clients: &mut JoinSet<()>) {
    while let Some(ended) = clients.try_join_next() {
        if let Err(failed) = ended
            && failed.is_panic()
        {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + seconds(300);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn until(time: Instant) {
    sleep_until(time.into()).await;
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A small burst, so that it is drained soon.
fn rate_limits() -> String {
    format!(
        "scheduler_max_rps = {LIMIT}\nscheduler_rps_burst = 10\nscheduler_max_concurrent = 1000"
    )
}

/// The limit is kept over any ten seconds. In a full run it is also used, and weights hold between
/// tenants that are on different nodes. Returns when the measurement ended.
async fn limit_and_weights_hold(upstream: &Upstream, clients: &mut JoinSet<()>) -> Instant {
    let from = Instant::now() + seconds(4);
    let to = from + if is_full() { seconds(60) } else { seconds(13) };
    until(to).await;
    check_clients(clients);
    let (least, most) = upstream.extremes(from, to);
    let arrivals = upstream.arrivals();
    let mut counts: HashMap<&str, f64> = HashMap::new();
    for (_, model) in arrivals.iter().filter(|(at, _)| from <= *at && *at < to) {
        *counts.entry(model).or_default() += 1.0;
    }
    let all: f64 = counts.values().sum();
    let parts = ["a", "b", "c"].map(|tenant| counts.get(tenant).copied().unwrap_or(0.0) / all);
    eprintln!("of the limit over any 10 s: {least:.3} to {most:.3}; parts of a, b, c: {parts:.3?}");
    assert!(most <= 1.02, "{least:.3} to {most:.3} of the limit");
    if !is_full() {
        return to;
    }
    assert!(least >= 0.96, "{least:.3} to {most:.3} of the limit");
    for (part, expected) in parts.into_iter().zip([0.05, 0.45, 0.5]) {
        assert!((part - expected).abs() <= 0.02, "{parts:?}");
    }
    to
}

/// The whole life of a fleet with `on_loss = "keep"`.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_keeps_its_shares() {
    let (server, folder) = (PostgresServer::start(), Folder::new());
    let upstream = Upstream::start(Duration::ZERO).await;
    let config = config(&server.url(), &upstream, "", &rate_limits());
    let nodes = start_all(&folder, &config).await;
    let (mut clients, on) = (JoinSet::new(), Arc::new(AtomicBool::new(true)));
    for (node, tenant) in nodes.iter().zip(["a", "b", "c"]) {
        node.load(&mut clients, tenant, CLIENTS, &on);
    }
    let start = limit_and_weights_hold(&upstream, &mut clients).await;

    // The server hangs: no request fails, and the sum stays within the limit.
    server.pause();
    let away = if is_full() { seconds(60) } else { seconds(6) };
    sleep(away).await;
    check_clients(&mut clients);
    let part = upstream.part_of_limit(start, start + away);
    eprintln!("while the server hung: {part:.3} of the limit");
    assert!(
        !is_full() || (0.96..=1.02).contains(&part),
        "{part:.3} of the limit without the server"
    );
    server.unpause();
    sleep(seconds(3)).await;

    // A node that leaves gives its share back at once.
    let left = nodes[1].end("-TERM");
    until(left + Duration::from_millis(5500)).await;
    let part = upstream.part_of_limit(
        left + Duration::from_millis(1500),
        left + Duration::from_millis(5500),
    );
    eprintln!("after a node left: {part:.3} of the limit");
    assert!(
        !is_full() || part >= 0.96,
        "{part:.3} of the limit after a node left"
    );

    // The share of a node that died is withheld until an operator removes the node.
    let killed = nodes[2].end("-KILL");
    until(killed + seconds(7)).await;
    let part = upstream.part_of_limit(killed + seconds(5), killed + seconds(7));
    eprintln!("after a node died: {part:.3} of the limit");
    assert!(
        part <= 0.5,
        "{part:.3} of the limit while a share is withheld"
    );
    let mut forget = folder.headworks(&["--config", "n1.toml", "fleet", "forget", "n3"]);
    let output = forget.env("PGPASSWORD", PASSWORD).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let forgotten = Instant::now();
    until(forgotten + seconds(8)).await;
    check_clients(&mut clients);
    let part = upstream.part_of_limit(forgotten + seconds(5), forgotten + seconds(8));
    eprintln!("after it was forgotten: {part:.3} of the limit");
    // One node with 60 clients is left.
    assert!(
        !is_full() || part >= 0.96,
        "{part:.3} of the limit after a node was forgotten"
    );
    let (_, most) = upstream.extremes(start, Instant::now());
    eprintln!("at most {most:.3} of the limit over any 10 s throughout");
    assert!(most <= 1.02, "{most:.3} of the limit");
}

/// With `on_loss = "closed"`, the share of a node that died is back within 5 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_reclaims_shares() {
    let (server, folder) = (PostgresServer::start(), Folder::new());
    let upstream = Upstream::start(Duration::ZERO).await;
    let config = config(
        &server.url(),
        &upstream,
        "on_loss = 'closed'",
        &rate_limits(),
    );
    let nodes = start_all(&folder, &config).await;
    let (mut clients, on) = (JoinSet::new(), Arc::new(AtomicBool::new(true)));
    for (node, tenant) in nodes.iter().zip(["a", "b", "c"]) {
        node.load(&mut clients, tenant, CLIENTS, &on);
    }
    let start = Instant::now() + seconds(3);
    until(start).await;
    let killed = nodes[2].end("-KILL");
    until(killed + seconds(9)).await;
    check_clients(&mut clients);
    let part = upstream.part_of_limit(killed + seconds(5), killed + seconds(9));
    let (_, most) = upstream.extremes(start, Instant::now());
    eprintln!("5 s after a node died: {part:.3} of the limit; at most {most:.3} over any 10 s");
    assert!(
        !is_full() || part >= 0.96,
        "{part:.3} of the limit 5 s after a node died"
    );
    assert!(most <= 1.02, "{most:.3} of the limit");
}

/// A process that was stopped for longer than its share lives starts nothing on it, with a bucket
/// that has filled meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_stopped_starts_nothing_on_its_former_share() {
    let (server, folder) = (PostgresServer::start(), Folder::new());
    let upstream = Upstream::start(Duration::ZERO).await;
    let limits =
        "scheduler_max_rps = 30\nscheduler_rps_burst = 300\nscheduler_max_concurrent = 1000";
    let config = config(&server.url(), &upstream, "on_loss = 'closed'", limits);
    let nodes = start_all(&folder, &config).await;
    let (mut clients, on) = (JoinSet::new(), Arc::new(AtomicBool::new(true)));
    nodes[0].load(&mut clients, "a", 100, &on);
    let arrivals = || upstream.arrivals().len();
    wait_for("its burst is used", || arrivals() > 100).await;
    let stopped = arrivals();
    nodes[0].signal("-STOP");
    // Others take what is left of the fleet; none of them has load.
    sleep(seconds(6)).await;
    // Without the server there is no new share.
    server.pause();
    let before = arrivals();
    nodes[0].signal("-CONT");
    sleep(seconds(2)).await;
    let after = arrivals();
    eprintln!("{stopped} when it was stopped, {before} before it went on, {after} after");
    // A request may have been on its way from the scheduler to the upstream.
    assert!(
        after - before <= 2,
        "{} requests on a former share",
        after - before
    );
    server.unpause();
    wait_for("it has a new share", || arrivals() > after + 20).await;
}

/// Slots move between nodes with the load, and the upstream never sees more than the limit: nor
/// when a node dies, is stopped, or the server hangs.
async fn slots_are_never_exceeded(fleet: &str) {
    let (server, folder) = (PostgresServer::start(), Folder::new());
    let upstream = Upstream::start(Duration::from_millis(30)).await;
    let limits = format!("scheduler_max_rps = 0\nscheduler_max_concurrent = {SLOTS}");
    let config = config(&server.url(), &upstream, fleet, &limits);
    let nodes = start_all(&folder, &config).await;
    let mut clients = JoinSet::new();
    let on: [Arc<AtomicBool>; 3] = std::array::from_fn(|_| Arc::default());
    for ((node, tenant), on) in nodes.iter().zip(["a", "b", "c"]).zip(&on) {
        node.load(&mut clients, tenant, CLIENTS, on);
    }
    let turns = if is_full() { 60 } else { 9 };
    for turn in 0..turns {
        for (index, on) in on.iter().enumerate() {
            // One, two or all nodes are busy.
            on.store(turn % 3 == index || turn % 4 == 3, Ordering::SeqCst);
        }
        sleep(Duration::from_millis(700)).await;
        check_clients(&mut clients);
    }
    let peak = upstream.counts.peak.load(Ordering::SeqCst);
    assert!(
        peak == SLOTS || (peak < SLOTS && !is_full()),
        "{peak} requests at once"
    );
    on.iter().for_each(|on| on.store(true, Ordering::SeqCst));
    // Longer than a share lives: with "closed", another node may allocate meanwhile.
    nodes[0].signal("-STOP");
    sleep(seconds(6)).await;
    nodes[0].signal("-CONT");
    sleep(seconds(2)).await;
    nodes[2].end("-KILL");
    sleep(seconds(6)).await;
    check_clients(&mut clients);
    let peak = upstream.counts.peak.load(Ordering::SeqCst);
    assert!(peak <= SLOTS, "{peak} requests at once");
    let arrivals = upstream.arrivals().len();
    eprintln!("{arrivals} requests, at most {peak} at once");
    assert!(arrivals > if is_full() { 500 } else { 50 }, "{arrivals}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_never_exceeded_where_shares_are_kept() {
    slots_are_never_exceeded("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_never_exceeded_where_shares_are_reclaimed() {
    slots_are_never_exceeded("on_loss = 'closed'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_over_valkey() {
    let (server, folder) = (ValkeyServer::start(), Folder::new());
    let upstream = Upstream::start(Duration::ZERO).await;
    let config = config(&server.url(), &upstream, "", &rate_limits());
    let nodes = start_all(&folder, &config).await;
    let (mut clients, on) = (JoinSet::new(), Arc::new(AtomicBool::new(true)));
    for (node, tenant) in nodes.iter().zip(["a", "b", "c"]) {
        node.load(&mut clients, tenant, CLIENTS, &on);
    }
    limit_and_weights_hold(&upstream, &mut clients).await;
    let mut status = folder.headworks(&["--config", "n1.toml", "fleet", "status"]);
    let output = status.env("VALKEYCLI_AUTH", PASSWORD).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["n1", "n2", "n3", "allocator: n"] {
        assert!(text.contains(name), "{text}");
    }
}

/// The commands, as people see them.
#[test]
fn the_fleet_is_shown_and_errors_say_what_to_do() {
    let folder = Folder::new();
    let fleet = |args: &[&str], password: &str| {
        let mut command = folder.headworks(args);
        support::Ended::from(command.env("PGPASSWORD", password).output().unwrap())
    };
    let none = fleet(&["fleet", "status"], PASSWORD);
    assert!(
        none.code == Some(1) && none.stderr.contains("set `fleet.url`"),
        "{none}"
    );
    let server = PostgresServer::start();
    let set = format!("fleet.url={}", server.url());
    let wrong = fleet(&["--set", &set, "fleet", "status"], "wrong");
    assert!(wrong.stderr.contains("rejects the connection"), "{wrong}");
    let away = "fleet.url=postgres://fleet@127.0.0.1:9/fleet";
    let away = fleet(&["--set", away, "fleet", "status"], PASSWORD);
    assert!(away.stderr.contains("cannot reach"), "{away}");

    let text = format!(
        "[fleet]\nurl = '{}'\nname = 'NAME'\n[gateway]\nopen = true\n",
        server.url()
    );
    let nodes = ["n1", "n2"].map(|name| Node::start(&folder, name, &text));
    let status = |args: &[&str]| fleet(&[&["--set", &set, "fleet"], args].concat(), PASSWORD);
    let deadline = Instant::now() + seconds(60);
    let shown = loop {
        let shown = status(&["status"]);
        if shown.stdout.matches("serving").count() == 2 {
            break shown;
        }
        assert!(Instant::now() < deadline, "{shown}");
    };
    for expected in [
        "n1 ",
        "n2 ",
        "all requests: 25 at once",
        "all requests: 50.0 requests/s",
    ] {
        assert!(shown.stdout.contains(expected), "{expected}: {shown}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&status(&["status", "--json"]).stdout).unwrap();
    assert_eq!(json["nodes"][0]["name"], "n1");
    assert_eq!(json["nodes"][0]["same_config"], true);
    let unknown = status(&["forget", "n9"]);
    assert!(unknown.stderr.contains("no node `n9`"), "{unknown}");
    drop(nodes);
    assert_eq!(status(&["forget", "n2"]).code, Some(0));
    let shown = status(&["status"]);
    assert!(
        !shown.stdout.contains("n2 ") && shown.stdout.contains("no report for"),
        "{shown}"
    );
}
