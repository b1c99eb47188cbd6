//! Admission: authentication, priority, body and quota of a request, before it is scheduled.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headworks_core::Class;
use headworks_h1::{BodyError, timeout};
use headworks_service::config::{format_duration, format_size};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::body_memory::Shortage;
use super::upload::Upload;
use crate::active_config::ActiveConfig;
use crate::keys::{KeyRefusal, Principal};
use crate::shared::Shared;
use crate::usage::QuotaRefusal;
use crate::wire::{Problem, RequestSummary, read_priority, read_summary};

/// Bodies from this size on are not read on the connection's thread.
const LARGE_BODY: usize = 256 << 10;

/// When to retry while the stored keys cannot be read. They are read again once per second.
const STALE_RETRY: Duration = Duration::from_secs(5);

/// When to retry while request bodies take too much memory. A body is freed when its request is
/// sent to its upstream and answered, or leaves the queue.
const MEMORY_RETRY: Duration = Duration::from_secs(5);

/// Request headers that the gateway itself reads.
#[derive(Default)]
pub(crate) struct RequestHeaders<'a> {
    api_key: Option<&'a HeaderValue>,
    authorization: Option<&'a HeaderValue>,
    azure_key: Option<&'a HeaderValue>,
    priority: Option<&'a HeaderValue>,
    /// Timeout of the client, as SDKs and proxies announce it.
    pub(crate) client_timeout: Option<Duration>,
}

impl<'a> RequestHeaders<'a> {
    /// Collects the headers in one pass. A request has few headers, so this costs less than one
    /// lookup per known header.
    pub(crate) fn parse(headers: &'a HeaderMap) -> RequestHeaders<'a> {
        let mut parsed = RequestHeaders::default();
        for (name, value) in headers {
            // If a header occurs twice, the first one counts.
            let field = match name.as_str() {
                "x-api-key" => &mut parsed.api_key,
                "authorization" => &mut parsed.authorization,
                "api-key" => &mut parsed.azure_key,
                "x-priority" => &mut parsed.priority,
                "x-stainless-read-timeout"
                | "x-stainless-timeout"
                | "x-request-timeout"
                | "x-envoy-expected-rq-timeout-ms" => {
                    let told = match name.as_str() {
                        "x-envoy-expected-rq-timeout-ms" => duration(value, 0.001),
                        _ => duration(value, 1.0),
                    };
                    // The shorter timeout is the one that makes the client give up.
                    parsed.client_timeout = parsed.client_timeout.into_iter().chain(told).min();
                    continue;
                }
                _ => continue,
            };
            field.get_or_insert(value);
        }
        parsed
    }

    fn key(&self) -> Option<&'a str> {
        let bearer = || {
            let (scheme, key) = text(self.authorization?)?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        };
        let key = self.api_key.and_then(text);
        key.or_else(bearer).or_else(|| text(self.azure_key?))
    }
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// A time in `unit` seconds, or with its own unit: `1500ms`, `30s`, `2m`.
fn duration(value: &HeaderValue, unit: f64) -> Option<Duration> {
    let text = text(value)?.trim();
    let with_unit = [("ms", 0.001), ("s", 1.0), ("m", 60.0)];
    let (number, unit) = with_unit
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))
        .unwrap_or((text, unit));
    let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok();
    time.filter(|time| !time.is_zero())
}

/// Authenticates a request.
pub(crate) fn authenticate(
    shared: &Shared,
    active: &ActiveConfig,
    parsed: &RequestHeaders<'_>,
) -> Result<Arc<Principal>, Problem> {
    let found = active.keys.authenticate(parsed.key(), &shared.clock);
    found.map_err(|refusal| key_problem(refusal, parsed.key().is_some()))
}

fn key_problem(refusal: KeyRefusal, has_key: bool) -> Problem {
    let rejected =
        |reason, message: String| Problem::new(StatusCode::UNAUTHORIZED, reason, message);
    match refusal {
        KeyRefusal::Missing | KeyRefusal::Unknown => {
            let message = match has_key {
                true => "unknown API key: ask the operator of this gateway for one",
                false => "missing API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`",
            };
            rejected("invalid_api_key", message.to_owned())
        }
        KeyRefusal::Expired(at) => rejected(
            "key_expired",
            format!("this API key expired at {at}: ask the operator of this gateway for another"),
        ),
        KeyRefusal::Stale => {
            let message = "the gateway cannot reach the database with its keys";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "keys_unavailable", message)
                .retry_in(STALE_RETRY)
        }
    }
}

/// Determines the class of a request.
pub(crate) fn class(
    active: &ActiveConfig,
    principal: &Principal,
    parsed: &RequestHeaders<'_>,
) -> Result<Class, Problem> {
    let Some(asked) = parsed.priority else {
        return Ok(principal.class_for(None));
    };
    let read = text(asked).and_then(|asked| read_priority(asked, active.levels()));
    if let Some(class) = read {
        return Ok(principal.class_for(Some(class)));
    }
    let message = format!(
        "invalid `X-Priority`: expected 0 (most urgent) to {}, or a name from `critical` to `background`",
        active.levels() - 1
    );
    Err(Problem::new(
        StatusCode::BAD_REQUEST,
        "unknown_priority",
        message,
    ))
}

/// Reads the whole body, within the limits on its size, its time, and the memory of all bodies.
pub(crate) async fn body(
    shared: &Shared,
    active: &ActiveConfig,
    tenant: &Arc<str>,
    body: impl Upload,
) -> Result<Bytes, Problem> {
    let (most, time) = (active.config.max_body, active.config.body_timeout);
    let memory = active.config.max_body_memory;
    let mut charge = shared.body_memory.charge(tenant, memory);
    match timeout(time, body.read_all(most, &mut charge)).await {
        Ok(Ok(body)) => Ok(charge.bind(body)),
        Ok(Err(BodyError::TooLarge)) => Err(too_large(most)),
        Ok(Err(BodyError::NoMemory)) => Err(no_memory(charge.shortage, tenant)),
        Ok(Err(BodyError::Broken(cause))) => {
            let message = format!("cannot read the body: {cause}");
            Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "body_broke_off",
                message,
            ))
        }
        Err(_) => {
            let message = format!("the body did not arrive within {}", format_duration(time));
            Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_timeout",
                message,
            ))
        }
    }
}

/// Reads what scheduling needs of a body. A large one is read on a thread of its own: its
/// connection's thread serves other clients in the meantime.
pub(crate) async fn summary(
    shared: &Shared,
    tenant: &Arc<str>,
    body: &Bytes,
) -> Result<RequestSummary, Problem> {
    let bad = |message| Problem::new(StatusCode::BAD_REQUEST, "bad_request", message);
    if body.len() < LARGE_BODY {
        return read_summary(body).map_err(bad);
    }
    let turn = shared.large_bodies.turn(tenant).await;
    let body = body.clone();
    let read = tokio::task::spawn_blocking(move || {
        // Its turn lasts as long as the thread works, also if the client leaves.
        let _turn = turn;
        read_summary(&body)
    });
    let read = read.await;
    read.unwrap_or_else(|cause| Err(format!("the body cannot be read: {cause}")))
        .map_err(bad)
}

fn no_memory(shortage: Option<Shortage>, tenant: &str) -> Problem {
    let problem = match shortage {
        Some(Shortage::Tenant) => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "body_memory",
            format!(
                "the request bodies of tenant `{tenant}` take all the memory that it may have: send fewer at once, or raise `gateway.max_body_memory`"
            ),
        ),
        Some(Shortage::Total) | None => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "body_memory",
            "request bodies of others take too much memory for this one: raise `gateway.max_body_memory`",
        ),
    };
    problem.retry_in(MEMORY_RETRY)
}

fn too_large(most: u64) -> Problem {
    let message = format!(
        "the body is larger than {}: send less, or raise `gateway.max_body`",
        format_size(most)
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message).never()
}

/// Checks that the tenant's quota is not used up.
pub(crate) fn quota(
    shared: &Shared,
    active: &ActiveConfig,
    principal: &Principal,
) -> Result<(), Problem> {
    let Some(tenant) = active.tenant(&principal.tenant) else {
        return Ok(());
    };
    // Most tenants have no quota: they need neither the ledger's lock nor the date.
    if tenant.tokens_per_day.is_none() && tenant.tokens_per_month.is_none() {
        return Ok(());
    }
    let refused = match shared.ledger.check_quota(tenant, shared.today()) {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    let too_many = |message| Problem::new(StatusCode::TOO_MANY_REQUESTS, "quota", message);
    Err(match refused {
        QuotaRefusal::Exhausted(period) => {
            let mut problem = too_many(format!(
                "the token quota of tenant `{}` for this {} is used up: wait for the next one, or ask the operator for more",
                principal.tenant,
                period.name()
            ));
            problem.retry_after = period.remaining(shared.clock.now(), &active.zone);
            // The next period is too far away for an SDK to sleep until then.
            problem.never()
        }
        QuotaRefusal::SliceUsed(period) => too_many(format!(
            "this gateway cannot reach the database of its fleet, and used up its part of the token quota of tenant `{}` for this {}",
            principal.tenant,
            period.name()
        ))
        .retry_in(STALE_RETRY),
        QuotaRefusal::Unknown => {
            let message = "the gateway cannot reach the database with the use of the quotas";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "quota_unavailable", message)
                .retry_in(STALE_RETRY)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        pairs.collect()
    }

    #[test]
    fn a_clients_timeout_is_understood() {
        let parsed = |value| {
            RequestHeaders::parse(&headers(&[("x-stainless-read-timeout", value)])).client_timeout
        };
        assert_eq!(parsed("600.0"), Some(Duration::from_secs(600)));
        assert_eq!(parsed("0.5"), Some(Duration::from_millis(500)));
        for nonsense in ["not_given", "-1", "0", "inf", "NaN", ""] {
            assert_eq!(parsed(nonsense), None, "{nonsense}");
        }
        let generic =
            |name, value| RequestHeaders::parse(&headers(&[(name, value)])).client_timeout;
        for (value, millis) in [
            ("2.5", 2500),
            ("30s", 30_000),
            ("1500ms", 1500),
            ("2m", 120_000),
        ] {
            let told = generic("x-request-timeout", value);
            assert_eq!(told, Some(Duration::from_millis(millis)), "{value}");
        }
        let envoy = generic("x-envoy-expected-rq-timeout-ms", "750");
        assert_eq!(envoy, Some(Duration::from_millis(750)));
        let both = headers(&[
            ("x-stainless-timeout", "600"),
            ("x-stainless-read-timeout", "5"),
        ]);
        assert_eq!(
            RequestHeaders::parse(&both).client_timeout,
            Some(Duration::from_secs(5))
        );
    }

    #[test]
    fn a_key_is_found_wherever_a_client_puts_it() {
        let key = |pairs| {
            RequestHeaders::parse(&headers(pairs))
                .key()
                .map(str::to_owned)
        };
        for alone in [
            ("x-api-key", "k"),
            ("authorization", "Bearer k"),
            ("authorization", "bearer  k"),
            ("api-key", "k"),
        ] {
            let found = RequestHeaders::parse(&headers(&[alone]))
                .key()
                .map(str::to_owned);
            assert_eq!(found.as_deref(), Some("k"), "{alone:?}");
        }
        let all = [
            ("api-key", "c"),
            ("authorization", "Bearer b"),
            ("x-api-key", "a"),
        ];
        assert_eq!(key(&all).as_deref(), Some("a"));
        assert_eq!(key(&all[..2]).as_deref(), Some("b"));
        assert_eq!(key(&[("authorization", "Basic b")]), None);
    }

    fn large_body() -> Bytes {
        let items = "{\"content\":\"word\"},".repeat((31 << 20) / 19);
        Bytes::from(format!("{{\"model\":\"m\",\"messages\":[{items}{{}}]}}"))
    }

    fn shared() -> Arc<Shared> {
        let config = Arc::new(crate::GatewayConfig::default());
        let outbound = headworks_service::outbound::OutboundConfig::default();
        let outbound = headworks_service::outbound::Outbound::new(&outbound).unwrap();
        Shared::new(&config, None, None, outbound).unwrap()
    }

    /// A serving thread has a runtime of one thread, as this test has. The order of events tells
    /// whether reading the body occupies it.
    #[tokio::test]
    async fn a_large_body_does_not_occupy_its_thread() {
        let (shared, body) = (shared(), large_body());
        let order = std::cell::RefCell::new(Vec::new());
        let large = async {
            assert!(summary(&shared, &"a".into(), &body).await.is_ok());
            order.borrow_mut().push("large");
        };
        let other = async { order.borrow_mut().push("other") };
        tokio::join!(large, other);
        assert_eq!(*order.borrow(), ["other", "large"]);
        // A small one is not worth a change of threads.
        order.borrow_mut().clear();
        let small = async {
            let body = Bytes::from_static(b"{\"model\":\"m\"}");
            assert!(summary(&shared, &"a".into(), &body).await.is_ok());
            order.borrow_mut().push("small");
        };
        let other = async { order.borrow_mut().push("other") };
        tokio::join!(small, other);
        assert_eq!(*order.borrow(), ["small", "other"]);
    }

    /// Only as many large bodies are read at once as there are CPUs. While that many are, another
    /// one waits, and requests with small bodies pass it on every thread.
    #[tokio::test]
    async fn small_requests_pass_a_large_body_that_waits() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let config = crate::GatewayConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            open: true,
            ..crate::GatewayConfig::default()
        };
        let outbound = headworks_service::outbound::OutboundConfig::default();
        let outbound = headworks_service::outbound::Outbound::new(&outbound).unwrap();
        let shutdown = headworks_service::shutdown::Shutdown::new();
        let gateway = crate::Gateway::start(&Arc::new(config), outbound, &shutdown).unwrap();
        let (shared, address) = (gateway.shared.clone(), gateway.address());
        let send = async |body: &[u8]| {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(body).await.unwrap();
            stream
        };
        let status = async |mut stream: tokio::net::TcpStream| {
            let mut status = [0; 12];
            stream.read_exact(&mut status).await.unwrap();
            String::from_utf8_lossy(&status[9..]).into_owned()
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut busy = Vec::new();
        for _ in 0..threads {
            busy.push(shared.large_bodies.turn(&"busy".into()).await);
        }
        let large = send(&large_body()).await;
        // Connections are served by the threads in turn.
        for _ in 0..2 * threads {
            let small = br#"{"model":"echo","messages":[{"role":"user","content":"a"}]}"#;
            assert_eq!(status(send(small).await).await, "200");
        }
        drop(busy);
        assert_eq!(status(large).await, "404", "the echo serves no model `m`");
    }
}
