//! What is fuzzed: everything that reads what somebody else wrote, and the core under any calls.
//!
//! Each target takes bytes and must not panic, hang or break a promise that it checks itself. The corpus is replayed by
//! `crates/cli/tests/corpus.rs`, which includes this file, so that every change runs it.

use headworks_gateway::wire::{Dialect, Endpoint, Meter, Problem, read_ask, read_priority};
use headworks_service::config::{self, Schema, Sources};
use headworks_service::proxies::{ClientHeader, TrustedProxies};
use headworks_service::token::{Answer, Credential, Door};
use headworks_sim::{Scenario, Trial, chaos};
use headworks_synth::{Arrivals, Distribution, TreeSpec};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Takes bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is that of its corpus.
pub const TARGETS: [(&str, Target); 9] = [
    ("scenario", scenario),
    ("trace", trace),
    ("config", config),
    ("proxies", proxies),
    ("credential", credential),
    ("units", units),
    ("core", core),
    ("request", request),
    ("answer", answer),
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

/// What somebody says at the admin listener's door: lines of an address, `Authorization` and `Cookie`.
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

/// Durations, sizes and the descriptions that hold them; what is read must come back as it is shown.
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

/// A request of the gateway: its body, and its body as a header. What is wrong is told in the words of both APIs.
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
