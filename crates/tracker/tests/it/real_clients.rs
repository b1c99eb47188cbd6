//! Real clients find each other: libtorrent (Debian's python3-libtorrent) and aria2.

use crate::support::Running;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("headworks-clients-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Seeds a file through one tracker and downloads it through another.
async fn download(seeders: String, leechers: String, address: &str, client: &str) {
    let folder = Folder::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/download.py");
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(script)
        .arg(&folder.0)
        .args([&seeders, &leechers, address, client]);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap();
    let output = output.expect("python3 is installed");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{client} by {seeders} and {leechers}: {errors}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_each_other_over_both_transports_and_families() {
    let running = Running::start("");
    let (http, udp) = (running.http(), running.udp());
    for uri in [
        format!("http://{http}/announce"),
        format!("udp://{udp}/announce"),
    ] {
        download(uri.clone(), uri.clone(), "127.0.0.1", "libtorrent").await;
        download(uri.clone(), uri, "127.0.0.1", "aria2").await;
    }
    running.stop().await;
    let running = Running::listening("[::1]:0", "");
    let (http, udp) = (running.http(), running.udp());
    for uri in [
        format!("http://{http}/announce"),
        format!("udp://{udp}/announce"),
    ] {
        download(uri.clone(), uri, "[::1]", "libtorrent").await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_a_seeder_known_only_to_a_forwarder() {
    let other = Running::start("");
    for forwarder in [
        format!("http://{}/announce", other.http()),
        format!("udp://{}/announce", other.udp()),
    ] {
        let tracker = Running::start(&crate::support::listed([forwarder]));
        let seeders = format!("http://{}/announce", other.http());
        let leechers = format!("http://{}/announce", tracker.http());
        download(seeders, leechers, "127.0.0.1", "libtorrent").await;
        tracker.stop().await;
    }
    other.stop().await;
}
