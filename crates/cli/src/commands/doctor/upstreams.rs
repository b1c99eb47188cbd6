//! Whether upstreams are found, answer, and accept the key. No model is used.

use anyhow::Result;
use headworks_gateway::GatewayConfig;
use headworks_gateway::config::{Kind, UpstreamSettings};
use headworks_service::config::Config;
use headworks_service::outbound::{Outbound, OutboundConfig, error_chain, is_host_not_found};
use http::header::{AUTHORIZATION, DATE, HeaderName};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Empty;
use jiff::Timestamp;

use super::TIMEOUT;
use super::finding::Finding;

/// A clock that differs by more has its TLS certificates or signatures refused.
const MAX_SKEW_SECONDS: i64 = 60;

pub(super) async fn examine(config: &Config) -> Result<Vec<Finding>> {
    let outbound = Outbound::new(&*config.section::<OutboundConfig>())?;
    let gateway = config.section::<GatewayConfig>();
    let mut findings = Vec::new();
    for upstream in &gateway.upstream {
        if upstream.kind == Kind::Echo {
            continue;
        }
        findings.extend(ask(&outbound, upstream).await);
    }
    Ok(findings)
}

/// Asks for the list of models, which costs nothing.
async fn ask(outbound: &Outbound, upstream: &UpstreamSettings) -> Vec<Finding> {
    let subject = format!("upstream {}", upstream.name);
    let request = match request(upstream) {
        Ok(request) => request,
        Err(error) => return vec![Finding::problem(subject, error.to_string())],
    };
    let host = request.uri().host().unwrap_or_default().to_owned();
    let response = match tokio::time::timeout(TIMEOUT, outbound.send(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let found = error_chain(&error);
            let is_unknown = is_host_not_found(&std::io::Error::other(found.clone()));
            let advice = match is_unknown {
                true => format!("correct `url`, or the machine's DNS: `getent hosts {host}`"),
                false => {
                    "check address, firewall, proxy (HTTPS_PROXY) and `outbound.ca_file`".to_owned()
                }
            };
            return vec![Finding::problem(subject, found).advise(advice)];
        }
        Err(_) => {
            let found = format!("no response within {} s", TIMEOUT.as_secs());
            let advice = "check address, firewall and proxy (HTTPS_PROXY)";
            return vec![Finding::problem(subject, found).advise(advice)];
        }
    };
    let mut findings = vec![judge(&subject, response.status())];
    findings.extend(skew(&subject, response.headers()));
    findings
}

fn request(upstream: &UpstreamSettings) -> Result<Request<Empty<bytes::Bytes>>> {
    let base: Uri = upstream.url.parse()?;
    let path = match base.path().trim_end_matches('/') {
        "" => "/v1",
        path => path,
    };
    let query = base.query().map(|query| format!("?{query}"));
    let target = format!("{path}/models{}", query.unwrap_or_default());
    let mut parts = base.into_parts();
    parts.path_and_query = Some(target.parse()?);
    let mut request = Request::get(Uri::from_parts(parts)?);
    if let Some(key) = &upstream.api_key {
        request = match upstream.kind {
            Kind::Anthropic => request
                .header("x-api-key", key.reveal())
                .header("anthropic-version", "2023-06-01"),
            _ => request.header(AUTHORIZATION, format!("Bearer {}", key.reveal())),
        };
    }
    for (name, value) in &upstream.headers {
        request = request.header(name.parse::<HeaderName>()?, value.reveal());
    }
    Ok(request.body(Empty::new())?)
}

fn judge(subject: &str, status: StatusCode) -> Finding {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Finding::problem(subject, format!("it rejects the key ({status})"))
                .advise("check `api_key` and `headers` of the upstream")
        }
        // A server need not list its models.
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Finding::warning(
            subject,
            format!("it answers, but lists no models ({status})"),
        )
        .advise("if requests fail too, check the path in `url`: it replaces `/v1`"),
        status if status.is_server_error() => {
            Finding::problem(subject, format!("it answers with an error ({status})"))
        }
        StatusCode::TOO_MANY_REQUESTS => Finding::warning(
            subject,
            format!("it is overloaded, or limits this key ({status})"),
        ),
        status => Finding::ok(subject, format!("it answers ({status})")),
    }
}

/// Compares this machine's clock with that of the upstream.
fn skew(subject: &str, headers: &HeaderMap) -> Option<Finding> {
    let stated = headers.get(DATE)?.to_str().ok()?;
    let theirs = jiff::fmt::rfc2822::parse(stated).ok()?.timestamp();
    let seconds = Timestamp::now().as_second() - theirs.as_second();
    (seconds.abs() > MAX_SKEW_SECONDS).then(|| {
        let found = match seconds > 0 {
            true => format!("this machine's clock is {seconds} s ahead of it"),
            false => format!("this machine's clock is {} s behind it", -seconds),
        };
        Finding::warning(subject, found).advise("one of the two is wrong: compare with `date -u`")
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn a_clock_that_differs_by_minutes_is_reported() {
        let at = |seconds: i64| {
            let time = Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
            let text = time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            HeaderMap::from_iter([(DATE, text.parse().unwrap())])
        };
        assert_eq!(skew("a", &at(5)), None);
        assert!(skew("a", &at(600)).unwrap().found.contains("behind"));
        assert!(skew("a", &at(-600)).unwrap().found.contains("ahead"));
    }

    #[test]
    fn a_rejected_key_is_a_problem() {
        assert_eq!(
            judge("a", StatusCode::UNAUTHORIZED).state,
            Severity::Problem
        );
        assert_eq!(judge("a", StatusCode::OK).state, Severity::Ok);
        assert_eq!(judge("a", StatusCode::NOT_FOUND).state, Severity::Warning);
    }
}
