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
        let command = folder.headworks(&["gateway", "--listen", listen]);
        Running::spawn(command, args)
    }

    fn spawn(mut command: Command, args: &[&str]) -> Running {
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

#[test]
fn the_example_command_has_a_key_where_one_is_needed() {
    let first_suggestion = |config: &str| {
        let folder = Folder::new();
        folder.write("headworks.toml", config);
        let mut command = folder.headworks(&["gateway", "--listen", "127.0.0.1:0"]);
        command.args(["--admin-listen", "127.0.0.1:0", "--admin-token", TOKEN]);
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let suggestion = lines.find_map(|line| {
            let line = line.ok()?;
            line.contains("/v1/models").then(|| line.trim().to_owned())
        });
        let _ = child.kill();
        let _ = child.wait();
        suggestion.unwrap()
    };
    let key = "[[gateway.key]]\nprefix = 'sk-test'\ntenant = 'a'\n";
    let with_key = first_suggestion(key);
    assert!(
        with_key.starts_with("curl -H 'Authorization: Bearer YOUR_KEY' http://"),
        "{with_key}"
    );
    let open = first_suggestion("[gateway]\nopen = true\n");
    assert!(open.starts_with("curl http://"), "{open}");
}

/// Waits until `chat` with this key contains `word`, without a reload.
fn becomes(running: &Running, key: &str, word: &str) -> std::time::Duration {
    let start = std::time::Instant::now();
    loop {
        let answer = running.chat(key);
        if answer.contains(word) {
            return start.elapsed();
        }
        let patience = std::time::Duration::from_secs(60);
        assert!(start.elapsed() < patience, "never `{word}`: {answer}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn changes_of_the_key_file_take_effect_without_a_reload() {
    let folder = Folder::new();
    let key = |args: &[&str]| {
        let done = folder.run(&[&["gateway", "key"], args].concat());
        assert_eq!(done.code, Some(0), "{done}");
        done.stdout.trim().to_owned()
    };
    let first = key(&["add", "--tenant", "t", "--id", "first"]);
    let running = Running::start(&folder, &[]);
    assert!(running.chat(&first).contains("one two"));
    let second = key(&["add", "--tenant", "t", "--id", "second"]);
    let taken = becomes(&running, &second, "one two");
    let rotated = key(&["rotate", "first", "--id", "third", "--keep-until", "1h"]);
    becomes(&running, &rotated, "one two");
    assert!(running.chat(&first).contains("one two"), "both work");
    key(&["expire", "first", "--at", "2020-01-01"]);
    becomes(&running, &first, "key_expired");
    key(&["expire", "first", "--never"]);
    becomes(&running, &first, "one two");
    key(&["revoke", "second"]);
    let revoked = becomes(&running, &second, "invalid_api_key");
    println!("a key works after {taken:?}, and is refused after {revoked:?}");
    let moved = key(&["rotate", "third", "--id", "fourth"]);
    becomes(&running, &moved, "one two");
    assert!(running.chat(&rotated).contains("invalid_api_key"));
    running.stop();

    let listed = folder.run(&["gateway", "key", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let ids: Vec<&str> = (0..2).map(|n| listed[n]["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["first", "fourth"]);
    let log = folder.run(&["gateway", "audit"]).stdout;
    assert_eq!(log.lines().count(), 7, "{log}");
    let log = log + &folder.run(&["gateway", "audit", "--json"]).stdout;
    for secret in [&first, &second, &rotated, &moved] {
        assert!(!log.contains(secret.as_str()), "{log}");
    }
}

#[test]
fn an_invalid_key_file_keeps_the_previous_keys() {
    let folder = Folder::new();
    let add = |id: &str| {
        let made = folder.run(&["gateway", "key", "add", "--tenant", "t", "--id", id]);
        made.stdout.trim().to_owned()
    };
    let first = add("first");
    let running = Running::start(&folder, &[]);
    let path = folder.path().join("headworks-keys.toml");
    let valid = std::fs::read_to_string(&path).unwrap();
    // An editor that does not replace the file empties it first.
    for invalid in ["", "\n", "[[key"] {
        std::fs::write(&path, invalid).unwrap();
        let refused = running.reload();
        assert!(refused.contains("headworks-keys.toml"), "{refused}");
        // The gateway also looks at the file by itself, every second.
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_millis(1500) {
            let answer = running.chat(&first);
            assert!(answer.contains("one two"), "{invalid:?}: {answer}");
        }
    }
    std::fs::write(&path, valid).unwrap();
    becomes(&running, &add("second"), "one two");
    running.stop();
}

#[test]
fn keys_that_cannot_work_are_refused() {
    let folder = Folder::new();
    let add =
        |args: &[&str]| folder.run(&[&["gateway", "key", "add", "--tenant", "t"], args].concat());
    for (args, why) in [
        (&["--expires", "2020-01-01"][..], "--expires is in the past"),
        (
            &["--class", "5", "--max-class", "8"],
            "less urgent than --class",
        ),
    ] {
        let refused = add(args);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(why), "{refused}");
    }
    assert!(!folder.path().join("headworks-keys.toml").exists());
}

#[test]
fn a_change_of_one_limit_leaves_the_others() {
    let folder = Folder::new();
    let configured = "[[gateway.tenant]]\nname = 't'\nweight = 2\nmax_rps = 5.0\n";
    folder.write("headworks.toml", configured);
    let set = |args: &[&str]| folder.run(&[&["gateway", "tenant", "set", "t"], args].concat());
    let listed = || folder.run(&["gateway", "tenant", "list"]).stdout;

    let first = set(&["--tokens-per-day", "80"]);
    assert_eq!(first.code, Some(0), "{first}");
    // Without a key, a misspelt name would go unnoticed, and an open gateway does not look.
    assert!(
        first
            .stderr
            .contains("a gateway that runs without keys needs a reload"),
        "{first}"
    );
    for limit in ["weight=2", "max_rps=5.0", "tokens_per_day=80"] {
        assert!(listed().contains(limit), "{limit}: {}", listed());
    }
    assert_eq!(set(&["--max-rps", "3", "--clear", "weight"]).code, Some(0));
    assert!(listed().contains("max_rps=3.0"), "{}", listed());
    assert!(listed().contains("tokens_per_day=80"), "{}", listed());
    assert!(!listed().contains("weight"), "{}", listed());
    for wrong in [
        &[][..],
        &["--weight", "3", "--clear", "weight"],
        &["--clear", "name"],
    ] {
        assert_eq!(set(wrong).code, Some(2), "{wrong:?}");
    }
    let misspelt = folder.run(&["gateway", "tenant", "set", "serch", "--weight", "3"]);
    assert!(
        misspelt
            .stderr
            .contains("no stored key belongs to `serch` yet"),
        "{misspelt}"
    );
}

#[test]
fn tenants_have_quotas_that_they_can_read() {
    let folder = Folder::new();
    let made = folder.run(&["gateway", "key", "add", "--tenant", "t", "--id", "first"]);
    let key = made.stdout.trim();
    let running = Running::start(&folder, &[]);
    assert!(running.chat(key).contains("one two"));
    let set = folder.run(&["gateway", "tenant", "set", "t", "--tokens-per-day", "3"]);
    assert_eq!(set.code, Some(0), "{set}");
    becomes(&running, key, "insufficient_quota");
    let output = Command::new("curl")
        .args(["--silent", "--noproxy", "*", "--max-time", "30"])
        .args(["--header", &format!("Authorization: Bearer {key}")])
        .arg(format!("{}/quota", running.address))
        .output()
        .unwrap();
    let quota: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(quota["key"]["id"], "first");
    assert_eq!(quota["tokens_per_day"]["limit"], 3);
    assert_eq!(quota["tokens_per_day"]["remaining"], 0);
    assert!(
        quota["tokens_per_month"]["used"].as_u64().unwrap() >= 3,
        "{quota}"
    );
    let listed = folder.run(&["gateway", "tenant", "list"]).stdout;
    assert!(listed.contains("tokens_per_day=3"), "{listed}");
    assert_eq!(
        folder.run(&["gateway", "tenant", "remove", "t"]).code,
        Some(0)
    );
    becomes(&running, key, "one two");
    let unknown = folder.run(&["gateway", "tenant", "remove", "t"]);
    assert!(
        unknown.code == Some(1) && unknown.stderr.contains("`t`"),
        "{unknown}"
    );
    running.stop();
}

#[test]
fn keys_are_imported_into_the_database_of_a_fleet() {
    use headworks_fleet::testing::PostgresServer;
    let folder = Folder::new();
    let key = |args: &[&str]| folder.run(&[&["gateway", "key"], args].concat());
    let first = key(&["add", "--tenant", "t", "--id", "first"]).stdout;
    let second = key(&["add", "--tenant", "t", "--id", "second"]).stdout;
    let alone = key(&["import"]);
    assert!(
        alone.code == Some(2) && alone.stderr.contains("fleet.url"),
        "{alone}"
    );

    let server = PostgresServer::start();
    let port = server.port();
    let passwords = folder.path().join("pgpass");
    let line = format!(
        "127.0.0.1:{port}:fleet:fleet:{}\n",
        PostgresServer::password()
    );
    std::fs::write(&passwords, line).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&passwords, PermissionsExt::from_mode(0o600)).unwrap();
    let url = server.url();
    let in_fleet = |args: &[&str]| {
        let set = ["--set".to_owned(), format!("fleet.url={url}")];
        let set = set.each_ref().map(String::as_str);
        let mut command = folder.headworks(&[args, &set[..]].concat());
        support::Ended::from(command.env("PGPASSFILE", &passwords).output().unwrap())
    };
    let imported = in_fleet(&["gateway", "key", "import"]);
    assert_eq!(imported.code, Some(0), "{imported}");
    assert!(imported.stderr.contains("imported 2 keys"), "{imported}");
    let revoked = in_fleet(&["gateway", "key", "revoke", "second"]);
    assert_eq!(revoked.code, Some(0), "{revoked}");
    let again = in_fleet(&["gateway", "key", "import"]);
    assert!(
        again.stderr.contains("`second` was revoked earlier"),
        "{again}"
    );
    let listed = in_fleet(&["gateway", "key", "list"]).stdout;
    assert!(
        listed.starts_with("first ") && listed.lines().count() == 1,
        "{listed}"
    );

    let mut command = folder.headworks(&["gateway", "--listen", "127.0.0.1:0"]);
    command.env("PGPASSFILE", &passwords);
    command.args(["--set", &format!("fleet.url={url}")]);
    let running = Running::spawn(command, &[]);
    assert!(running.chat(first.trim()).contains("one two"));
    assert!(
        running.chat(second.trim()).contains("invalid_api_key"),
        "the file does not count"
    );
    assert_eq!(
        in_fleet(&["gateway", "key", "revoke", "first"]).code,
        Some(0)
    );
    becomes(&running, first.trim(), "invalid_api_key");
    running.stop();
    let usage = in_fleet(&["gateway", "usage"]).stdout;
    assert!(usage.contains(",t,echo,"), "{usage}");
}

#[test]
fn the_admin_api_needs_its_token_and_takes_effect_at_once() {
    let folder = Folder::new();
    let made = folder.run(&["gateway", "key", "add", "--tenant", "t", "--id", "first"]);
    assert_eq!(made.code, Some(0), "{made}");
    let running = Running::start(&folder, &[]);
    let admin = |method: &str, path: &str, token: &str, body: &str| {
        let output = Command::new("curl")
            .args(["--silent", "--noproxy", "*", "--max-time", "30"])
            .args(["--request", method, "--data", body])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .arg(format!("{}/admin/gateway/{path}", running.admin))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let body = r#"{"tenant":"t","id":"made here"}"#;
    let refused = admin("POST", "keys", "guess", body);
    assert!(refused.contains("invalid token"), "{refused}");
    let created = admin("POST", "keys", TOKEN, body);
    let created: serde_json::Value = serde_json::from_str(&created).unwrap();
    let key = created["key"].as_str().unwrap();
    assert!(running.chat(key).contains("one two"));
    let listed = admin("GET", "keys", TOKEN, "");
    assert!(
        listed.contains("made here") && !listed.contains(key),
        "{listed}"
    );
    for (path, body, expected) in [
        ("keys", r#"{"tenant":"t","clas":1}"#, "unknown field `clas`"),
        ("keys", r#"{"tenant":"t","id":"first"}"#, "`first` exists"),
        ("keys", r#"{"tenant":""}"#, "is empty"),
        (
            "keys/absent/expire",
            r#"{"at":null}"#,
            "unknown key `absent`",
        ),
        (
            "tenants",
            r#"{"name":"t","tokens_per_dya":1}"#,
            "unknown field `tokens_per_dya`",
        ),
        ("tenants", r#"{"name":"t","weight":0}"#, "at least 1"),
    ] {
        let refused = admin("POST", path, TOKEN, body);
        assert!(refused.contains(expected), "{refused}");
    }
    let revoked = admin("DELETE", "keys/made%20here", TOKEN, "");
    assert!(revoked.contains("done"), "{revoked}");
    assert!(running.chat(key).contains("invalid_api_key"));
    let log = admin("GET", "audit", TOKEN, "");
    assert!(
        log.contains("admin:127.0.0.1") && log.contains("revoke key"),
        "{log}"
    );
    assert!(!log.contains(key), "{log}");
    running.stop();
}
