//! Forwarders that reject torrents.

use super::*;

/// The answer about every torrent but the first one.
type Rejection = fn() -> Result<AnnounceResponse, ClientError>;

fn never() -> Result<AnnounceResponse, ClientError> {
    Ok(response::parse(b"d14:failure reason2:no8:retry in5:nevere").unwrap())
}

fn forbidden() -> Result<AnnounceResponse, ClientError> {
    Err(ClientError::Status(403))
}

/// A forward plane with one forwarder, and the torrents that it was asked for.
fn start_rejecting(rejection: Rejection) -> (AnnounceHandler, Arc<Mutex<Vec<u8>>>) {
    let asked = Arc::<Mutex<Vec<u8>>>::default();
    let log = asked.clone();
    let fake = move |_: &ForwarderState, announce: Option<&Announce>| {
        let Some(announce) = announce else {
            return (DELAY, Err(ClientError::Status(404)));
        };
        let torrent = announce.info_hash.0[3];
        log.lock().push(torrent);
        let response = match torrent {
            0 => no_peers(),
            _ => rejection(),
        };
        (DELAY, response)
    };
    let (state, forwarding) = start_at(&["http://a.example/announce"], Box::new(fake));
    (AnnounceHandler { state, forwarding }, asked)
}

/// Announces torrents, each by the client with that last byte.
async fn send_all(handler: &AnnounceHandler, torrents: &[(u32, u8)]) {
    for (torrent, client) in torrents {
        let client = [10, 0, 0, *client].into();
        send_from(client, handler, announce(*torrent, Event::Started));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn is_usable(handler: &AnnounceHandler) -> bool {
    let active = handler.state.active();
    active.forwarders[0].is_usable()
}

#[tokio::test(start_paused = true)]
async fn a_torrent_that_a_forwarder_rejects_leaves_it_to_others() {
    for rejection in [never as Rejection, forbidden] {
        let (handler, asked) = start_rejecting(rejection);
        send_all(&handler, &[(0, 1)]).await;
        let bad: Vec<(u32, u8)> = (1..=20)
            .map(|torrent| (torrent, torrent as u8 % 3))
            .collect();
        send_all(&handler, &bad).await;
        assert!(is_usable(&handler), "it answers others");
        assert_eq!(asked.lock().len(), 21, "each once: {:?}", asked.lock());
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(asked.lock().len(), 21, "not soon again: {:?}", asked.lock());
    }
}

#[tokio::test(start_paused = true)]
async fn a_forwarder_that_rejects_several_clients_and_answers_nobody_is_disabled() {
    for rejection in [never as Rejection, forbidden] {
        let (handler, _) = start_rejecting(rejection);
        send_all(&handler, &[(0, 1)]).await;
        send_from([10, 0, 0, 1].into(), &handler, announce(0, Event::Stopped));
        tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
        send_all(&handler, &[(1, 1), (2, 1), (3, 1), (4, 1)]).await;
        assert!(is_usable(&handler), "one client is not enough");
        send_all(&handler, &[(5, 2)]).await;
        assert!(!is_usable(&handler));
    }
}
