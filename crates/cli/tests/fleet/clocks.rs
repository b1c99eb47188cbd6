//! A node whose wall clock is wrong changes nothing.

use super::*;

/// Sets the wall clock of a process 400 days ahead. Its other clocks stay right.
fn wrong_clock() -> Vec<(&'static str, String)> {
    let library = [
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    ];
    let library = library
        .into_iter()
        .find(|path| std::path::Path::new(path).exists());
    let library = library.expect("libfaketime is installed (the package is `faketime`)");
    vec![
        ("LD_PRELOAD", library.to_owned()),
        ("FAKETIME", "+400d".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
    ]
}

/// Three busy nodes, of which `wrong` has a wrong clock. The first one starts alone, so that it is
/// the allocator.
async fn shares_with_a_wrong_clock(wrong: usize) {
    let (server, folder) = (PostgresServer::start(), Folder::new());
    let upstream = Upstream::start(Duration::ZERO).await;
    let config = config(&server.url(), &upstream, "", &rate_limits());
    let more = wrong_clock();
    let more: Vec<(&str, &str)> = more
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut nodes = Vec::new();
    for (place, name) in ["n1", "n2", "n3"].into_iter().enumerate() {
        let environment = if place == wrong { more.as_slice() } else { &[] };
        nodes.push(Node::start_with(&folder, name, &config, environment));
        all_ready(&nodes).await;
    }
    let (mut clients, on) = (JoinSet::new(), Arc::new(AtomicBool::new(true)));
    for (node, tenant) in nodes.iter().zip(["a", "b", "c"]) {
        node.load(&mut clients, tenant, CLIENTS, &on);
    }
    limit_and_weights_hold(&upstream, &mut clients).await;
    let mut status = folder.headworks(&["--config", "n1.toml", "fleet", "status"]);
    let output = status.env("PGPASSWORD", PASSWORD).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("serving").count(), 3, "{text}");
    assert!(text.contains("allocator: n1"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_wrong_clock_changes_nothing() {
    shares_with_a_wrong_clock(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocator_with_a_wrong_clock_changes_nothing() {
    shares_with_a_wrong_clock(0).await;
}
