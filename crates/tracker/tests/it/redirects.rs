//! Redirects of forwarders and list servers into networks that they are not in.
//!
//! The test runs itself again in a network namespace, where public and private addresses are its
//! own.

use crate::support::{Behaviour, Forwarder, Running, announce};
use headworks_tracker_wire::Event;
use std::net::SocketAddr;
use std::process::Command;

/// Set inside the namespace.
const INSIDE: &str = "HEADWORKS_TEST_NAMESPACE";

const PUBLIC: [u8; 4] = [8, 8, 8, 8];
const PRIVATE: [u8; 4] = [10, 78, 0, 1];
const LINK_LOCAL: [u8; 4] = [169, 254, 169, 254];
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// Redirects from one address to another, and whether they are followed.
const REDIRECTS: [([u8; 4], [u8; 4], bool); 13] = [
    (PUBLIC, LOOPBACK, false),
    (PUBLIC, LINK_LOCAL, false),
    (PUBLIC, PRIVATE, false),
    (PUBLIC, PUBLIC, true),
    (PRIVATE, LOOPBACK, false),
    (PRIVATE, LINK_LOCAL, false),
    (PRIVATE, PRIVATE, true),
    (PRIVATE, PUBLIC, true),
    (LINK_LOCAL, LINK_LOCAL, true),
    (LINK_LOCAL, LOOPBACK, false),
    (LOOPBACK, LINK_LOCAL, false),
    (LOOPBACK, PRIVATE, true),
    (LOOPBACK, LOOPBACK, true),
];

#[test]
fn a_forwarder_leads_no_further_than_into_its_own_network() {
    in_namespace(
        "a_forwarder_leads_no_further_than_into_its_own_network",
        async || {
            for (from, to, follows) in REDIRECTS {
                forwarder_redirects(from, to, follows).await;
            }
        },
    );
}

#[test]
fn a_list_leads_no_further_than_into_its_servers_network() {
    in_namespace(
        "a_list_leads_no_further_than_into_its_servers_network",
        async || {
            for (from, to, follows) in REDIRECTS {
                list_redirects(from, to, follows).await;
            }
        },
    );
}

/// Runs the test of that name in a network namespace that has the addresses.
fn in_namespace(name: &str, test: impl AsyncFnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        add_addresses();
        return tokio::runtime::Runtime::new().unwrap().block_on(test());
    }
    let output = Command::new("unshare")
        .args(["-rn", "--"])
        .arg(std::env::current_exe().unwrap())
        .args([&format!("redirects::{name}"), "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("util-linux is installed");
    let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{out}{errors}");
    assert!(out.contains("1 passed"), "{out}{errors}");
}

fn add_addresses() {
    let ip = |arguments: &[&str]| {
        let status = Command::new("ip").args(arguments).status();
        assert!(status.expect("iproute2 is installed").success());
    };
    ip(&["link", "set", "lo", "up"]);
    for address in [PUBLIC, PRIVATE, LINK_LOCAL] {
        let address = std::net::Ipv4Addr::from(address).to_string();
        ip(&["addr", "add", &format!("{address}/32"), "dev", "lo"]);
    }
}

fn redirect(to: SocketAddr) -> Behaviour {
    let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://";
    Behaviour::Raw(format!("{head}{to}/elsewhere\r\n\r\n").into_bytes())
}

fn ok(body: &str) -> Behaviour {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    Behaviour::Raw((head + body).into_bytes())
}

/// Starts a server at an address of the namespace.
async fn at(ip: [u8; 4], behaviour: Behaviour) -> Forwarder {
    Forwarder::http_at((ip, 0).into(), behaviour).await
}

async fn forwarder_redirects(from: [u8; 4], to: [u8; 4], follows: bool) {
    let case = format!("from {from:?} to {to:?}");
    let target = at(to, ok("d8:intervali900e5:peers0:e")).await;
    let server = at(from, redirect(target.address)).await;
    let settings = format!(
        "[[tracker.forwarders]]\nuri = 'http://{}/a'",
        server.address
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::Started)).await;
    let line = format!(
        "headworks_tracker_forwards_total{{end=\"{}\"}} 1\n",
        if follows { "done" } else { "failed" }
    );
    running.shows("/metrics", &line).await;
    assert_eq!(server.requests.lock().unwrap().len(), 1, "{case}");
    let reached = target.requests.lock().unwrap().len();
    assert_eq!(reached, usize::from(follows), "a forwarder, {case}");
    running.stop().await;
}

async fn list_redirects(from: [u8; 4], to: [u8; 4], follows: bool) {
    let case = format!("from {from:?} to {to:?}");
    let target = at(to, ok("udp://8.8.4.4:9/announce\n")).await;
    let server = at(from, redirect(target.address)).await;
    let folder = std::env::temp_dir().join(format!("headworks-redirects-{}", std::process::id()));
    let settings = format!(
        "forwarder_lists = ['http://{}/list.txt']\nforwarder_lists_folder = '{}'",
        server.address,
        folder.display()
    );
    let running = Running::start(&settings);
    let line = format!(
        "headworks_tracker_list_fetches_total{{result=\"{}\"}} 1\n",
        if follows { "ok" } else { "failed" }
    );
    running.shows("/metrics", &line).await;
    let reached = target.requests.lock().unwrap().len();
    assert_eq!(reached, usize::from(follows), "a list, {case}");
    running.stop().await;
    let _ = std::fs::remove_dir_all(folder);
}
