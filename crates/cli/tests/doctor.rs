//! End-to-end tests of `headworks doctor` and `headworks config schema`.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;

use support::Folder;

/// Keeps every port of the defaults out of the way of other tests.
const FREE_PORTS: &str = "[admin]\nlisten = '127.0.0.1:0'\n\
     [tracker]\nlisten = '127.0.0.1:0'\nudp_listen = '127.0.0.1:0'\n\
     [gateway]\nlisten = '127.0.0.1:0'\n";

/// An upstream that answers every request with `status`, on a port of its own.
fn upstream(status: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"GET /v1/models "), "no model is used");
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

fn upstream_table(name: &str, port: u16) -> String {
    format!("[[gateway.upstream]]\nname = '{name}'\nurl = 'http://127.0.0.1:{port}'\n")
}

#[test]
fn a_healthy_configuration_has_no_problem() {
    let folder = Folder::new();
    let table = upstream_table("good", upstream("200 OK"));
    folder.write("good.toml", &format!("{FREE_PORTS}{table}"));
    let ended = folder.run(&["--config", "good.toml", "doctor"]);
    assert!(ended.to_string().starts_with("exit 0"), "{ended}");
    assert!(
        ended.stdout.contains("upstream good: it answers"),
        "{ended}"
    );
}

#[test]
fn every_problem_is_named_with_its_way_out() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let tables = [
        upstream_table("rejecting", upstream("401 Unauthorized")),
        upstream_table("closed", closed),
    ];
    let config = FREE_PORTS.replace("[tracker]\n", "[tracker]\nforwarders_file = 'none.yml'\n");
    let config = config.replace(
        "[gateway]\nlisten = '127.0.0.1:0'\n",
        &format!("[gateway]\nlisten = '{taken}'\nusage_file = 'nowhere/usage.db'\n"),
    );
    folder.write("bad.toml", &format!("{config}{}", tables.concat()));
    let ended = folder.run(&["--config", "bad.toml", "doctor", "--json"]);
    assert!(ended.to_string().starts_with("exit 1"), "{ended}");
    let findings: Vec<serde_json::Value> = serde_json::from_str(&ended.stdout).unwrap();
    let state = |subject: &str| {
        let mut named = findings.iter();
        let named = named.find(|one| one["subject"].as_str().unwrap().starts_with(subject));
        named.unwrap_or_else(|| panic!("{subject}: {ended}"))["state"].clone()
    };
    assert_eq!(state("gateway.usage_file"), "problem");
    assert_eq!(state("forwarders"), "problem");
    assert_eq!(state("upstream rejecting"), "problem");
    assert_eq!(state("upstream closed"), "problem");
    assert_eq!(state("clock"), "ok");
}

#[test]
fn a_gateway_that_admits_nobody_is_named() {
    let folder = Folder::new();
    folder.write("headworks.toml", FREE_PORTS);
    let ended = folder.run(&["doctor"]);
    assert!(
        ended.stdout.contains("no keys: every request gets 401"),
        "{ended}"
    );
    assert!(ended.stdout.contains("key add --tenant NAME"), "{ended}");
    let added = folder.run(&["gateway", "key", "add", "--tenant", "t"]);
    assert_eq!(added.code, Some(0), "{added}");
    let ended = folder.run(&["doctor"]);
    assert!(!ended.stdout.contains("401"), "{ended}");
}

#[test]
fn a_port_in_use_and_a_bad_key_are_named() {
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = FREE_PORTS.replace(
        "[admin]\nlisten = '127.0.0.1:0'",
        &format!("[admin]\nlisten = '{address}'"),
    );
    folder.write("taken.toml", &config);
    let ended = folder.run(&["--config", "taken.toml", "doctor"]);
    assert!(
        ended.to_string().starts_with("exit 0"),
        "it may be ours: {ended}"
    );
    assert!(
        ended
            .stdout
            .contains(&format!("admin.listen {address}: in use")),
        "{ended}"
    );
    folder.write("wrong.toml", "[gateway]\nlisten = 7\n");
    let ended = folder.run(&["--config", "wrong.toml", "doctor"]);
    assert!(ended.to_string().starts_with("exit 1"), "{ended}");
    assert!(ended.stdout.contains("gateway.listen"), "{ended}");
}

/// The file that `config init` writes has every key with a default, so all of their kinds are
/// compared.
#[test]
fn the_schema_permits_every_default() {
    let folder = Folder::new();
    let schema = folder.run(&["config", "schema"]).stdout;
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let shown = folder.run(&["config", "show", "--json"]).stdout;
    let shown: Vec<serde_json::Value> = serde_json::from_str(&shown).unwrap();
    assert!(shown.len() > 100);
    for value in shown {
        let name = value["key"].as_str().unwrap();
        let (section, key) = name.split_once('.').unwrap();
        let key = key.split(['.', '[']).next().unwrap();
        let known = &schema["properties"][section]["properties"][key];
        assert!(
            known["description"].is_string(),
            "{name} is not in the schema"
        );
    }
    let kind =
        |section: &str, key: &str| schema["properties"][section]["properties"][key]["type"].clone();
    assert_eq!(kind("gateway", "scheduler_max_concurrent"), "integer");
    assert_eq!(kind("gateway", "upstream"), "array");
    assert_eq!(kind("gateway", "scheduler_rps_burst"), "number");
    assert_eq!(
        kind("gateway", "request_timeout"),
        serde_json::json!(["string", "number"])
    );
    assert_eq!(kind("tracker", "snapshot_file"), "string");
    assert_eq!(
        schema["properties"]["gateway"]["additionalProperties"],
        false
    );
}
