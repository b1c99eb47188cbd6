//! Authentication of admin requests: a bearer token for programs, a session cookie for browsers.
//!
//! A browser opens `/?token=…` once. The response sets a session cookie and redirects to the same
//! address without the token. The cookie is `SameSite=Strict` and `HttpOnly`. A request that
//! changes something and is authenticated by cookie must also carry a custom header, which a form
//! cannot send.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, RETRY_AFTER,
    SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::Shared;
use super::problem::HttpProblem;
use crate::authenticator::{AuthOutcome, Credential, SESSION_COOKIE, is_token_parameter};

/// Header required of every state-changing request that is authenticated by cookie.
const CSRF_HEADER: HeaderName = HeaderName::from_static("x-headworks");

/// Fetch metadata header in which a browser states whether the request comes from the same origin.
/// No page can set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Default content security policy: a response that sets none of its own may load and run nothing.
const DEFAULT_CSP: &str =
    "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Address of the client, as far as the trusted proxies report it. Every authenticated request has
/// it as an extension, for audit logs.
#[derive(Clone, Copy, Debug)]
pub struct Client(pub IpAddr);

/// Middleware that passes a request on only if it is authenticated.
pub(super) async fn authenticate(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = shared.trusted.client(peer.ip(), request.headers());
    request.extensions_mut().insert(Client(client));
    match check_request(&shared, client, &request) {
        Admission::Authenticated => next.run(request).await,
        Admission::NeedsCookie => set_session_cookie(shared.authenticator.session(), request.uri()),
        Admission::Denied(refusal) => {
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            refusal
        }
    }
}

enum Admission {
    Authenticated,
    /// A browser that presented the token in the address and needs its session cookie.
    NeedsCookie,
    Denied(Response),
}

fn check_request(shared: &Shared, client: IpAddr, request: &Request) -> Admission {
    let Some(credential) = Credential::from_request(request.headers(), request.uri()) else {
        return Admission::Denied(unauthorized(
            request,
            "authentication required: a token is missing",
        ));
    };
    // The limiter never rejects the right token, so its owner is not locked out by guesses from the
    // same address. See docs/adr/0003.
    let now = Instant::now();
    let answer = match &credential {
        Credential::Bearer(token) | Credential::Query(token) => {
            shared.authenticator.check(now, client, token)
        }
        Credential::Cookie(session) => shared.authenticator.check_session(now, client, session),
    };
    match (answer, credential) {
        (AuthOutcome::Rejected, _) => {
            tracing::warn!(%client, path = request.uri().path(), "admin request rejected: invalid token");
            Admission::Denied(unauthorized(request, "invalid token"))
        }
        (AuthOutcome::RateLimited(time), _) => Admission::Denied(rate_limited(time)),
        (AuthOutcome::Accepted, Credential::Query(_)) if request.method() == Method::GET => {
            Admission::NeedsCookie
        }
        // Pages on other ports of this host are same-site and send the cookie too. The custom
        // header and `Sec-Fetch-Site` prove that our own page sent this one (CSRF).
        (AuthOutcome::Accepted, Credential::Cookie(_))
            if is_state_changing(request) && !has_csrf_header(request) =>
        {
            Admission::Denied(missing_csrf_header())
        }
        (AuthOutcome::Accepted, _) => Admission::Authenticated,
    }
}

fn has_csrf_header(request: &Request) -> bool {
    let site = request.headers().get(&FETCH_SITE);
    // Programs and old browsers send no `Sec-Fetch-Site`; the custom header alone decides then.
    let elsewhere = site.is_some_and(|site| site != "same-origin");
    request.headers().contains_key(&CSRF_HEADER) && !elsewhere
}

fn is_state_changing(request: &Request) -> bool {
    ![Method::GET, Method::HEAD].contains(request.method())
}

/// Sets the session cookie and redirects to the same address without the token.
fn set_session_cookie(session: &str, uri: &Uri) -> Response {
    let rest = uri.query().unwrap_or("").split('&');
    let rest: Vec<_> = rest
        .filter(|pair| !pair.is_empty() && !is_token_parameter(pair))
        .collect();
    let mark = if rest.is_empty() { "" } else { "?" };
    // Exactly one leading slash: `//host` would redirect to another host.
    let path = uri.path().trim_start_matches('/');
    let location = format!("/{path}{mark}{}", rest.join("&"));
    let cookie = format!("{SESSION_COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict");
    (
        StatusCode::SEE_OTHER,
        [(LOCATION, location), (SET_COOKIE, cookie)],
    )
        .into_response()
}

/// Responds 401: a login page for browsers, a JSON error for programs.
fn unauthorized(request: &Request, text: &str) -> Response {
    let accepts = request.headers().get(ACCEPT);
    let accepts = accepts.and_then(|value| value.to_str().ok());
    if accepts.is_some_and(|types| types.contains("text/html")) {
        let page = include_str!("login.html").replace("{PROBLEM}", text);
        return (StatusCode::UNAUTHORIZED, Html(page)).into_response();
    }
    let problem = HttpProblem::new(StatusCode::UNAUTHORIZED, text)
        .remedy("send `Authorization: Bearer TOKEN`, or open the address with ?token=TOKEN");
    ([(WWW_AUTHENTICATE, "Bearer")], problem).into_response()
}

fn rate_limited(time: Duration) -> Response {
    let seconds = time.as_secs() + 1;
    let text = format!("too many invalid tokens: retry in {seconds} s");
    let problem = HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, text);
    ([(RETRY_AFTER, seconds.to_string())], problem).into_response()
}

fn missing_csrf_header() -> Response {
    let text =
        format!("a state-changing request with a session cookie needs the header `{CSRF_HEADER}`");
    let problem = HttpProblem::new(StatusCode::FORBIDDEN, text);
    let remedy = format!("add `{CSRF_HEADER}: 1`, or send the token in `Authorization: Bearer`");
    problem.remedy(remedy).into_response()
}

/// Adds the security headers: no caching, no content sniffing, no referrer, a default policy.
pub(super) fn add_security_headers(headers: &mut HeaderMap) {
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(DEFAULT_CSP));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}
