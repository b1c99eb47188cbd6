//! Lists of forwarders that are published at a URL.

use crate::support::{Behaviour, Forwarder, Running, config, until};
use tokio::io::AsyncWriteExt;

fn ok(etag: &str, body: &str) -> Behaviour {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nETag: {etag}\r\nContent-Length: {length}\r\n\r\n");
    Behaviour::Raw((head + body).into_bytes())
}

/// A folder that ends with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("headworks-{name}-{}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until a list was fetched with that result.
async fn fetched(running: &Running, result: &str) {
    let line = format!("headworks_tracker_list_fetches_total{{result=\"{result}\"}} 1\n");
    running.shows("/metrics", &line).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_good_copy_of_a_list_stays_in_force() {
    let folder = Folder::new("lists");
    let text = "udp://127.0.0.1:9/announce\n\nwss://w.example\nudp://127.0.0.1:10/announce\n";
    let server = Forwarder::http(ok("\"one\"", text)).await;
    let settings = format!(
        "forwarder_lists = ['http://{}/list.txt']\nforwarder_lists_folder = '{}'",
        server.address,
        folder.0.display()
    );
    let running = Running::start(&settings);
    until("the list is in force", || running.tracker.forwarders() == 2).await;
    running.stop().await;

    // The copy stays in force after a restart, with anything at the URL.
    let to_ftp = "HTTP/1.1 302 Found\r\nLocation: ftp://x/\r\nContent-Length: 0\r\n\r\n";
    let round = "HTTP/1.1 302 Found\r\nLocation: /list.txt\r\nContent-Length: 0\r\n\r\n";
    let many = (0..70_000).map(|n| format!("http://h{n}.b/a\n"));
    let many: String = many.collect();
    for bad in [
        Behaviour::status(500),
        Behaviour::Body(b"<html>maintenance</html>".to_vec()),
        Behaviour::Body(b"https://status.example is down for maintenance, back soon".to_vec()),
        Behaviour::Body(b"# empty\n".to_vec()),
        Behaviour::Body(many.clone().into_bytes()),
        Behaviour::Body(vec![b'x'; 50 << 20]),
        Behaviour::Body(vec![0xff; 100]),
        Behaviour::Raw(to_ftp.as_bytes().to_vec()),
        Behaviour::Raw(round.as_bytes().to_vec()),
        Behaviour::Raw(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec()),
    ] {
        let result = match &bad {
            Behaviour::Raw(raw) if raw.starts_with(b"HTTP/1.1 304") => "ok",
            _ => "failed",
        };
        server.requests.lock().unwrap().clear();
        server.set(bad);
        let running = Running::start(&settings);
        assert_eq!(running.tracker.forwarders(), 2, "at once, from the copy");
        fetched(&running, result).await;
        assert_eq!(running.tracker.forwarders(), 2, "and after the fetch");
        let request = server.requests.lock().unwrap()[0].to_lowercase();
        assert!(request.contains("if-none-match: \"one\""), "{request}");
        running.stop().await;
    }

    // Nothing listens there any more.
    let address = server.address;
    drop(server);
    let running = Running::start(&settings);
    fetched(&running, "failed").await;
    assert_eq!(running.tracker.forwarders(), 2, "in an outage");
    running.stop().await;

    // It is back, and has moved.
    let elsewhere = Forwarder::http(ok("\"two\"", "- uri: udp://127.0.0.1:11\n")).await;
    let moved = format!(
        "HTTP/1.1 301 Moved\r\nLocation: http://{}/new\r\nContent-Length: 0\r\n\r\n",
        elsewhere.address
    );
    let server = Forwarder::http_at(address, Behaviour::Raw(moved.into_bytes())).await;
    let running = Running::start(&settings);
    until("the new list is in force", || {
        running.tracker.forwarders() == 1
    })
    .await;
    running.stop().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_in_force_while_another_server_is_silent() {
    let folder = Folder::new("silent-list");
    let silent = Forwarder::http(Behaviour::Silent).await;
    let good = Forwarder::http(ok("\"one\"", "udp://127.0.0.1:9/announce\n")).await;
    let settings = format!(
        "forwarder_lists = ['http://{}/a', 'http://{}/b']\nforwarder_lists_folder = '{}'",
        silent.address,
        good.address,
        folder.0.display()
    );
    let running = Running::start(&settings);
    until("the list is in force", || running.tracker.forwarders() == 1).await;
    fetched(&running, "ok").await;
    let failed = "headworks_tracker_list_fetches_total{result=\"failed\"}";
    assert_eq!(running.metric(failed).await, 0.0, "the other still waits");
    assert_eq!(silent.requests.lock().unwrap().len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_during_a_fetch_is_not_undone() {
    let folder = Folder::new("reload");
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = format!(
        "forwarder_lists = ['http://{}/l']\nforwarder_lists_folder = '{}'",
        server.local_addr().unwrap(),
        folder.0.display()
    );
    let running = Running::start(&settings);
    let (mut stream, _) = server.accept().await.unwrap();
    let listen = "workers = 2\nlisten = '127.0.0.1:0'\nudp_listen = '127.0.0.1:0'\n";
    let more = "\n[[tracker.forwarders]]\nuri = 'udp://127.0.0.1:11'";
    let reloaded = config(&format!("{listen}{settings}{more}"));
    running.tracker.apply(&reloaded).unwrap();
    assert_eq!(running.tracker.forwarders(), 1);
    let Behaviour::Raw(response) = ok("\"one\"", "udp://127.0.0.1:9/announce\n") else {
        unreachable!("a raw response");
    };
    stream.write_all(&response).await.unwrap();
    until("both are in force", || running.tracker.forwarders() == 2).await;
    running.stop().await;
}
