//! End-to-end tests of `headworks gateway`: keys, access, usage and the request log.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use support::Folder;

/// A running gateway; killed on drop.
struct Running {
    child: Child,
    address: String,
    admin: String,
}

/// Token of the admin listener.
const TOKEN: &str = "a-token-for-this-test-alone";

impl Running {
    fn start(folder: &Folder, args: &[&str]) -> Running {
        Running::start_on("127.0.0.1:0", folder, args)
    }

    fn start_on(listen: &str, folder: &Folder, args: &[&str]) -> Running {
        let mut command = folder.headworks(&["gateway", "--listen", listen]);
        command.args(["--admin-listen", "127.0.0.1:0", "--admin-token", TOKEN]);
        command.args(args);
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut after = |prefix: &str| {
            let line = lines.find_map(|line| Some(line.ok()?.strip_prefix(prefix)?.to_owned()));
            line.unwrap().split(' ').next().unwrap().to_owned()
        };
        let (address, admin) = (after("gateway: "), after("admin: "));
        // Drained, so that a full pipe does not block the gateway.
        std::thread::spawn(move || lines.for_each(drop));
        Running {
            child,
            address,
            admin,
        }
    }

    /// Reloads the configuration and returns the response.
    fn reload(&self) -> String {
        let output = Command::new("curl")
            .args(["--silent", "--noproxy", "*", "--max-time", "30"])
            .args(["--request", "POST", "--header"])
            .arg(format!("Authorization: Bearer {TOKEN}"))
            .arg(format!("{}/admin/reload", self.admin))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn chat(&self, key: &str) -> String {
        let body = r#"{"model":"echo","messages":[{"role":"user","content":"one two"}]}"#;
        let output = Command::new("curl")
            .args([
                "--silent",
                "--noproxy",
                "*",
                "--max-time",
                "30",
                "--data",
                body,
            ])
            .args(["--header", &format!("Authorization: Bearer {key}")])
            .arg(format!("{}/chat/completions", self.address))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn stop(mut self) {
        let id = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(told.success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn with_nothing_configured_the_echo_answers() {
    let folder = Folder::new();
    let running = Running::start(&folder, &[]);
    assert!(running.chat("anything").contains(r#""content":"one two""#));
    running.stop();
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "it leaves nothing behind"
    );
}

/// Reads requests and answers each when it is complete.
fn upstream() -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            stream.get_mut().write_all(answer).unwrap();
        }
    });
    address
}

#[test]
#[cfg(target_os = "linux")]
fn a_body_of_31_megabytes_takes_at_most_twice_its_size() {
    const SIZE: usize = 31 << 20;
    let folder = Folder::new();
    let upstream = format!("[{{name=\"one\",url=\"http://{}\"}}]", upstream());
    let items = r#"{"content":"word"},"#.repeat(SIZE / 19);
    let large = format!(r#"{{"model":"m","messages":[{items}{{}}]}}"#);
    for framing in ["X-Any: 1", "Transfer-Encoding: chunked"] {
        // A gateway for each, because an allocator keeps memory.
        let unlimited = [
            "--scheduler-max-tokens-per-sec",
            "0",
            "--upstream",
            &upstream,
        ];
        let running = Running::start(&folder, &unlimited);
        let ask = |body: &str| {
            folder.write("body.json", body);
            let output = Command::new("curl")
                .args(["--silent", "--noproxy", "*", "--max-time", "300"])
                .args(["--write-out", "%{http_code}", "--header", framing])
                .args(["--header", "Expect:", "--data-binary", "@body.json"])
                .arg(format!("{}/chat/completions", running.address))
                .current_dir(folder.path())
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(ask(r#"{"model":"m","messages":[]}"#), "{}200");
        let before = peak(&running);
        assert_eq!(ask(&large), "{}200");
        let taken = peak(&running) - before;
        assert!(taken <= 2 * SIZE + (4 << 20), "{framing}: {taken} bytes");
    }
}

/// Largest resident size of a gateway so far, in bytes.
#[cfg(target_os = "linux")]
fn peak(running: &Running) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn keys_are_made_used_listed_and_revoked() {
    let folder = Folder::new();
    let made = folder.run(&[
        "gateway", "key", "add", "--tenant", "search", "--class", "3", "--id", "first",
    ]);
    assert_eq!(made.code, Some(0), "{made}");
    let key = made.stdout.trim();
    let file = std::fs::read_to_string(folder.path().join("headworks-keys.toml")).unwrap();
    assert!(!file.contains(key) && !made.stderr.contains(key), "{made}");
    let running = Running::start(&folder, &[]);
    assert!(running.chat(key).contains("one two"));
    assert!(running.chat("wrong").contains("invalid_api_key"));
    running.stop();
    let listed = folder.run(&["gateway", "key", "list"]);
    assert!(
        listed.stdout.starts_with("first ") && listed.stdout.contains("class P3"),
        "{listed}"
    );
    let twice = folder.run(&[
        "gateway", "key", "add", "--tenant", "search", "--id", "first",
    ]);
    assert!(
        twice.code == Some(1) && twice.stderr.contains("`first` exists"),
        "{twice}"
    );
    assert_eq!(
        folder.run(&["gateway", "key", "revoke", "first"]).code,
        Some(0)
    );
    let unknown = folder.run(&["gateway", "key", "revoke", "first"]);
    assert!(unknown.stderr.contains("unknown key `first`"), "{unknown}");
    let wrong = folder.run(&["gateway", "key", "add", "--tenant", "t", "--class", "10"]);
    assert!(
        wrong.code == Some(2) && wrong.stderr.contains("0 to 9"),
        "{wrong}"
    );
}

#[test]
fn revoking_the_last_key_admits_nobody() {
    let folder = Folder::new();
    let running = Running::start(&folder, &[]);
    assert!(running.chat("anything").contains("one two"), "it is open");
    let add = ["gateway", "key", "add", "--tenant", "t", "--id", "only"];
    let key = folder.run(&add).stdout;
    assert!(!running.reload().contains("error"));
    assert!(running.chat(key.trim()).contains("one two"));
    assert!(running.chat("wrong").contains("invalid_api_key"));

    let file = folder.path().join("headworks-keys.toml");
    let aside = folder.path().join("aside.toml");
    std::fs::rename(&file, &aside).unwrap();
    let refused = running.reload();
    assert!(refused.contains("does not exist"), "{refused}");
    assert!(running.chat(key.trim()).contains("one two"));
    std::fs::rename(&aside, &file).unwrap();

    let revoked = folder.run(&["gateway", "key", "revoke", "only"]);
    assert_eq!(revoked.code, Some(0), "{revoked}");
    assert!(!running.reload().contains("error"));
    assert!(running.chat(key.trim()).contains("invalid_api_key"));
    running.stop();
    let running = Running::start(&folder, &[]);
    assert!(running.chat("anything").contains("invalid_api_key"));
    running.stop();
}

#[test]
fn keys_count_in_every_working_directory() {
    for (text, missing) in [
        ("[gateway]\nkeys_file = 'keys.toml'\n", "does not exist"),
        ("[gateway]\n", ""),
    ] {
        let (folder, elsewhere) = (Folder::new(), Folder::new());
        folder.write("headworks.toml", text);
        let config = folder.path().join("headworks.toml");
        let config = ["--config", config.to_str().unwrap()];
        if !missing.is_empty() {
            let refused = elsewhere.run(&[&["gateway"][..], &config].concat());
            assert_eq!(refused.code, Some(1), "{refused}");
            assert!(refused.stderr.contains(missing), "{refused}");
        }
        let add = ["gateway", "key", "add", "--tenant", "t"];
        let made = elsewhere.run(&[&add[..], &config].concat());
        assert_eq!(made.code, Some(0), "{made}");
        let running = Running::start(&elsewhere, &config);
        assert!(running.chat(made.stdout.trim()).contains("one two"));
        assert!(running.chat("wrong").contains("invalid_api_key"), "{text}");
        running.stop();
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}

#[test]
fn an_open_gateway_beyond_loopback_is_refused() {
    let folder = Folder::new();
    let text = "[gateway]\nlisten = '0.0.0.0:0'\nopen = true\n";
    folder.write("open.toml", text);
    for args in [
        &["config", "check", "open.toml"][..],
        &["--config", "open.toml", "up"],
    ] {
        let refused = folder.run(args);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(
            refused.stderr.contains("open.toml:3: `gateway.open`"),
            "{refused}"
        );
    }
    // Without a configuration file it is open on loopback only.
    let beyond = Running::start_on("0.0.0.0:0", &folder, &[]);
    assert!(beyond.chat("anything").contains("invalid_api_key"));
    beyond.stop();
}

#[test]
fn usage_is_exported_and_arrivals_replay_in_the_simulator() {
    let folder = Folder::new();
    let files = ["--usage-file", "usage.db", "--request-log", "requests.csv"];
    let running = Running::start(&folder, &files);
    for _ in 0..5 {
        assert!(running.chat("anything").contains("one two"));
    }
    running.stop();
    let usage = folder.run(&["gateway", "usage", "--file", "usage.db"]);
    assert!(
        usage.stdout.contains(",default,echo,5,0,15,10\n"),
        "{usage}"
    );
    let json = folder.run(&["gateway", "usage", "--file", "usage.db", "--format", "json"]);
    assert!(json.stdout.contains(r#""output_tokens": 10"#), "{json}");
    let replayed = folder.run(&["sim", "--trace", "requests.csv", "--json"]);
    assert_eq!(replayed.code, Some(0), "{replayed}");
    let log = std::fs::read_to_string(folder.path().join("requests.csv")).unwrap();
    assert_eq!(
        log.lines()
            .filter(|line| line.contains(",5,\"default\","))
            .count(),
        5,
        "{log}"
    );
    assert!(!log.contains("one two"), "no prompt is ever written");
}
