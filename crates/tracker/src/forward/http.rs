//! Asking over HTTP and HTTPS.

use super::{Ask, AskError, Station};
use bytes::Bytes;
use flate2::read::GzDecoder;
use headworks_service::outbound::{Outbound, is_unknown};
use headworks_tracker_wire::query;
use headworks_tracker_wire::response::{self, AnnounceResponse};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Incoming};
use std::io::{self, ErrorKind, Read};

/// The largest answer that is read, packed and unpacked: two thousand peers as dictionaries fit
/// several times.
const MAX_ANSWER: usize = 512 * 1024;
/// How often a forwarder may send us elsewhere.
const MAX_REDIRECTS: usize = 3;

/// Asks over HTTP.
pub(crate) struct HttpAsker {
    pub(crate) outbound: Outbound,
}

impl HttpAsker {
    pub(super) async fn ask(&self, ask: &Ask<'_>) -> Result<AnnounceResponse, AskError> {
        let mut target = String::new();
        let id = ask.station.tracker_id.lock().clone();
        query::write_announce(&ask.announce, id.as_deref(), &mut target);
        let uri = with_query(&ask.station.uri, &target);
        let response = self.follow(ask.station, uri).await?;
        let status = response.status().as_u16();
        let body = read(response).await;
        // Some trackers put a refusal that can be read into an answer with an error status; what
        // limits us counts more.
        match (status, body) {
            (200, body) => {
                response::parse(&body?).map_err(|error| AskError::Garbage(error.to_string()))
            }
            (429, _) => Err(AskError::Status(429)),
            (_, Ok(body)) => match response::parse(&body) {
                Ok(failure @ AnnounceResponse::Failure { .. }) if status < 500 => Ok(failure),
                _ => Err(AskError::Status(status)),
            },
            (_, Err(_)) => Err(AskError::Status(status)),
        }
    }

    /// Somebody is there if anything but "you are wrong here" is answered.
    pub(super) async fn probe(&self, station: &Station) -> Result<(), AskError> {
        let response = self.follow(station, station.uri.to_string()).await?;
        match response.status().as_u16() {
            status @ (403 | 404 | 429 | 500..=599) => Err(AskError::Status(status)),
            // An announce without a torrent is a bad request; whoever says so reads announces.
            _ => Ok(()),
        }
    }

    /// Sends a request, and again to wherever the answer points.
    async fn follow(&self, station: &Station, uri: String) -> Result<Response<Incoming>, AskError> {
        let mut uri: Uri = uri
            .parse()
            .map_err(|_| AskError::Garbage("the address cannot be written".into()))?;
        let mut host = station.host.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.get(uri.clone(), host.take().as_deref()).await?;
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|location| location.to_str().ok());
            match (response.status().as_u16(), location) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    uri = elsewhere(&uri, location).ok_or(AskError::Redirects)?;
                }
                _ => return Ok(response),
            }
        }
        Err(AskError::Redirects)
    }

    async fn get(&self, uri: Uri, host: Option<&str>) -> Result<Response<Incoming>, AskError> {
        let mut request = Request::get(uri)
            .header(USER_AGENT, concat!("headworks/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT_ENCODING, "gzip");
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|_| AskError::Garbage("the request cannot be written".into()))?;
        let answer = self.outbound.send(request).await;
        answer.map_err(|error| network(&error))
    }
}

/// The address with the announce added to whatever query it has: passkeys stay.
fn with_query(uri: &Uri, announce: &str) -> String {
    let mark = match uri.query() {
        None => '?',
        Some("") => ' ',
        Some(_) => '&',
    };
    let mark = Some(mark).filter(|mark| *mark != ' ');
    let mut text = uri.to_string();
    text.extend(mark);
    text.push_str(announce);
    text
}

fn elsewhere(from: &Uri, location: &str) -> Option<Uri> {
    let to: Uri = location.parse().ok()?;
    match (to.scheme_str(), to.host()) {
        (Some("http" | "https"), Some(_)) => Some(to),
        (None, None) if location.starts_with('/') => {
            let mut parts = from.clone().into_parts();
            parts.path_and_query = location.parse().ok();
            Uri::from_parts(parts).ok()
        }
        _ => None,
    }
}

async fn read(response: Response<Incoming>) -> Result<Vec<u8>, AskError> {
    let packed = response.headers().get(CONTENT_ENCODING);
    let packed = packed.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"));
    // Who says so before gets none of it sent.
    if response.body().size_hint().lower() > MAX_ANSWER as u64 {
        return Err(AskError::TooLarge);
    }
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await;
    let body = body.map_err(
        |error| match error.is::<http_body_util::LengthLimitError>() {
            true => AskError::TooLarge,
            false => AskError::Passing(format!("reading the answer: {error}")),
        },
    )?;
    let body = body.to_bytes().to_vec();
    if !packed {
        return Ok(body);
    }
    unpacked(&body)
}

/// Unpacks gzip, as far as anybody needs it.
pub(crate) fn unpacked(body: &[u8]) -> Result<Vec<u8>, AskError> {
    let mut unpacked = Vec::new();
    let most = MAX_ANSWER as u64 + 1;
    match GzDecoder::new(body).take(most).read_to_end(&mut unpacked) {
        Ok(length) if length > MAX_ANSWER => Err(AskError::TooLarge),
        Ok(_) => Ok(unpacked),
        Err(_) => Err(AskError::Garbage("not the gzip it claims to be".into())),
    }
}

/// What kept a request from being answered, from the innermost cause that says anything.
fn network(error: &(dyn std::error::Error + 'static)) -> AskError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut words = error.to_string();
    while let Some(error) = cause {
        words = error.to_string();
        if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.kind() {
                ErrorKind::ConnectionRefused => return AskError::Refused,
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    return AskError::Unreachable;
                }
                ErrorKind::TimedOut => return AskError::Timeout,
                _ if is_unknown(error) => return AskError::NoSuchHost,
                _ => {}
            }
        }
        cause = error.source();
    }
    match words.starts_with("not connected within") {
        true => AskError::Timeout,
        false => AskError::Passing(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passkeys_stay_in_the_address() {
        let with = |uri: &str| with_query(&uri.parse().unwrap(), "a=1");
        assert_eq!(with("http://h/announce"), "http://h/announce?a=1");
        assert_eq!(
            with("http://h/abc/announce?passkey=s"),
            "http://h/abc/announce?passkey=s&a=1"
        );
        assert_eq!(with("http://h/announce?"), "http://h/announce?a=1");
        assert_eq!(with("http://h"), "http://h/?a=1");
    }

    #[test]
    fn redirects_go_to_the_web_only() {
        let from: Uri = "http://h/announce?a=1".parse().unwrap();
        let to = |location| elsewhere(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("https://o/x").as_deref(), Some("https://o/x"));
        assert_eq!(to("/y?b=2").as_deref(), Some("http://h/y?b=2"));
        assert_eq!(to("file:///etc/passwd"), None);
        assert_eq!(to("udp://x:1"), None);
    }
}
