//! Hostile tenants beside a well-behaved one, whose requests are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::{CHAT, Reaction, Running, Upstream, chat, config, raw_request, until};

#[tokio::test]
async fn a_query_that_fits_into_no_url_is_the_clients_fault() {
    let upstream = obedient(&Arc::default()).await;
    let path = "p".repeat(100);
    let toml = format!(
        "[[gateway.upstream]]\nname = 'one'\nurl = 'http://{}/{path}'\nsuspend_for = '1h'\n",
        upstream.address
    );
    let running = Running::start(&toml);
    let client = running.client();
    for number in 0..10 {
        // About as long as a request line may be.
        let query = number.to_string().repeat(65_000);
        let answer = client
            .post(&format!("{CHAT}?{query}"), &[], &chat(5, false))
            .await;
        assert_eq!(answer.status, 414);
        assert_eq!(answer.header("x-headworks-reason"), "query_too_long");
    }
    assert_eq!(client.post(CHAT, &[], &chat(5, false)).await.status, 200);
}

#[tokio::test]
async fn clients_that_ask_for_the_models_at_once_cause_one_call() {
    let list =
        "HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\n{\"data\":[{\"id\":\"org/model\"}]}    ";
    let upstream = Upstream::start(move |_| Reaction::Raw(list)).await;
    let running = Running::before(&upstream, "");
    let asked = (0..50).map(|_| {
        let client = running.client();
        async move { client.get("/v1/models", &[]).await.json()["data"][0]["id"].clone() }
    });
    for model in futures_util::future::join_all(asked).await {
        assert_eq!(model, "org/model");
    }
    assert_eq!(upstream.count(), 1);
    let one = running.client().get("/v1/models/org%2Fmodel", &[]).await;
    assert_eq!(one.json()["id"], "org/model", "as SDKs write the name");
}

#[tokio::test]
async fn a_reload_that_moves_an_upstream_asks_for_its_models_again() {
    let list =
        "HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\n{\"data\":[{\"id\":\"org/model\"}]}    ";
    let [old, new] = [
        Upstream::start(move |_| Reaction::Raw(list)).await,
        Upstream::start(move |_| Reaction::Raw(list)).await,
    ];
    let running = Running::before(&old, "");
    let models = async || running.client().get("/v1/models", &[]).await.status;
    let expect = [(old.toml("one", ""), 1, 0), (new.toml("one", ""), 1, 1)];
    let other_key = (new.toml("one", "api_key = 'other'"), 1, 2);
    for (toml, at_old, at_new) in expect.into_iter().chain([other_key]) {
        running.gateway.apply(config(&toml)).unwrap();
        for _ in 0..2 {
            assert_eq!(models().await, 200);
            assert_eq!((old.count(), new.count()), (at_old, at_new), "{toml}");
        }
    }
}

/// Requests without an action: how many are at the upstream, and permits to answer them. Without
/// one, they are answered at once.
#[derive(Default)]
struct Held {
    arrived: AtomicUsize,
    permits: Option<Arc<Semaphore>>,
}

/// Does what a header asks for.
async fn obedient(held: &Arc<Held>) -> Upstream {
    let held = held.clone();
    Upstream::start(move |call| match (call.header("x-do"), &held.permits) {
        (Some("429"), _) => Reaction::Status(429, "\r\nretry-after: 3600"),
        (Some("403"), _) => Reaction::Status(403, ""),
        (Some("500"), _) => Reaction::Status(500, ""),
        (Some("503"), _) => Reaction::Status(503, "\r\nretry-after: 3600"),
        (Some("close"), _) => Reaction::Close,
        (Some("garbage"), _) => Reaction::Garbage,
        (Some("break"), _) => Reaction::BreakOff { in_event: true },
        (Some("stream"), _) => Reaction::Stream {
            events: 1000,
            gap: Duration::from_millis(1),
        },
        (None, Some(permits)) => {
            held.arrived.fetch_add(1, Ordering::SeqCst);
            Reaction::When(permits.clone(), 5)
        }
        _ => Reaction::Answer {
            after: Duration::ZERO,
            tokens: 5,
        },
    })
    .await
}

/// Sends bytes and leaves, possibly after the beginning of the response, which is returned.
async fn send_and_leave(running: &Running, bytes: &[u8], wait_for_response: bool) -> String {
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut beginning = [0; 64];
    let read = match wait_for_response {
        true => stream.read(&mut beginning).await.unwrap_or(0),
        false => 0,
    };
    String::from_utf8_lossy(&beginning[..read]).into_owned()
}

/// A body of 31 MB.
fn giant(model: &str) -> String {
    let text = "word ".repeat((31 << 20) / 5);
    format!(r#"{{"model":"{model}","messages":[{{"content":"{text}"}}]}}"#)
}

/// The body of a request in three chunks, of which the last ones may be missing.
fn in_chunks(request: &str, sent: usize) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let lines = head
        .lines()
        .filter(|line| !line.starts_with("content-length"));
    let mut request =
        lines.collect::<Vec<_>>().join("\r\n") + "\r\ntransfer-encoding: chunked\r\n\r\n";
    let (one, two) = body.split_at(body.len() / 2);
    for part in [one, two, ""].iter().take(sent) {
        request += &format!("{:x}\r\n{part}\r\n", part.len());
    }
    request
}

/// Actions of which every request reaches the upstream.
const ACTIONS: [&str; 8] = [
    "429", "403", "500", "503", "close", "garbage", "break", "stream",
];
const TENANTS: [&str; 5] = ["h0", "h1", "h2", "h3", "h4"];
/// Tasks that attack at the same time, and the turns of each.
const ATTACKERS: usize = 24;
const TURNS: usize = 4;
/// Connections that the hostile tenants open in all.
const CONNECTIONS: usize = 10_000;

/// One turn of an attacker. A suspension holds for one tenant and model: only with a name of its
/// own does each request reach the upstream. One tenant attacks the model of the others.
async fn attack(running: &Running, attacker: usize, turn: usize) {
    let tenant = TENANTS[attacker % TENANTS.len()];
    let request = |action: &str, stream: bool| {
        let model = match tenant {
            "h4" => "m".to_owned(),
            _ => format!("m-{action}-{attacker}-{turn}"),
        };
        let body = chat(10, stream).replace("hello", &format!("{action} {attacker} {turn}"));
        let body = body.replace("\"m\"", &format!("\"{model}\""));
        let headers = format!("host: gateway\r\nx-api-key: sk-{tenant}\r\nx-do: {action}");
        raw_request(CHAT, &body).replace("host: gateway", &headers)
    };
    for action in ACTIONS {
        // It leaves at the beginning of each response, which may be a stream.
        send_and_leave(running, request(action, true).as_bytes(), true).await;
    }
    // A body in chunks, whole and then broken off.
    let chunked = request("chunked", false);
    send_and_leave(running, in_chunks(&chunked, 3).as_bytes(), true).await;
    send_and_leave(running, in_chunks(&chunked, 2).as_bytes(), false).await;
    // Leaves before the response, and in the middle of the request.
    let plain = request("answer", false);
    send_and_leave(running, plain.as_bytes(), false).await;
    send_and_leave(running, &plain.as_bytes()[..plain.len() - 7], false).await;
    // Announces other lengths than it sends.
    let longer = plain.replace("content-length: ", "content-length: 9");
    send_and_leave(running, longer.as_bytes(), false).await;
    let twice = plain.replace("host:", "content-length: 3\r\nhost:");
    let length = |request: String| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let own = plain.split_once("\r\n\r\n").unwrap().1.len();
        let (own, length) = (format!(": {own}"), format!(": {}", body.len()));
        format!("{}\r\n\r\n{body}", head.replace(&own, &length))
    };
    let upper = length(plain.replacen('{', r#"{"MODEL":"m","#, 1));
    let again = length(plain.replacen('{', r#"{"model":"m","#, 1));
    for refused in [twice, upper, again] {
        let answer = send_and_leave(running, refused.as_bytes(), true).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
}

/// Sends bodies of 31 MB and one with a million values, which reach the upstream, and one that is
/// refused at its end.
async fn send_giants(running: &Running) {
    let client = running.client();
    let post = async |body: &str| {
        let keyed = [("x-api-key", "sk-giant"), ("x-do", "giant")];
        client.post(CHAT, &keyed, body).await.status
    };
    for turn in 0..TURNS {
        assert_eq!(post(&giant(&format!("giant-{turn}"))).await, 200);
    }
    let values = "[],".repeat(1_000_000);
    let values = format!(r#"{{"model":"values","stream":[{values}[]]}}"#);
    assert_eq!(post(&values).await, 200);
    let twice = giant("m").replace("]}", r#"],"MODEL":"m"}"#);
    assert_eq!(post(&twice).await, 400);
}

/// Opens connections from several addresses that send nothing, a part of a request, or a request
/// with a valid key.
async fn open_connections(running: &Running, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::with_capacity(count);
    for number in 0..count {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let from = std::net::Ipv4Addr::new(127, 0, 1, (number % 8) as u8 + 1);
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(running.gateway.address()).await.unwrap();
        let sent = match number % 3 {
            0 => "",
            1 => "POST /v1/chat/completions HTTP/1.1\r\nho",
            _ => "GET /v1/quota HTTP/1.1\r\nhost: gateway\r\nx-api-key: sk-h0\r\n\r\n",
        };
        let _ = stream.write_all(sent.as_bytes()).await;
        open.push(stream);
    }
    open
}

/// Clients of the neighbour, and well-behaved clients of each hostile tenant.
const NEIGHBOURS: usize = 12;
const OTHERS: usize = 6;
const SLOTS: usize = 10;

/// The part of the neighbour.
struct Share {
    /// Good requests of all that were served.
    served: usize,
    /// Its part of the requests that were granted, attacks included.
    of_grants: f64,
    /// The p99 of its waits, in good requests that were served in the meantime.
    wait: usize,
}

/// Lets all tenants send good requests, of which the upstream answers one at a time: `least`, and
/// as many as it takes until the attack is over.
async fn share(least: usize, attacked: bool) -> Share {
    let permits = Arc::new(Semaphore::new(0));
    let held = Arc::new(Held {
        arrived: AtomicUsize::new(0),
        permits: Some(permits.clone()),
    });
    let upstream = obedient(&held).await;
    let mut toml = String::from(
        "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\nscheduler_queue_timeout = '10m'\n\
         [[gateway.key]]\nprefix = 'sk-giant'\ntenant = 'giant'\n\
         [[gateway.key]]\nprefix = 'sk-victim'\ntenant = 'victim'\n",
    );
    for tenant in TENANTS {
        toml += &format!("[[gateway.key]]\nprefix = 'sk-{tenant}'\ntenant = '{tenant}'\n");
    }
    // A suspension is longer than a request may wait: attackers of a suspended model are rejected,
    // they do not wait for its end.
    let settings = format!("max_concurrent = {SLOTS}\nfault_threshold = 2\nsuspend_for = '1h'");
    toml += &upstream.toml("one", &settings);
    let running = Arc::new(Running::start(&toml));
    let (served, stop) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (asking, waits) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let mut clients = JoinSet::new();
    let crowd = TENANTS[..4].repeat(OTHERS).into_iter();
    for tenant in crowd.chain(std::iter::repeat_n("victim", NEIGHBOURS)) {
        let (client, served, stop) = (running.client(), served.clone(), stop.clone());
        let (asking, waits) = (asking.clone(), waits.clone());
        clients.spawn(async move {
            let key = format!("sk-{tenant}");
            while !stop.load(Ordering::SeqCst) {
                asking.fetch_add(1, Ordering::SeqCst);
                let before = served.load(Ordering::SeqCst);
                let answer = client
                    .post(CHAT, &[("x-api-key", &key)], &chat(10, false))
                    .await;
                assert_eq!(answer.status, 200, "{tenant}: {}", answer.body);
                asking.fetch_sub(1, Ordering::SeqCst);
                let after = served.fetch_add(1, Ordering::SeqCst);
                if tenant == "victim" {
                    waits.lock().push(after - before);
                }
            }
        });
    }
    let mut attack_tasks = JoinSet::new();
    if attacked {
        for attacker in 0..ATTACKERS {
            let running = running.clone();
            attack_tasks.spawn(async move {
                for turn in 0..TURNS {
                    attack(&running, attacker, turn).await;
                }
            });
        }
        let attacked = running.clone();
        attack_tasks.spawn(async move { send_giants(&attacked).await });
        let attacked = running.clone();
        attack_tasks.spawn(async move {
            // In turns, because this process holds both ends of each.
            for _ in 0..TURNS * 4 {
                drop(open_connections(&attacked, CONNECTIONS / TURNS / 4).await);
            }
        });
    }
    let good = NEIGHBOURS + 4 * OTHERS;
    let mut answered = 0;
    while answered < least || !attack_tasks.is_empty() {
        while let Some(ended) = attack_tasks.try_join_next() {
            ended.unwrap();
        }
        // Every client has asked, and the request of one is at the upstream.
        until("all ask", || {
            let (at_work, waiting) = running.gateway.running_and_waiting();
            asking.load(Ordering::SeqCst) == good
                && (at_work + waiting) as usize >= good
                && held.arrived.load(Ordering::SeqCst) > answered
        })
        .await;
        permits.add_permits(1);
        answered += 1;
        until("one is served", || {
            served.load(Ordering::SeqCst) == answered
        })
        .await;
    }
    let mut waits = std::mem::take(&mut *waits.lock());
    // Those that still have a slot are not counted as served either.
    let granted = upstream.count() - SLOTS;
    stop.store(true, Ordering::SeqCst);
    permits.add_permits(Semaphore::MAX_PERMITS / 2);
    clients.join_all().await;
    running.is_idle().await;
    let calls = upstream.calls();
    let arrived = |action| {
        calls
            .iter()
            .filter(|call| call.header("x-do") == Some(action))
            .count()
    };
    if attacked {
        // The last tenant is suspended for the model that it attacks.
        let own_models = (0..ATTACKERS).filter(|attacker| attacker % TENANTS.len() != 4);
        let least = own_models.count() * TURNS;
        for action in ACTIONS.into_iter().chain(["chunked"]) {
            assert!(arrived(action) >= least, "{action}: {}", arrived(action));
        }
        assert_eq!(arrived("giant"), TURNS + 1);
    }
    waits.sort_unstable();
    Share {
        served: answered,
        of_grants: waits.len() as f64 / granted as f64,
        wait: waits[waits.len() * 99 / 100],
    }
}

/// With all slots taken, the neighbour gets what it gets beside tenants that behave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenants_cost_their_neighbour_nothing() {
    let beside = share(300, true).await;
    let alone = share(beside.served, false).await;
    let (part, of) = (beside.of_grants, alone.of_grants);
    assert!(
        part >= 0.95 * of,
        "{part:.3} of all grants, {of:.3} without the attack"
    );
    let (wait, usual) = (beside.wait, alone.wait);
    assert!(
        wait as f64 <= 1.10 * usual as f64,
        "p99 of {wait} requests, {usual} without the attack"
    );
}
