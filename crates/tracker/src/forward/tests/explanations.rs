//! The times that the explanation of a torrent names.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_time_of_the_next_request_is_named() {
    let fake = |forwarder: &ForwarderState, _: Option<&Announce>| match forwarder.uri.port_u16() {
        Some(1) => (DELAY, Err(ClientError::Refused)),
        Some(2) => {
            let never = b"d14:failure reason2:no8:retry in5:nevere";
            (DELAY, Ok(response::parse(never).unwrap()))
        }
        _ => (DELAY, no_peers()),
    };
    let (state, forwarding) = start(3, Box::new(fake));
    let handler = AnnounceHandler { state, forwarding };
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(10)).await;
    // Two more, of another client.
    for torrent in 2..4 {
        send_from(
            [127, 0, 0, 2].into(),
            &handler,
            announce(torrent, Event::Started),
        );
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let probation = headworks_core::TargetState::Probation;
    (handler.forwarding).set_forwarder_state(ForwarderId(2), probation);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let explanation = explain(&handler, &announce(1, Event::None).info_hash).unwrap();
    let facts = explanation.facts.iter();
    let texts: Vec<&str> = facts
        .filter(|fact| fact.name.starts_with("forwarder "))
        .map(|fact| fact.value.as_str())
        .collect();
    for (text, expected) in texts.iter().zip([
        "; skipped: disabled, next probe in ",
        "; skipped: disabled until a reload, because it declined",
        "; on probation: one request at a time, due in ",
    ]) {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(texts.len(), 3);
}
