//! Lists of forwarders that are published at a URL.

use crate::support::{Behaviour, Forwarder, Running, until};

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
    let elsewhere = "HTTP/1.1 302 Found\r\nLocation: ftp://x/\r\nContent-Length: 0\r\n\r\n";
    for bad in [
        Behaviour::status(500),
        Behaviour::Body(b"<html>maintenance</html>".to_vec()),
        Behaviour::Body(b"# empty\n".to_vec()),
        Behaviour::Body(vec![b'x'; 50 << 20]),
        Behaviour::Raw(elsewhere.as_bytes().to_vec()),
        Behaviour::Raw(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec()),
    ] {
        server.requests.lock().unwrap().clear();
        server.set(bad);
        let running = Running::start(&settings);
        assert_eq!(running.tracker.forwarders(), 2, "at once, from the copy");
        until("it is fetched", || {
            !server.requests.lock().unwrap().is_empty()
        })
        .await;
        let request = server.requests.lock().unwrap()[0].to_lowercase();
        assert!(request.contains("if-none-match: \"one\""), "{request}");
        running.stop().await;
    }

    server.set(ok("\"two\"", "- uri: udp://127.0.0.1:11\n"));
    let running = Running::start(&settings);
    until("the new list is in force", || {
        running.tracker.forwarders() == 1
    })
    .await;
    running.stop().await;
}
