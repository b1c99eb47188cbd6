//! The fuzz targets: every parser of foreign input, and the core under arbitrary calls.
//!
//! Each target takes bytes and must not panic, hang or break an invariant that it checks itself.
//! `crates/cli/tests/corpus.rs` includes this file and replays the corpus, also with damaged
//! entries, so that every change runs it.

mod http1;

use headworks_gateway::wire::{Dialect, Endpoint, Meter, Problem, read_priority, read_summary};
use headworks_service::authenticator::{AuthOutcome, Authenticator, Credential};
use headworks_service::config::{self, Schema, Sources};
use headworks_service::proxies::{ClientHeader, TrustedProxies};
use headworks_sim::{Scenario, Trial, chaos};
use headworks_storage::fuzzing as storages;
use headworks_synth::{Arrivals, Distribution, TreeSpec};
use headworks_tracker::{forwarders, fuzzing};
use headworks_tracker_wire::bencode::{self, Limits, Value, Writer};
use headworks_tracker_wire::response::{self as tracker_responses, AnnounceResponse};
use headworks_tracker_wire::udp::{Request, RequestError, Response as Packet};
use headworks_tracker_wire::{Announce, compact, query, scrape, udp};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
pub use http1::http1;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A fuzz target: takes arbitrary bytes.
pub type Target = fn(&[u8]);

/// Every target by name, which is also the name of its corpus.
pub const TARGETS: [(&str, Target); 24] = [
    ("scenario", scenario),
    ("trace", trace),
    ("config", config),
    ("proxies", proxies),
    ("credential", credential),
    ("units", units),
    ("core", core),
    ("request", request),
    ("http1", http1),
    ("answer", answer),
    ("tracker_request", tracker_request),
    ("tracker_udp", tracker_udp),
    ("tracker_answer", tracker_answer),
    ("bencoded", bencoded),
    ("forwarders", forwarder_list),
    ("list_copy", list_copy),
    ("torrents", torrents),
    ("snapshot", snapshot),
    ("bucket", bucket),
    ("blobs", blobs),
    ("objects", objects),
    ("sftp", sftp),
    ("webdav", webdav),
    ("location", location),
];

/// Steps after which a simulation stops: a fuzzer needs many short runs.
const STEPS: u64 = 2_000;

/// A scenario file: parsed, and if it is valid, run for a while and reported in every format.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Scenario::from_text("fuzz.toml", text) {
        Ok(scenario) => {
            let scenario = scenario.with_max_steps(STEPS);
            if let Ok(report) = Trial::new(&scenario, 1).run() {
                assert!(!report.to_text().is_empty());
                assert!(report.to_html().ends_with("</html>\n"));
                assert!(report.to_json().starts_with('{'));
            }
        }
        Err(error) => assert!(error.to_string().starts_with("fuzz.toml:"), "{error}"),
    }
}

/// A recorded load, replayed under the default rules.
pub fn trace(data: &[u8]) {
    let scenario = Scenario::for_replay().with_max_steps(STEPS);
    let trial = Trial::new(&scenario, 1).with_trace("fuzz.csv", data);
    if let Err(error) = trial.run() {
        assert!(!error.to_string().is_empty());
    }
}

/// A configuration: the first byte selects the format.
pub fn config(data: &[u8]) {
    let Some((format, text)) = data.split_first() else {
        return;
    };
    let name = ["fuzz.toml", "fuzz.yaml", "fuzz.ini"][usize::from(*format) % 3];
    // A secret may name a file, and a fuzzer must not read arbitrary files.
    let text = String::from_utf8_lossy(text).replace("file:", "file;");
    let schema = Schema::shared();
    match schema.load(&Sources::new().text(name, &*text)) {
        Ok(config) => assert!(!config.values().is_empty()),
        Err(problems) => assert!(!problems.is_empty() && !problems.to_string().is_empty()),
    }
    // The same text in a format that has only text.
    for key in ["log.level", "admin.trusted_proxies", "shutdown.grace"] {
        let _ = schema.load(&Sources::new().flag("--set", key, &*text));
    }
}

/// Headers with the client's address, as lines from a trusted proxy.
pub fn proxies(data: &[u8]) {
    let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
    let peer: IpAddr = [10, 0, 0, 1].into();
    let stranger: IpAddr = [203, 0, 113, 9].into();
    for (header, name) in [
        (ClientHeader::XForwardedFor, "x-forwarded-for"),
        (ClientHeader::XRealIp, "x-real-ip"),
        (ClientHeader::Forwarded, "forwarded"),
    ] {
        let trusted = TrustedProxies::new(&networks, header);
        let headers = lines(data, name);
        let client = trusted.client(peer, &headers);
        assert_eq!(client, client.to_canonical());
        assert_eq!(trusted.client(stranger, &headers), stranger);
        // The entry of the nearest proxy is believed, whatever precedes it.
        if header == ClientHeader::XForwardedFor {
            let mut headers = headers;
            headers.append(name, HeaderValue::from_static("203.0.113.7"));
            assert_eq!(trusted.client(peer, &headers).to_string(), "203.0.113.7");
        }
    }
}

/// Credentials for the admin listener: lines of an address, `Authorization` and `Cookie`.
pub fn credential(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let uri = std::str::from_utf8(part()).unwrap_or_default();
    let uri: Uri = uri.parse().unwrap_or_default();
    let mut headers = lines(part(), "authorization");
    headers.extend(lines(part(), "cookie"));
    let Some(said) = Credential::from_request(&headers, &uri) else {
        return;
    };
    let authenticator =
        Authenticator::new(Some(&"the token of this test".into())).expect("it has its token");
    let (now, from) = (Instant::now(), [127, 0, 0, 1].into());
    let answer = match &said {
        Credential::Bearer(token) | Credential::Query(token) => {
            authenticator.check(now, from, token)
        }
        Credential::Cookie(session) => authenticator.check_session(now, from, session),
    };
    let right =
        matches!(&said, Credential::Bearer(t) | Credential::Query(t) if t == authenticator.token());
    assert_eq!(answer == AuthOutcome::Accepted, right, "{said:?}");
}

/// Header lines of that name, as far as they are valid.
fn lines(data: &[u8], name: &'static str) -> HeaderMap {
    data.split(|byte| *byte == b'\n')
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .map(|line| (HeaderName::from_static(name), line))
        .collect()
}

/// Durations, sizes and the descriptions that contain them: a displayed value parses to itself.
pub fn units(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let words = || -> StrDeserializer<'_, Error> { text.into_deserializer() };
    if let Ok(duration) = config::seconds::deserialize::<_, Duration>(words()) {
        let shown = config::format_duration(duration);
        let read: StrDeserializer<'_, Error> = shown.as_str().into_deserializer();
        assert_eq!(config::seconds::deserialize(read), Ok(duration), "{shown}");
    }
    if let Ok(size) = config::bytes::deserialize::<_, u64>(words()) {
        let shown = config::format_size(size);
        let read: StrDeserializer<'_, Error> = shown.as_str().into_deserializer();
        assert_eq!(config::bytes::deserialize(read), Ok(size), "{shown}");
    }
    let _ = config::millis::deserialize::<_, Option<Duration>>(words());
    let _ = config::minutes::deserialize::<_, Option<Duration>>(words());
    if let Ok(spec) = text.parse::<TreeSpec>() {
        assert_eq!(spec.to_string().parse::<TreeSpec>().ok(), Some(spec));
    }
    for arrivals in [
        Arrivals::Constant { rate: number(text) },
        Arrivals::Poisson { rate: number(text) },
    ] {
        let some = arrivals.stream(1).take(10);
        assert_eq!(arrivals.check().is_ok(), some.count() == 10);
    }
    let drawn = Distribution::LogNormal {
        mean: number(text),
        sigma: 1.0,
    };
    let _ = drawn.check();
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

/// The core under arbitrary calls, checked by the auditor.
pub fn core(data: &[u8]) {
    if let Err(violation) = chaos::walk_from_bytes(data) {
        panic!("{violation}");
    }
}

/// A request to the gateway: its body, and its body as a header. Errors are rendered for both APIs.
pub fn request(data: &[u8]) {
    match read_summary(data) {
        Ok(ask) => {
            for endpoint in Endpoint::ALL {
                let estimate = ask.estimate(endpoint, 1024);
                let unlimited = ask.choices.saturating_mul(1024);
                assert!(0 < estimate && estimate <= ask.upper_bound(endpoint, unlimited).max(1));
            }
        }
        Err(words) => {
            let problem = Problem::new(http::StatusCode::BAD_REQUEST, "fuzz", words);
            for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
                let told = problem.body(dialect, "id");
                serde_json::from_slice::<serde_json::Value>(&told).expect("an answer is JSON");
            }
        }
    }
    let text = String::from_utf8_lossy(data);
    if let Some(class) = read_priority(&text, 10) {
        assert!(class.0 < 10);
    }
    let _ = Endpoint::at(&text);
}

/// The usage of a response does not depend on the pieces in which the gateway relays it.
pub fn answer(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    // Beyond this a report may be too large to be carried over.
    let bytes = &bytes[..bytes.len().min(4000)];
    let meter = || match size % 2 {
        0 => Meter::default(),
        _ => Meter::of_events(),
    };
    let mut whole = meter();
    whole.feed(bytes);
    let mut pieces = meter();
    for piece in bytes.chunks(usize::from(*size) + 1) {
        pieces.feed(piece);
    }
    assert_eq!(whole.reported(), pieces.reported());
    let reported = whole.reported().and_then(|usage| usage.output);
    assert!(whole.streamed() <= bytes.len() as u64 + reported.unwrap_or(0));
}

/// A request to the tracker over HTTP: its head, and its bytes as a query. An announce survives a
/// round trip.
pub fn tracker_request(data: &[u8]) {
    fuzzing::request(data);
    for hash in query::parse_scrape(data).flatten() {
        assert_eq!(hash.to_string().len(), 40);
    }
    let _ = query::value(data, "format");
    let Ok(announce) = query::parse_announce(data) else {
        return;
    };
    let mut written = String::new();
    query::write_announce(&announce, Some(data), &mut written);
    let read = query::parse_announce(written.as_bytes()).expect("what is written can be read");
    let kept = |announce: &Announce| Announce {
        // Written as what it means, and in the form that we want.
        left: Some(announce.left.unwrap_or(1)),
        compact: Some(true),
        no_peer_id: false,
        ..*announce
    };
    assert_eq!(kept(&read), kept(&announce));
}

/// UDP packets of clients and trackers, with a round trip.
pub fn tracker_udp(data: &[u8]) {
    match udp::parse_request(data) {
        Ok(Request::Announce {
            connection,
            transaction,
            announce,
            options,
        }) => {
            let path = udp::url_data(options);
            let mut written = Vec::new();
            udp::write_announce(connection, transaction, &announce, &path, &mut written);
            let Ok(Request::Announce {
                announce: again,
                options,
                ..
            }) = udp::parse_request(&written)
            else {
                panic!("what is written can be read")
            };
            assert_eq!((again, udp::url_data(options)), (announce, path));
        }
        Ok(Request::Scrape { hashes, .. }) => assert!(hashes.len() <= udp::MAX_SCRAPE),
        Ok(Request::Connect { .. }) => assert!(data.len() >= 16),
        // The request bounds the length of the error: no amplification.
        Err(RequestError::Invalid { text, .. }) => assert!(text.len() + 8 <= data.len() + 24),
        Err(_) => {}
    }
    if let Some(Packet::Announce { peers, .. }) = udp::parse_response(data) {
        let (v4, v6) = (compact::unpack_all4(peers), compact::unpack_all6(peers));
        assert_eq!(
            (v4.count(), v6.count()),
            (peers.len() / 6, peers.len() / 18)
        );
    }
}

/// Answers of another tracker: an announce, a scrape, or the bytes as gzip.
pub fn tracker_answer(data: &[u8]) {
    if let Ok(AnnounceResponse::Peers(peers)) = tracker_responses::parse(data) {
        assert!(peers.peers.len() <= tracker_responses::MAX_PEERS);
        assert!(peers.peers.iter().all(|(at, _)| at.port() != 0));
        assert!(peers.tracker_id.is_none_or(|id| id.len() <= 128));
    }
    let _ = scrape::parse(data);
    fuzzing::decompress(data);
}

/// Bencode, with a round trip.
pub fn bencoded(data: &[u8]) {
    let Ok(value) = bencode::decode(data, Limits::default()) else {
        return;
    };
    let mut written = Vec::new();
    write_value(&mut Writer::new(&mut written), &value);
    assert_eq!(bencode::decode(&written, Limits::default()), Ok(value));
}

fn write_value(writer: &mut Writer<'_>, value: &Value<'_>) {
    match value {
        Value::Int(number) => {
            writer.int(*number);
        }
        Value::Bytes(bytes) => {
            writer.bytes(bytes);
        }
        Value::List(list) => {
            writer.begin_list();
            list.iter().for_each(|value| write_value(writer, value));
            writer.end();
        }
        Value::Dict(entries) => {
            writer.begin_dict();
            for (key, value) in entries {
                writer.bytes(key);
                write_value(writer, value);
            }
            writer.end();
        }
    }
}

/// A list of forwarders, of the operator and of a stranger. Errors never show an address.
pub fn forwarder_list(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match forwarders::parse("list.yml", text) {
        Ok(list) => {
            for forwarder in list.forwarders {
                assert!(forwarder.check().is_ok() && !forwarder.name().is_empty());
                assert!(!format!("{forwarder:?}").contains("passkey"));
            }
        }
        Err(error) => assert!(error.to_string().contains("list.yml"), "{error}"),
    }
    fuzzing::published_list(text);
}

/// The stored copy of a published list.
pub fn list_copy(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        fuzzing::list_copy(text);
    }
}

/// A list of torrents.
pub fn torrents(data: &[u8]) {
    fuzzing::torrents(&String::from_utf8_lossy(data));
}

/// The body of a snapshot, with a valid header and checksum; and the bytes as a whole file.
pub fn snapshot(data: &[u8]) {
    fuzzing::snapshot(data);
}

/// A page of an S3 listing, and a cursor.
pub fn bucket(data: &[u8]) {
    storages::bucket(data);
}

/// A page of an Azure listing, a cursor, and a list of blocks.
pub fn blobs(data: &[u8]) {
    storages::container(data);
}

/// A page of a Google Cloud Storage listing, and a cursor.
pub fn objects(data: &[u8]) {
    storages::objects(data);
}

/// Packets of an SFTP server.
pub fn sftp(data: &[u8]) {
    storages::packets(data);
}

/// A WebDAV server's listing of a folder.
pub fn webdav(data: &[u8]) {
    storages::folder(data);
}

/// The URL of a storage.
pub fn location(data: &[u8]) {
    storages::location(data);
}
