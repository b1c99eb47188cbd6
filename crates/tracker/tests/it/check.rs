//! `tracker check`: a list of forwarders, judged as the server would use it.

use crate::support::{Behaviour, Forwarder, http_uri, udp_uri};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_tracker::check::{Checked, check, load};
use std::time::Duration;

fn outbound() -> Outbound {
    let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
    Outbound::with_proxies(&OutboundConfig::default(), proxies).unwrap()
}

async fn checked(name: &str, text: &str) -> Vec<Checked> {
    let path = std::env::temp_dir().join(format!("headworks-check-{name}-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let list = load(path.to_str().unwrap(), &outbound()).await.unwrap();
    std::fs::remove_file(path).unwrap();
    let timeout = Duration::from_secs(20);
    check(&list.forwarders, outbound(), timeout).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_trackers_answer_is_ok() {
    let not_a_tracker = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\noops".to_vec();
    let refusal = "d14:failure reason15:unknown torrente";
    let length = refusal.len();
    let refused = format!("HTTP/1.1 400 X\r\nContent-Length: {length}\r\n\r\n{refusal}");
    let cases = [
        (Behaviour::Peers(vec![]), true),
        (
            Behaviour::Body(b"d14:failure reason17:missing info_hashe".to_vec()),
            true,
        ),
        (Behaviour::Raw(refused.into_bytes()), true),
        (
            Behaviour::Body(b"<html>parked domain</html>".to_vec()),
            false,
        ),
        (Behaviour::Body(Vec::new()), false),
        (Behaviour::Body(b"i7e".to_vec()), false),
        (Behaviour::Body(b"d3:foo3:bare".to_vec()), false),
        (Behaviour::Raw(not_a_tracker), false),
        (Behaviour::status(404), false),
    ];
    for (behaviour, ok) in cases {
        let shown = format!("{behaviour:?}");
        let forwarder = Forwarder::http(behaviour).await;
        let results = checked("answers", &http_uri(&forwarder)).await;
        assert_eq!(
            (results.len(), results[0].ok),
            (1, ok),
            "{shown}: {results:?}"
        );
    }
    let forwarder = Forwarder::udp(Behaviour::Peers(vec![])).await;
    let results = checked("udp", &udp_uri(&forwarder)).await;
    assert!(results[0].ok, "{results:?}");
    assert!(forwarder.received().is_empty(), "nothing is announced");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_garbage_answer_over_udp_is_not_ok() {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("udp://{}", socket.local_addr().unwrap());
    let garbage = tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            // Another action with the right transaction.
            let mut answer = [0u8; 16];
            answer[..4].copy_from_slice(&9u32.to_be_bytes());
            answer[4..8].copy_from_slice(&buffer[12..16]);
            let _ = socket.send_to(&answer[..length.min(16)], from).await;
        }
    });
    let path = std::env::temp_dir().join(format!("headworks-check-garbage-{}", std::process::id()));
    std::fs::write(&path, uri).unwrap();
    let list = load(path.to_str().unwrap(), &outbound()).await.unwrap();
    std::fs::remove_file(path).unwrap();
    let results = check(&list.forwarders, outbound(), Duration::from_secs(2)).await;
    assert!(!results.unwrap()[0].ok);
    garbage.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_probed_once() {
    let forwarder = Forwarder::http(Behaviour::Peers(vec![])).await;
    let port = forwarder.address.port();
    let text = format!(
        "http://127.0.0.1:{port}/announce\nhttp://127.0.0.1:{port}/announce # again\n\
         http://127.1:{port}/announce\nHTTP://127.0.0.1.:{port}/announce\n"
    );
    let results = checked("duplicates", &text).await;
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(forwarder.requests.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_behind_a_forwarder_is_not_part_of_it() {
    let forwarder = Forwarder::http(Behaviour::Peers(vec![])).await;
    let uri = http_uri(&forwarder);
    for text in [
        format!("{uri} # the best\n"),
        format!("{uri}\t; the best, http://127.0.0.1:1/announce\n"),
        format!("{uri} // the best\n"),
        format!("{uri}#the-best\n"),
    ] {
        let results = checked("comments", &text).await;
        assert_eq!(results.len(), 1, "{text}: {results:?}");
        assert!(results[0].ok, "{text}: {results:?}");
        let request = forwarder.requests.lock().unwrap().pop().unwrap();
        assert!(!request.contains("best"), "{request}");
    }
}
