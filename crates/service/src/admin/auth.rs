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
use crate::token::{Answer, Credential, SESSION_COOKIE, is_token_parameter};

/// Header required of every state-changing request that is authenticated by cookie.
const INTENT: HeaderName = HeaderName::from_static("x-headworks");

/// Fetch metadata header in which a browser states whether the request comes from the same origin.
/// No page can set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Default content security policy: a response that sets none of its own may load and run nothing.
const NOTHING: &str =
    "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Address of the client, as far as the trusted proxies report it.
#[derive(Clone, Copy)]
pub(super) struct Client(pub(super) IpAddr);

/// Middleware that passes a request on only if it is authenticated.
pub(super) async fn guard(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = shared.trusted.client(peer.ip(), request.headers());
    request.extensions_mut().insert(Client(client));
    match admit(&shared, client, &request) {
        Admission::Through => next.run(request).await,
        Admission::FirstVisit => welcome(shared.door.session(), request.uri()),
        Admission::Refused(refusal) => {
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            refusal
        }
    }
}

enum Admission {
    Through,
    /// A browser that presented the token in the address and needs its session cookie.
    FirstVisit,
    Refused(Response),
}

fn admit(shared: &Shared, client: IpAddr, request: &Request) -> Admission {
    let Some(credential) = Credential::of(request.headers(), request.uri()) else {
        return Admission::Refused(unauthorized(
            request,
            "authentication required: a token is missing",
        ));
    };
    // The limiter never rejects the right token, so its owner is not locked out by guesses from the
    // same address. See docs/adr/0003.
    let now = Instant::now();
    let answer = match &credential {
        Credential::Bearer(token) | Credential::Address(token) => {
            shared.door.knock(now, client, token)
        }
        Credential::Cookie(session) => shared.door.knock_with_session(now, client, session),
    };
    match (answer, credential) {
        (Answer::Wrong, _) => {
            tracing::warn!(%client, path = request.uri().path(), "admin request rejected: invalid token");
            Admission::Refused(unauthorized(request, "invalid token"))
        }
        (Answer::Wait(time), _) => Admission::Refused(too_many(time)),
        (Answer::Welcome, Credential::Address(_)) if request.method() == Method::GET => {
            Admission::FirstVisit
        }
        // Pages on other ports of this host are same-site and send the cookie too. The custom
        // header and `Sec-Fetch-Site` prove that our own page sent this one (CSRF).
        (Answer::Welcome, Credential::Cookie(_)) if changes(request) && !intended(request) => {
            Admission::Refused(unintended())
        }
        (Answer::Welcome, _) => Admission::Through,
    }
}

fn intended(request: &Request) -> bool {
    let site = request.headers().get(&FETCH_SITE);
    // Programs and old browsers send no `Sec-Fetch-Site`; the custom header alone decides then.
    let elsewhere = site.is_some_and(|site| site != "same-origin");
    request.headers().contains_key(&INTENT) && !elsewhere
}

fn changes(request: &Request) -> bool {
    ![Method::GET, Method::HEAD].contains(request.method())
}

/// Sets the session cookie and redirects to the same address without the token.
fn welcome(session: &str, uri: &Uri) -> Response {
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
        .or("send `Authorization: Bearer TOKEN`, or open the address with ?token=TOKEN");
    ([(WWW_AUTHENTICATE, "Bearer")], problem).into_response()
}

fn too_many(time: Duration) -> Response {
    let seconds = time.as_secs() + 1;
    let text = format!("too many invalid tokens: retry in {seconds} s");
    let problem = HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, text);
    ([(RETRY_AFTER, seconds.to_string())], problem).into_response()
}

fn unintended() -> Response {
    let text =
        format!("a state-changing request with a session cookie needs the header `{INTENT}`");
    let problem = HttpProblem::new(StatusCode::FORBIDDEN, text);
    let way_out = format!("add `{INTENT}: 1`, or send the token in `Authorization: Bearer`");
    problem.or(way_out).into_response()
}

/// Adds the security headers: no caching, no content sniffing, no referrer, a default policy.
pub(super) fn dress(headers: &mut HeaderMap) {
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(NOTHING));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}
