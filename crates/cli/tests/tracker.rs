//! `headworks tracker`: what a predecessor's users type.

mod support;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;

use support::Folder;

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
    let line = line.expect("it says where it is");
    assert!(line.ends_with("(1 forwarders)"), "{line}");
    let base = line.split('/').next().unwrap();
    let curl = std::process::Command::new("curl")
        .args(["--silent", "--noproxy", "*", "--max-time", "30"])
        .arg(format!("http://{base}/metrics"))
        .output()
        .expect("curl is installed");
    let metrics = String::from_utf8(curl.stdout).unwrap();
    assert!(metrics.contains("\nqueue_capacity 77\n"), "{metrics}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn check_tells_who_can_be_asked() {
    let folder = Folder::new();
    // A port that is bound and silent, and one that nobody has.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let list = format!(
        "- uri: udp://{}/announce\n  name: silent\n- uri: http://{nobody}/announce?passkey=secret\n  name: nobody\n",
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
            "no answer in time",
            "connection refused",
            "0 of 2 can be asked"
        ]
    );
    assert!(!ended.stdout.contains("secret"));
}
