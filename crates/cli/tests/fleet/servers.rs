//! PostgreSQL crashes, a standby is promoted, and a key is revoked: at three processes.

use super::*;

/// Load on rates and slots together, while something happens to the server.
struct Loaded {
    upstream: Upstream,
    clients: JoinSet<()>,
    start: Instant,
    _nodes: [Node; 3],
}

const BOTH: &str = "scheduler_max_rps = 200\nscheduler_rps_burst = 10\n\
                    scheduler_max_concurrent = 12";

async fn loaded(folder: &Folder, url: &str, fleet: &str) -> Loaded {
    let upstream = Upstream::start(Duration::from_millis(30)).await;
    let config = config(url, &upstream, fleet, BOTH);
    let nodes = start_all(folder, &config).await;
    let (mut clients, on) = (JoinSet::new(), Arc::new(AtomicBool::new(true)));
    for (node, tenant) in nodes.iter().zip(["a", "b", "c"]) {
        node.load(&mut clients, tenant, 20, &on);
    }
    let begun = upstream.arrivals().len();
    wait_for("it works", || upstream.arrivals().len() > begun + 100).await;
    Loaded {
        upstream,
        clients,
        start: Instant::now(),
        _nodes: nodes,
    }
}

impl Loaded {
    /// Waits until requests arrive from `nodes` nodes. Without a server a node keeps what it has,
    /// which may be nothing, if its demand had just begun.
    async fn works_on(&self, nodes: usize, what: &str) {
        let counts = || {
            let arrivals = self.upstream.arrivals();
            ["a", "b", "c"].map(|tenant| arrivals.iter().filter(|(_, of)| of == tenant).count())
        };
        let before = counts();
        let more = || {
            let counts = before.iter().zip(counts());
            let working = counts.filter(|(before, now)| *now > **before + 10);
            working.count() >= nodes
        };
        wait_for(what, more).await;
    }

    fn check(&mut self) {
        check_clients(&mut self.clients);
        let (_, most) = self.upstream.extremes(self.start, Instant::now());
        let peak = self.upstream.counts.peak.load(Ordering::SeqCst);
        eprintln!("at most {most:.3} of the rate over any 10 s, {peak} requests at once");
        assert!(most <= 1.02, "{most:.3} of the limit");
        assert!(peak <= 12, "{peak} requests at once");
    }
}

/// A crash empties the unlogged tables: reports, allocations and the lease.
#[tokio::test(flavor = "multi_thread")]
async fn the_limits_hold_while_postgres_crashes_and_restarts() {
    let (mut server, folder) = (PostgresServer::start(), Folder::new());
    let mut loaded = loaded(&folder, &server.url(), "").await;
    let crashes = if is_full() { 5 } else { 2 };
    for _ in 0..crashes {
        server.crash();
        loaded.works_on(1, "it works without the server").await;
        server.start_again();
        sleep(seconds(6)).await;
        loaded.works_on(3, "it works with the server").await;
    }
    until(loaded.start + seconds(12)).await;
    loaded.check();
}

/// The standby has everything but the unlogged tables. The URL names both servers.
#[tokio::test(flavor = "multi_thread")]
async fn the_limits_hold_while_a_standby_is_promoted() {
    let (mut primary, folder) = (PostgresServer::start(), Folder::new());
    let standby = primary.start_standby();
    // Only now: the standby has a copy of the configuration, and no standby of its own.
    primary.configure("synchronous_standby_names = '*'");
    primary.restart();
    let both = format!(
        "postgres://fleet@127.0.0.1:{},127.0.0.1:{}/fleet",
        primary.port(),
        standby.port()
    );
    let mut loaded = loaded(&folder, &both, "").await;
    primary.crash();
    loaded.works_on(1, "it works without a server").await;
    standby.promote();
    let config = folder.path().join("n1.toml");
    let connected = async || {
        let mut status = folder.headworks(&[
            "--config",
            &config.to_string_lossy(),
            "fleet",
            "status",
            "--json",
        ]);
        let output = status.env("PGPASSWORD", PASSWORD).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.matches("\"name\"").count() >= 3 && text.contains("\"is_allocator\": true")
    };
    let deadline = Instant::now() + seconds(120);
    while !connected().await {
        assert!(Instant::now() < deadline, "never connected to the standby");
        sleep(Duration::from_millis(200)).await;
    }
    sleep(seconds(6)).await;
    loaded.works_on(3, "it works with the standby").await;
    until(loaded.start + seconds(12)).await;
    loaded.check();
}

/// Asks every node with a key until it answers 401. Returns how long that took.
async fn refused(node: &Node, key: &str) -> Duration {
    let body = r#"{"model":"a","max_tokens":1,"messages":[{"role":"user","content":"a"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (from, mut stream) = (Instant::now(), None);
    loop {
        let (first, _) = ask(&mut stream, node.address, &request)
            .await
            .expect("an answer");
        if first.contains(" 401 ") {
            return from.elapsed();
        }
        assert!(first.contains(" 200 "), "{first}");
        assert!(from.elapsed() < seconds(300), "never refused");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_at_all_processes() {
    let (server, folder) = (PostgresServer::start(), Folder::new());
    let upstream = Upstream::start(Duration::ZERO).await;
    let config = config(&server.url(), &upstream, "", &rate_limits());
    let nodes = start_all(&folder, &config).await;
    let command = |args: &[&str]| {
        let args = [&["--config", "n1.toml", "gateway", "key"], args].concat();
        let output = folder.headworks(&args).env("PGPASSWORD", PASSWORD).output();
        support::Ended::from(output.unwrap())
    };
    let made = command(&["add", "--tenant", "t", "--id", "k"]);
    let key = made.stdout.trim().to_owned();
    assert!(made.code == Some(0) && key.starts_with("hw-"), "{made}");
    // It works everywhere first.
    for node in &nodes {
        let request =
            format!("GET /v1/models HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n\r\n");
        let deadline = Instant::now() + seconds(300);
        while !ask(&mut None, node.address, &request)
            .await
            .unwrap()
            .0
            .contains(" 200 ")
        {
            assert!(Instant::now() < deadline, "it never works");
        }
    }
    let revoked = command(&["revoke", "k"]);
    assert_eq!(revoked.code, Some(0), "{revoked}");
    let [one, two, three] = &nodes;
    let took = tokio::join!(refused(one, &key), refused(two, &key), refused(three, &key));
    let took = [took.0, took.1, took.2];
    eprintln!("refused after {took:?}");
    assert!(
        !is_full() || took.iter().all(|took| *took <= seconds(2)),
        "{took:?}"
    );
}
