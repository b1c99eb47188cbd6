//! End-to-end tests of `headworks up`, from start to SIGTERM, with curl.

mod support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use support::Folder;

/// Upper bound for slow machines; normally nothing takes this long.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A running `headworks up`; killed on drop.
struct Up {
    child: Child,
    lines: Receiver<String>,
    /// The line that `start_and_wait_for` waited for.
    first_line: String,
    /// The line about the demo, if there is one.
    demo_line: String,
    address: String,
    token: String,
}

impl Up {
    fn start(folder: &Folder, args: &[&str]) -> Up {
        Up::start_in(folder, &[], args)
    }

    /// Starts it with these environment variables (`NAME=value`).
    fn start_in(folder: &Folder, environment: &[&str], args: &[&str]) -> Up {
        let gateway = ["--gateway-listen", "127.0.0.1:0"];
        let args = [&gateway, args].concat();
        Up::start_and_wait_for(folder, environment, &args, "gateway: http://")
    }

    /// Starts and waits for a line about an application that contains `first_line`.
    fn start_and_wait_for(
        folder: &Folder,
        environment: &[&str],
        args: &[&str],
        first_line: &str,
    ) -> Up {
        let mut command = folder.headworks(&["up"]);
        command.envs(environment.iter().filter_map(|pair| pair.split_once('=')));
        command
            .args(["--tracker-listen", "127.0.0.1:0"])
            .args(["--tracker-udp-listen", "127.0.0.1:0"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let mut up = Up {
            child,
            lines,
            first_line: String::new(),
            demo_line: String::new(),
            address: String::new(),
            token: String::new(),
        };
        up.wait_for("is up");
        up.first_line = up.wait_for(first_line);
        if args.contains(&"--demo") {
            up.demo_line = up.wait_for("demo: ");
        }
        up.address = up.wait_for("admin: ").replace("admin: ", "");
        let token = up.wait_for("token: ");
        up.token = token.split(' ').nth(1).unwrap().to_owned();
        up.wait_for("reloads the configuration");
        up
    }

    /// The next line of stderr that contains `text`.
    fn wait_for(&mut self, text: &str) -> String {
        let (end, mut seen) = (Instant::now() + TIMEOUT, Vec::new());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("never said `{text}`, but:\n{}", seen.join("\n")),
            }
        }
    }

    fn curl(&self, path: &str, args: &[&str]) -> (u16, String) {
        let output = Command::new("curl")
            .args([
                "--silent",
                "--noproxy",
                "*",
                "--max-time",
                "30",
                "--write-out",
                "\n%{http_code}",
            ])
            .args(args)
            .arg(format!("{}{path}", self.address))
            .output()
            .expect("curl is installed");
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    fn with_token(&self, path: &str, args: &[&str]) -> (u16, String) {
        let header = format!("Authorization: Bearer {}", self.token);
        self.curl(path, &[&["--header", &header], args].concat())
    }

    /// The folder that `--demo` names in the startup message.
    fn demo_folder(&self) -> PathBuf {
        let (_, rest) = self.demo_line.split_once("files in ").unwrap();
        PathBuf::from(rest.split(' ').next().unwrap())
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Waits for the end and returns the exit code.
    fn ended(&mut self) -> Option<i32> {
        // Its stderr is closed when it ends.
        let end = Instant::now() + TIMEOUT;
        while self
            .lines
            .recv_timeout(end.saturating_duration_since(Instant::now()))
            .is_ok()
        {}
        assert!(Instant::now() < end, "it did not end");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serves_reloads_and_stops() {
    let folder = Folder::new();
    folder.write("headworks.toml", "[admin]\nlisten = '127.0.0.1:0'\n");
    let mut up = Up::start(&folder, &[]);

    assert_eq!(up.curl("/healthz", &[]), (200, "ok\n".to_owned()));
    for path in ["/metrics", "/admin/panels"] {
        assert_eq!(up.curl(path, &[]).0, 401, "{path}");
        assert_eq!(
            up.curl(path, &["--header", "Authorization: Bearer wrong"])
                .0,
            401,
            "{path}"
        );
        assert_eq!(up.with_token(path, &[]).0, 200, "{path}");
    }
    let panels = up.with_token("/admin/panels", &[]).1;
    assert!(panels.contains(r#""name":"gateway""#), "{panels}");
    assert!(
        up.with_token("/metrics", &[])
            .1
            .contains("# TYPE headworks_admin_requests_total counter\n")
    );

    folder.write(
        "headworks.toml",
        "[admin]\nlisten = '127.0.0.1:0'\n[log]\nlevle = 'debug'\n",
    );
    up.signal("HUP");
    up.wait_for("headworks.toml:4: `log.levle`: unknown key; did you mean `level`?");
    up.wait_for("nothing was changed");
    let (status, body) = up.with_token("/admin/reload", &["--request", "POST"]);
    assert_eq!(status, 422);
    assert!(
        body.contains("headworks.toml:4: `log.levle`: unknown key; did you mean `level`?"),
        "{body}"
    );

    // A configuration that an application rejects is not reported as in effect, and a setting
    // changed at run time stays.
    let body = ["--request", "POST", "--data", r#"{"max_concurrent": 7}"#];
    let (status, changed) = up.with_token("/admin/panels/gateway/act/change", &body);
    assert_eq!(status, 200, "{changed}");
    for wrong in [
        "[gateway]\nscheduler_priority_levels = 3\n",
        "[tracker]\nforwarders_file = 'none.yml'\n",
    ] {
        let text = format!("[admin]\nlisten = '127.0.0.1:0'\n[log]\nlevel = 'debug'\n{wrong}");
        folder.write("headworks.toml", &text);
        let (status, body) = up.with_token("/admin/reload", &["--request", "POST"]);
        assert_eq!(status, 422, "{body}");
        let keeps = [
            "keeps its configuration: ",
            "keeps its previous configuration: ",
        ];
        assert!(keeps.iter().any(|text| body.contains(text)), "{body}");
        let panel = up.with_token("/admin/panels/gateway", &[]).1;
        assert!(panel.contains(r#""now":"7""#), "{panel}");
    }

    folder.write(
        "headworks.toml",
        "[admin]\nlisten = '127.0.0.1:0'\n[log]\nlevel = 'debug'\n",
    );
    up.signal("HUP");
    up.wait_for("configuration reloaded changed=[\"log.level\"]");
    let (status, body) = up.with_token("/admin/reload", &["--request", "POST"]);
    assert_eq!(
        (status, body.as_str()),
        (200, r#"{"changed":[],"needs_restart":[],"warnings":[]}"#)
    );

    up.signal("TERM");
    up.wait_for("stopped");
    assert_eq!(up.ended(), Some(0));
}

#[test]
fn stops_on_interrupt_and_keeps_a_configured_token_to_itself() {
    let folder = Folder::new();
    folder.write("token", "a token from a file\n");
    let args = [
        "--admin-listen",
        "127.0.0.1:0",
        "--admin-token",
        "file:token",
    ];
    let mut up = Up::start(&folder, &args);
    assert_eq!(up.token, "as", "the token line does not show it");
    up.token = "a token from a file".to_owned();
    assert_eq!(up.with_token("/metrics", &[]).0, 200);
    up.signal("INT");
    assert_eq!(up.ended(), Some(0));
}

#[test]
fn a_file_written_after_the_start_is_found_by_a_reload() {
    let folder = Folder::new();
    let mut up = Up::start(&folder, &["--admin-listen", "127.0.0.1:0"]);
    folder.write("headworks.toml", "[log]\nlevel = 'debug'\n");
    up.signal("HUP");
    up.wait_for("configuration reloaded changed=[\"log.level\", \"gateway.open\"]");
    up.signal("TERM");
    assert_eq!(up.ended(), Some(0));
}

#[test]
fn a_bad_file_stops_it_before_it_starts() {
    let folder = Folder::new();
    folder.write("headworks.toml", "[admin]\nlisten = '0.0.0.0:0'\n");
    insta::assert_snapshot!(folder.run(&["up"]));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let anywhere = [
        "--gateway-listen=127.0.0.1:0",
        "--tracker-listen=127.0.0.1:0",
        "--tracker-udp-listen=127.0.0.1:0",
    ];
    let ended = folder.run(&[&["up", "--admin-listen", &address], &anywhere[..]].concat());
    assert_eq!(ended.code, Some(1));
    insta::assert_snapshot!(ended.stderr.replace(&address, "ADDRESS"));
}

#[test]
fn an_application_that_fails_does_not_take_the_others_with_it() {
    let folder = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = [
        "--gateway-listen",
        &address,
        "--admin-listen",
        "127.0.0.1:0",
    ];
    let mut up = Up::start_and_wait_for(&folder, &[], &args, "gateway: did not start: ");
    assert_eq!(up.curl("/healthz", &[]).0, 200);
    let metrics = up.with_token("/metrics", &[]).1;
    assert!(metrics.contains("headworks_tracker_torrents"), "{metrics}");
    up.signal("TERM");
    assert_eq!(up.ended(), Some(0));

    let ended = folder.run(&[&["up", "--strict"], &args[..]].concat());
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("gateway did not start"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains(&address), "{}", ended.stderr);
}

#[test]
fn the_page_and_top_show_what_runs() {
    let folder = Folder::new();
    let mut up = Up::start(&folder, &["--admin-listen", "127.0.0.1:0"]);
    let (status, page) = up.with_token("/", &[]);
    assert_eq!(status, 200);
    assert!(page.contains("/console/app.js"), "{page}");
    let (_, document) = up.with_token("/admin/openapi.json", &[]);
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert!(document["paths"]["/admin/feed"]["get"].is_object());

    let address = format!("{}/?token={}", up.address, up.token);
    let top = folder.run(&["top", "--once", &address]);
    assert_eq!(top.code, Some(0), "{top}");
    for words in ["Gateway", "running", "UPSTREAMS"] {
        assert!(top.stdout.contains(words), "{top}");
    }
    let wrong = folder.run(&["top", "--once", &format!("{}/?token=wrong", up.address)]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("invalid token"), "{wrong}");
    let unknown = folder.run(&["top", "--once", &up.address]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("no token given"), "{unknown}");

    // A client that follows the feed does not delay shutdown.
    let mut feed = Command::new("curl")
        .args([
            "--silent",
            "--no-buffer",
            "--noproxy",
            "*",
            "--max-time",
            "60",
        ])
        .args(["--header", &format!("Authorization: Bearer {}", up.token)])
        .arg(format!("{}/admin/feed", up.address))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut events = BufReader::new(feed.stdout.take().unwrap());
    events.read_line(&mut first).unwrap();
    assert!(first.starts_with("data: {\"time\":"), "{first}");
    up.signal("TERM");
    assert_eq!(up.ended(), Some(0));
    assert!(feed.wait().unwrap().success());
}

#[test]
fn the_token_of_this_run_shows_clients_on_the_tracker_s_page() {
    let folder = Folder::new();
    let free = "127.0.0.1:0";
    let args = ["--admin-listen", free, "--gateway-listen", free];
    let mut up = Up::start_and_wait_for(&folder, &[], &args, "tracker: http://");
    let place = up.first_line.split_whitespace().nth(1).unwrap();
    up.address = place.strip_suffix("/announce").unwrap().to_owned();
    let hash = "%aa".repeat(20);
    let query = format!("?info_hash={hash}&peer_id=-XX0001-abcdefghijkl&port=4000&left=1");
    let (status, _) = up.curl(&format!("/announce{query}"), &[]);
    assert_eq!(status, 200);
    let (_, hidden) = up.curl("/stats", &[]);
    assert!(!hidden.contains("127.0.0.1:4000"), "{hidden}");
    let (_, shown) = up.with_token("/stats", &[]);
    assert!(shown.contains("client 127.0.0.1:4000"), "{shown}");
}

/// Parses one word of a line of `/proc/PID/FILE`.
fn proc(up: &Up, file: &str, line: &str, word: usize) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", up.child.id())).unwrap();
    let found = text.lines().find(|each| each.starts_with(line)).unwrap();
    let word = found.split_whitespace().nth(word).unwrap();
    word.parse().unwrap()
}

#[test]
fn an_idle_instance_uses_little_cpu_and_memory() {
    let folder = Folder::new();
    let up = Up::start(&folder, &["--admin-listen", "127.0.0.1:0"]);
    // User and system time, in hundredths of a second.
    let spent = || proc(&up, "stat", "", 13) + proc(&up, "stat", "", 14);
    // Startup work is over when an interval passes without a tick.
    let end = Instant::now() + TIMEOUT;
    loop {
        let before = spent();
        std::thread::sleep(Duration::from_millis(200));
        if spent() == before {
            break;
        }
        assert!(Instant::now() < end, "it never rests");
    }
    let before = spent();
    std::thread::sleep(Duration::from_secs(5));
    let spent = spent() - before;
    assert!(spent <= 5, "{spent} hundredths of a second in five seconds");
    let kilobytes = proc(&up, "status", "VmRSS:", 1);
    assert!(kilobytes < 60 << 10, "{kilobytes} kB");
}

/// Processor time of a process, user and system, in ticks of a hundredth of a second.
fn processor_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name in parentheses may contain anything; utime and stime are the twelfth and thirteenth
    // field after it.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
    ticks(11) + ticks(12)
}

/// Regression test: all clients of a burst leave while they wait for the rate limit. `up` kept a
/// core busy after that.
#[test]
fn it_is_idle_after_a_burst_of_clients_that_all_left() {
    use std::io::{Read, Write};
    let folder = Folder::new();
    let up = Up::start(&folder, &[]);
    let address = up.first_line.split("http://").nth(1).unwrap();
    let address: String = address
        .chars()
        .take_while(|c| c.is_ascii_digit() || ".:".contains(*c))
        .collect();
    let body =
        r#"{"model":"echo","max_tokens":20000,"messages":[{"role":"user","content":"hello"}]}"#;
    let clients: Vec<std::net::TcpStream> = (0..200)
        .map(|_| {
            let mut client = std::net::TcpStream::connect(&address).unwrap();
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            client.write_all(head.as_bytes()).unwrap();
            client.write_all(body.as_bytes()).unwrap();
            client
        })
        .collect();
    // One client has at least the head of its response, so the burst has arrived and most of it
    // waits.
    let mut first = [0; 1];
    (&clients[0]).read_exact(&mut first).unwrap();
    drop(clients);
    let metrics = || up.with_token("/metrics", &[]).1;
    let idle = |metrics: &str| {
        let mut values = metrics.lines().filter(|line| {
            line.starts_with("headworks_gateway_waiting")
                || line.starts_with("headworks_gateway_running")
        });
        values.all(|line| line.ends_with(" 0"))
    };
    let end = Instant::now() + TIMEOUT;
    while !idle(&metrics()) {
        assert!(Instant::now() < end, "requests are left: {}", metrics());
        std::thread::sleep(Duration::from_millis(100));
    }
    // Less than a hundredth of a core over four seconds. Processor time does not depend on other
    // load on the machine.
    let before = processor_ticks(up.child.id());
    std::thread::sleep(Duration::from_secs(4));
    let used = processor_ticks(up.child.id()) - before;
    assert!(
        used < 4,
        "{used} hundredths of a second in four idle seconds"
    );
}

/// Sums a metric over all series whose labels contain `labels`.
fn metric(text: &str, name: &str, labels: &str) -> f64 {
    let of_name = text.lines().filter(|line| {
        let rest = line.strip_prefix(name).unwrap_or("");
        rest.starts_with('{') || rest.starts_with(' ')
    });
    of_name
        .filter(|line| line.contains(labels))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_demo_shows_all_applications_at_work_and_stops() {
    let folder = Folder::new();
    // Variables of a real configuration have no effect on it.
    let mut up = Up::start_in(
        &folder,
        &[
            "FORWARDERS=real.yml",
            "HEADWORKS_FLEET__URL=postgres://headworks@db.example/fleet",
        ],
        &["--admin-listen", "127.0.0.1:0", "--demo"],
    );
    let files = up.demo_folder();
    let written = std::fs::read_to_string(files.join("headworks.toml")).unwrap();
    assert!(written.contains("[[gateway.key]]"), "{written}");
    let metrics = || up.with_token("/metrics", &[]).1;
    let panel = |name: &str| up.with_token(&format!("/admin/panels/{name}"), &[]).1;

    assert!(panel("demo").contains("synthetic load is running"));
    wait_until("tenants share the gateway", || {
        let text = metrics();
        let granted = |tenant: &str| {
            metric(
                &text,
                "headworks_gateway_requests_total",
                &format!("tenant=\"{tenant}\""),
            )
        };
        ["chat", "research", "batch"]
            .iter()
            .all(|tenant| granted(tenant) > 2.0)
            && metric(&text, "headworks_gateway_waiting", "") > 10.0
            && metric(&text, "headworks_gateway_refused_total", "") > 0.0
    });
    wait_until("peers are stored, and forwarders answer or fail", || {
        let text = metrics();
        metric(&text, "headworks_tracker_peers", "") > 20.0
            && metric(&text, "headworks_tracker_forwards_total", "") > 10.0
            && metric(&text, "headworks_tracker_forwarder_failures_total", "") > 0.0
    });
    wait_until("a migration lists folders", || {
        panel("migrate").contains("synth")
    });

    let (status, body) = up.with_token("/admin/panels/demo/act/stop", &["--request", "POST"]);
    assert_eq!(status, 200, "{body}");
    wait_until("the gateway is idle", || {
        let text = metrics();
        metric(&text, "headworks_gateway_waiting", "") == 0.0
            && metric(&text, "headworks_gateway_running", "") == 0.0
    });
    let (status, _) = up.with_token("/admin/panels/demo/act/stop", &["--request", "POST"]);
    assert_eq!(status, 409, "it does not run any more");
    up.signal("TERM");
    assert_eq!(up.ended(), Some(0));
    assert!(!files.exists(), "its files are removed");
}

#[test]
fn the_console_offers_a_demo_while_nothing_is_configured() {
    let folder = Folder::new();
    let mut up = Up::start(&folder, &["--admin-listen", "127.0.0.1:0"]);
    let (status, body) = up.with_token("/admin/panels/demo/act/start", &["--request", "POST"]);
    assert_eq!(status, 200, "{body}");
    let metrics = || up.with_token("/metrics", &[]).1;
    wait_until("requests and announces arrive", || {
        let text = metrics();
        metric(&text, "headworks_gateway_requests_total", "") > 10.0
            && metric(&text, "headworks_tracker_peers", "") > 10.0
    });
    up.signal("TERM");
    assert_eq!(up.ended(), Some(0));

    folder.write("headworks.toml", "[admin]\nlisten = '127.0.0.1:0'\n");
    let up = Up::start(&folder, &[]);
    assert_eq!(up.with_token("/admin/panels/demo", &[]).0, 404);
    let folder = Folder::new();
    let forwarders = "HEADWORKS_TRACKER__FORWARDER_LISTS=[\"list.txt\"]";
    folder.write("list.txt", "udp://127.0.0.1:1\n");
    let up = Up::start_in(&folder, &[forwarders], &["--admin-listen", "127.0.0.1:0"]);
    assert_eq!(
        up.with_token("/admin/panels/demo", &[]).0,
        404,
        "real forwarders"
    );
    let refused = folder.run(&["up", "--demo", "--config", "headworks.toml"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("leave out `--config`"),
        "{}",
        refused.stderr
    );
}

/// The service manager of systemd, as far as `NOTIFY_SOCKET` goes.
struct Manager(std::os::unix::net::UnixDatagram);

impl Manager {
    fn new(folder: &Folder) -> Manager {
        let socket = std::os::unix::net::UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Manager(socket)
    }

    /// The next message.
    fn receive(&self) -> String {
        let mut buffer = [0; 1024];
        let length = self.0.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }
}

#[test]
fn the_service_manager_is_notified_of_start_reload_and_end() {
    let folder = Folder::new();
    let manager = Manager::new(&folder);
    let socket = folder.path().join("notify");
    let socket = format!("NOTIFY_SOCKET={}", socket.display());
    let mut up = Up::start_in(&folder, &[&socket], &["--admin-listen", "127.0.0.1:0"]);
    let ready = manager.receive();
    assert!(ready.contains("READY=1\n"), "{ready}");
    assert!(ready.contains("STATUS=3 applications run"), "{ready}");

    // A reload that fails ends as well: the program serves as before.
    for text in ["[log]\nlevel = 'debug'\n", "[log]\nlevle = 'debug'\n"] {
        folder.write("headworks.toml", text);
        up.signal("HUP");
        let reloading = manager.receive();
        let (_, time) = reloading
            .split_once("RELOADING=1\nMONOTONIC_USEC=")
            .expect("a reload");
        assert!(time.trim().parse::<u64>().unwrap() > 0, "{reloading}");
        assert_eq!(manager.receive().trim(), "READY=1");
    }
    up.signal("TERM");
    assert_eq!(manager.receive().trim(), "STOPPING=1");
    assert_eq!(up.ended(), Some(0));
}
