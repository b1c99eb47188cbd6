//! What is fuzzed: everything that reads what somebody else wrote, and the core under any calls.
//!
//! Each target takes bytes and must not panic, hang or break a promise that it checks itself. The
//! corpus is replayed by `crates/cli/tests/corpus.rs`, which includes this file and also spoils it
//! in many ways, so that every change runs it.

mod http1;

use headworks_gateway::wire::{Dialect, Endpoint, Meter, Problem, read_ask, read_priority};
use headworks_service::config::{self, Schema, Sources};
use headworks_service::proxies::{ClientHeader, TrustedProxies};
use headworks_service::token::{Answer, Credential, Door};
use headworks_sim::{Scenario, Trial, chaos};
use headworks_storage::fuzzing as storages;
use headworks_synth::{Arrivals, Distribution, TreeSpec};
use headworks_tracker::{forwarders, reading};
use headworks_tracker_wire::answer::{self as tracker_answers, Reply};
use headworks_tracker_wire::bencode::{self, Limits, Value, Writer};
use headworks_tracker_wire::udp::{Answer as Packet, Request, RequestError};
use headworks_tracker_wire::{Announce, compact, query, scrape, udp};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
pub use http1::http1;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Takes bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is that of its corpus.
pub const TARGETS: [(&str, Target); 23] = [
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
    ("torrents", torrents),
    ("snapshot", snapshot),
    ("bucket", bucket),
    ("blobs", blobs),
    ("objects", objects),
    ("sftp", sftp),
    ("webdav", webdav),
    ("location", location),
];

/// A run stops after so many steps: a fuzzer wants many short ones.
const STEPS: u64 = 2_000;

/// A scenario file: read, and if it is right, run for a while and told in every way.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Scenario::from_text("fuzz.toml", text) {
        Ok(scenario) => {
            let scenario = scenario.at_most(STEPS);
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
    let scenario = Scenario::for_replay().at_most(STEPS);
    let trial = Trial::new(&scenario, 1).replaying("fuzz.csv", data);
    if let Err(error) = trial.run() {
        assert!(!error.to_string().is_empty());
    }
}

/// A configuration: the first byte says in which format it is written.
pub fn config(data: &[u8]) {
    let Some((format, text)) = data.split_first() else {
        return;
    };
    let name = ["fuzz.toml", "fuzz.yaml", "fuzz.ini"][usize::from(*format) % 3];
    // A secret may be in a file: what a fuzzer names must not be read.
    let text = String::from_utf8_lossy(text).replace("file:", "file;");
    let schema = Schema::shared();
    match schema.load(&Sources::new().text(name, &*text)) {
        Ok(config) => assert!(!config.shown().is_empty()),
        Err(problems) => assert!(!problems.is_empty() && !problems.to_string().is_empty()),
    }
    // The same text where only text is possible.
    for key in ["log.level", "admin.trusted_proxies", "shutdown.grace"] {
        let _ = schema.load(&Sources::new().flag("--set", key, &*text));
    }
}

/// Headers that name the client, as lines of a proxy that is trusted.
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
        // What the nearest proxy wrote itself is believed, whatever stands before it.
        if header == ClientHeader::XForwardedFor {
            let mut headers = headers;
            headers.append(name, HeaderValue::from_static("203.0.113.7"));
            assert_eq!(trusted.client(peer, &headers).to_string(), "203.0.113.7");
        }
    }
}

/// What somebody says at the admin listener's door: lines of an address, `Authorization` and
/// `Cookie`.
pub fn credential(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let uri = std::str::from_utf8(part()).unwrap_or_default();
    let uri: Uri = uri.parse().unwrap_or_default();
    let mut headers = lines(part(), "authorization");
    headers.extend(lines(part(), "cookie"));
    let Some(said) = Credential::of(&headers, &uri) else {
        return;
    };
    let door = Door::new(Some(&"the token of this test".into())).expect("it has its token");
    let (now, from) = (Instant::now(), [127, 0, 0, 1].into());
    let answer = match &said {
        Credential::Bearer(token) | Credential::Address(token) => door.knock(now, from, token),
        Credential::Cookie(session) => door.knock_with_session(now, from, session),
    };
    let right =
        matches!(&said, Credential::Bearer(t) | Credential::Address(t) if t == door.token());
    assert_eq!(answer == Answer::Welcome, right, "{said:?}");
}

/// Header lines of that name, as far as they can be header lines.
fn lines(data: &[u8], name: &'static str) -> HeaderMap {
    data.split(|byte| *byte == b'\n')
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .map(|line| (HeaderName::from_static(name), line))
        .collect()
}

/// Durations, sizes and the descriptions that hold them; what is read must come back as it is
/// shown.
pub fn units(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let words = || -> StrDeserializer<'_, Error> { text.into_deserializer() };
    if let Ok(duration) = config::seconds::deserialize::<_, Duration>(words()) {
        let shown = config::show_duration(duration);
        let read: StrDeserializer<'_, Error> = shown.as_str().into_deserializer();
        assert_eq!(config::seconds::deserialize(read), Ok(duration), "{shown}");
    }
    if let Ok(size) = config::bytes::deserialize::<_, u64>(words()) {
        let shown = config::show_size(size);
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

/// The core under any calls, with the auditor's books beside it.
pub fn core(data: &[u8]) {
    if let Err(violation) = chaos::walk_by(data) {
        panic!("{violation}");
    }
}

/// A request of the gateway: its body, and its body as a header. What is wrong is told in the words
/// of both APIs.
pub fn request(data: &[u8]) {
    match read_ask(data) {
        Ok(ask) => {
            for endpoint in Endpoint::ALL {
                let estimate = ask.estimate(endpoint, 1024);
                assert!(0 < estimate && estimate <= ask.most(endpoint, 1024).max(1));
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

/// An answer that passes the gateway in pieces of any size reports what it reports in one.
pub fn answer(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    // Beyond this a report may be too large to be carried over.
    let bytes = &bytes[..bytes.len().min(4000)];
    let mut whole = Meter::default();
    whole.feed(bytes);
    let mut pieces = Meter::default();
    for piece in bytes.chunks(usize::from(*size) + 1) {
        pieces.feed(piece);
    }
    assert_eq!(whole.reported(), pieces.reported());
    assert!(whole.events() <= bytes.len() as u64);
}

/// A request to the tracker over HTTP: its head, and its bytes as a query. An announce that is read
/// is written and read again.
pub fn tracker_request(data: &[u8]) {
    reading::request(data);
    for hash in query::scrape(data).flatten() {
        assert_eq!(hash.to_string().len(), 40);
    }
    let _ = query::value(data, "format");
    let Ok(announce) = query::announce(data) else {
        return;
    };
    let mut written = String::new();
    query::write(&announce, Some(data), &mut written);
    let read = query::announce(written.as_bytes()).expect("what is written can be read");
    let kept = |announce: &Announce| Announce {
        // Written as what it means, and in the form that we want.
        left: Some(announce.left.unwrap_or(1)),
        compact: Some(true),
        no_peer_id: false,
        ..*announce
    };
    assert_eq!(kept(&read), kept(&announce));
}

/// Packets: a client's and a tracker's. What is read is written and read again.
pub fn tracker_udp(data: &[u8]) {
    match udp::read_request(data) {
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
            }) = udp::read_request(&written)
            else {
                panic!("what is written can be read")
            };
            assert_eq!((again, udp::url_data(options)), (announce, path));
        }
        Ok(Request::Scrape { hashes, .. }) => assert!(hashes.len() <= udp::MAX_SCRAPE),
        Ok(Request::Connect { .. }) => assert!(data.len() >= 16),
        // Nobody can be sent more than he sent us.
        Err(RequestError::Invalid { text, .. }) => assert!(text.len() + 8 <= data.len() + 24),
        Err(_) => {}
    }
    if let Some(Packet::Announce { peers, .. }) = udp::read_answer(data) {
        let (v4, v6) = (compact::all4(peers), compact::all6(peers));
        assert_eq!(
            (v4.count(), v6.count()),
            (peers.len() / 6, peers.len() / 18)
        );
    }
}

/// What another tracker answers: an announce, a scrape, or those bytes as the gzip that they claim
/// to be.
pub fn tracker_answer(data: &[u8]) {
    if let Ok(Reply::Peers(peers)) = tracker_answers::read(data) {
        assert!(peers.peers.len() <= tracker_answers::MAX_PEERS);
        assert!(peers.peers.iter().all(|(at, _)| at.port() != 0));
        assert!(peers.tracker_id.is_none_or(|id| id.len() <= 128));
    }
    let _ = scrape::read(data);
    reading::unpack(data);
}

/// Bencode: what is read, written and read again is the same.
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

/// A list of forwarders in YAML. Whatever is wrong with it is told without showing an address.
pub fn forwarder_list(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match forwarders::parse("list.yml", text) {
        Ok(list) => {
            for forwarder in list {
                assert!(forwarder.check().is_ok() && !forwarder.name().is_empty());
                assert!(!format!("{forwarder:?}").contains("passkey"));
            }
        }
        Err(error) => assert!(error.to_string().contains("list.yml"), "{error}"),
    }
}

/// A list of torrents.
pub fn torrents(data: &[u8]) {
    reading::torrents(&String::from_utf8_lossy(data));
}

/// The body of a snapshot, behind its right beginning and before its right checksum; and as a whole
/// file.
pub fn snapshot(data: &[u8]) {
    reading::snapshot(data);
}

/// A page of a bucket's listing, and where it goes on.
pub fn bucket(data: &[u8]) {
    storages::bucket(data);
}

/// A page of a container's listing, where it goes on, and a list of blocks.
pub fn blobs(data: &[u8]) {
    storages::container(data);
}

/// A page of the listing of a bucket at Google, and where it goes on.
pub fn objects(data: &[u8]) {
    storages::objects(data);
}

/// What an SFTP server sends.
pub fn sftp(data: &[u8]) {
    storages::packets(data);
}

/// What a WebDAV server says of a folder.
pub fn webdav(data: &[u8]) {
    storages::folder(data);
}

/// The URL of a storage.
pub fn location(data: &[u8]) {
    storages::location(data);
}
