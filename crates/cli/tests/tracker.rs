//! `headworks tracker`: the command line of the predecessor, and the subcommands.

mod support;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::Folder;

fn get(address: &str) -> String {
    let curl = std::process::Command::new("curl")
        .args(["--silent", "--noproxy", "*", "--max-time", "30", address])
        .output()
        .expect("curl is installed");
    String::from_utf8_lossy(&curl.stdout).into_owned()
}

#[test]
fn a_predecessors_command_line_starts_a_tracker() {
    let folder = Folder::new();
    folder.write(
        "config.yml",
        "forwarder_queue_size: 77\nannounce_interval: 600\nlog_everything: yes\n",
    );
    folder.write("forwarders.yml", "- uri: udp://127.0.0.1:9/announce\n");
    let arguments = [
        "tracker",
        "-l",
        "127.0.0.1:0",
        "-u",
        "127.0.0.1:0",
        "-f",
        "forwarders.yml",
        "-c",
        "config.yml",
        "-W",
        "30",
        "--queue-throttle-top",
        "5",
        "--admin-listen",
        "127.0.0.1:0",
    ];
    let mut command = folder.headworks(&arguments);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.find_map(|line| {
        line.ok()?
            .strip_prefix("tracker: http://")
            .map(str::to_owned)
    });
    let line = line.expect("the listening address");
    assert!(line.ends_with("(1 forwarders)"), "{line}");
    let base = line.split('/').next().unwrap();
    let metrics = || get(&format!("http://{base}/metrics"));
    let before = metrics();
    assert!(before.contains("\nqueue_capacity 77\n"), "{before}");
    assert!(!before.contains("another"), "{before}");

    // Only the list has changed; SIGHUP reloads it.
    folder.write(
        "forwarders.yml",
        "- uri: udp://127.0.0.1:9/announce\n- uri: udp://127.0.0.1:9/other\n  name: another\n",
    );
    let hangup = std::process::Command::new("kill")
        .args(["-HUP", &child.id().to_string()])
        .status();
    assert!(hangup.unwrap().success());
    let end = Instant::now() + Duration::from_secs(60);
    while !metrics().contains("{name=\"another\",status=\"active\"} 1") {
        assert!(Instant::now() < end, "the new forwarder never appears");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Transmission does not connect to loopback, so each client has its own network namespace, which
/// ends with the test.
#[test]
fn transmission_finds_its_peers_over_both_transports_and_families() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/transmission.sh");
    // Transmission uses UDP trackers over IPv4 only.
    for (transport, family) in [("http", "4"), ("udp", "4"), ("http", "6")] {
        let folder = Folder::new();
        let output = std::process::Command::new("unshare")
            .args(["-rnm", script, env!("CARGO_BIN_EXE_headworks")])
            .arg(folder.path())
            .args([transport, family])
            .output()
            .expect("util-linux is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{transport}, IPv{family}: {errors}"
        );
    }
}

/// Returns the user ids of a process: real, effective, saved and file system.
fn users(process: u32) -> Vec<String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn root_becomes_the_configured_user_and_others_stay_themselves() {
    let folder = Folder::new();
    let mut command = folder.headworks(&["tracker", "-l", "127.0.0.1:0", "-u", ""]);
    command.args(["--admin-listen", "127.0.0.1:0", "--process-user", "nobody"]);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let up = lines.any(|line| line.is_ok_and(|line| line.contains("reloads the configuration")));
    assert!(up, "it starts");
    let ours = users(std::process::id());
    let id = std::process::Command::new("id")
        .args(["-u", "nobody"])
        .output()
        .unwrap();
    let nobody = String::from_utf8(id.stdout).unwrap().trim().to_owned();
    let expected = if ours[1] == "0" {
        vec![nobody; 4]
    } else {
        ours
    };
    assert_eq!(users(child.id()), expected);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn explain_asks_the_running_instance() {
    let folder = Folder::new();
    folder.write("headworks.toml", "[admin]\nlisten = '127.0.0.1:0'\ntoken = 'the-token-of-this-test'\n[tracker]\nlisten = '127.0.0.1:0'\nudp_listen = ''\n");
    let mut command = folder.headworks(&["tracker", "-c", "headworks.toml"]);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut after = |prefix: &str| {
        let line = lines.find_map(|line| line.ok()?.strip_prefix(prefix).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no line begins with `{prefix}`"))
    };
    let tracker = after("tracker: http://");
    let admin = after("admin: ");
    let base = tracker.split('/').next().unwrap();
    let announce = format!(
        "http://{base}/announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=bbbbbbbbbbbbbbbbbbbb&port=5&left=0"
    );
    let answer = get(&announce);
    assert!(answer.starts_with("d8:complete"), "{answer}");
    let (torrent, at) = (
        "61".repeat(20),
        format!("{}?token=the-token-of-this-test", admin.trim()),
    );
    let explained = folder.run(&["tracker", "explain", &torrent, "--at", &at]);
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    assert!(
        explained
            .stdout
            .starts_with(&format!("{torrent}: 1 local peers")),
        "{}",
        explained.stdout
    );
    assert!(
        explained.stdout.contains("peer 127.0.0.1:5: seeder"),
        "{}",
        explained.stdout
    );
    let explained = folder.run(&["tracker", "explain", &torrent, "--json", "--at", &at]);
    assert!(explained.stdout.starts_with('{'), "{}", explained.stdout);
    let unknown = folder.run(&["tracker", "explain", &"00".repeat(20), "--at", &at]);
    assert!(
        unknown.stderr.contains("unknown subject"),
        "{}",
        unknown.stderr
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn check_reports_unreachable_forwarders() {
    let folder = Folder::new();
    // A silent port, and a closed one.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let list = format!(
        "- uri: udp://{}/announce\n  name: silent\n- uri: http://{closed}/announce?passkey=secret\n  name: closed\n",
        silent.local_addr().unwrap()
    );
    folder.write("list.yml", &list);
    let ended = folder.run(&["tracker", "check", "-f", "list.yml", "--timeout", "1"]);
    assert_eq!(ended.code, Some(3));
    let states: Vec<_> = ended
        .stdout
        .lines()
        .map(|line| line.rsplit("  ").next().unwrap())
        .collect();
    assert_eq!(
        states,
        [
            "state",
            "no response in time",
            "connection refused",
            "0 of 2 forwarders reachable"
        ]
    );
    assert!(!ended.stdout.contains("secret"));
}

#[test]
fn explain_rejects_an_invalid_hash() {
    for torrent in ["xyz", "0123", &"g".repeat(40)] {
        let ended = Folder::new().run(&["tracker", "explain", torrent]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("hexadecimal"), "{ended:?}");
    }
}

#[test]
fn flags_of_the_predecessor_work() {
    let folder = Folder::new();
    let ended = folder.run(&["tracker", "-v"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("headworks "), "{ended:?}");
    // The address is taken, so that the command ends.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = folder.run(&["tracker", "-x", "-d", "-p", "-l", &address, "-u", ""]);
    assert!(ended.stderr.contains("cannot listen on"), "{ended:?}");
    // Beyond the first entries of a list, the skipped ones are named at the level `debug`.
    let list: String = (0..25).map(|n| format!("wss://w{n}.example\n")).collect();
    folder.write("list.txt", &(list + "udp://127.0.0.1:9\n"));
    for debug in [false, true] {
        let mut arguments = vec!["tracker", "-f", "list.txt", "-l", &address, "-u", ""];
        arguments.extend(debug.then_some("-d"));
        let ended = folder.run(&arguments);
        assert!(ended.stderr.contains("w19.example"), "{ended:?}");
        assert_eq!(ended.stderr.contains("w20.example"), debug, "{ended:?}");
    }
    let ended = folder.run(&["tracker", "-w", "30"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("raise it with `-W`"), "{ended:?}");
}
