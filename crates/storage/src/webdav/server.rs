//! A server: how calls to it are addressed, signed and understood.

use super::properties;
use crate::cloud::place::Place;
use crate::cloud::{
    Call, Endpoint, Environment, Pieces, Protocol, Whole, bearer, of_status, percent,
};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use headworks_service::outbound::{Outbound, OutboundConfig};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

/// Calls at once, whatever the workers do.
const MOST: usize = 32;

pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    origin: String,
    /// The path of the root, with a slash at its end.
    root: Vec<u8>,
    authorization: Option<HeaderValue>,
}

impl Server {
    pub(super) fn open(location: &[u8], get: &Environment) -> Result<Server> {
        let place = Place::parse(location)?;
        place.only(&["at_once", "requests"])?;
        let wrong = |words: String| Error::new(ErrorKind::Other, "open", location, words);
        let outbound =
            Outbound::new(&OutboundConfig::default()).map_err(|e| wrong(e.to_string()))?;
        let secure = location.starts_with(b"webdavs:");
        let scheme = if secure { "https" } else { "http" };
        Ok(Server {
            endpoint: Endpoint::new(outbound, place.limits(MOST)?),
            origin: format!("{scheme}://{}", place.host),
            root: [b"/", place.prefix.as_slice()].concat(),
            authorization: authorization(get)?,
        })
    }

    pub(super) fn path(&self, folder: &Folder, name: Option<&[u8]>) -> Vec<u8> {
        let below = folder.join(name.unwrap_or_default());
        [self.root.as_slice(), &below].concat()
    }

    /// The whole address of a path, as `Destination` wants it.
    pub(super) fn address(&self, path: &[u8]) -> String {
        format!("{}{}", self.origin, percent::encode_path(path))
    }

    pub(super) fn call(
        &self,
        kind: &'static str,
        operation: &'static str,
        path: &[u8],
        method: &'static [u8],
    ) -> Call {
        let shown = path.strip_prefix(self.root.as_slice()).unwrap_or(path);
        let method = Method::from_bytes(method).expect("a method of the protocol");
        let target = percent::encode_path(path);
        Call::new((kind, operation, shown), method, &self.origin, target)
    }

    pub(super) async fn fetch(&self, call: &Call) -> Result<Whole> {
        self.endpoint.fetch(self, call).await
    }

    /// What is at a path, and for a folder what is in it.
    pub(super) async fn look(
        &self,
        operation: &'static str,
        path: &[u8],
        depth: &str,
    ) -> Result<Vec<(Vec<u8>, Entry)>> {
        let kind = if depth == "0" { "look" } else { "list" };
        let call = self
            .call(kind, operation, path, b"PROPFIND")
            .header("depth", depth)
            .header("content-type", "application/xml")
            .body(Pieces::from(properties::QUESTION.to_owned()))
            .document();
        let whole = self.fetch(&call).await?;
        properties::read(&whole.body).map_err(|words| call.wrong(ErrorKind::Temporary, words))
    }

    /// What one thing is.
    pub(super) async fn stat(&self, path: &[u8], name: &[u8]) -> Result<Entry> {
        let found = self.look("look at", path, "0").await?;
        match found.into_iter().next() {
            Some((_, entry)) => Ok(Entry {
                name: name.to_vec(),
                ..entry
            }),
            None => {
                let call = self.call("look", "look at", path, b"PROPFIND");
                Err(call.wrong(ErrorKind::NotFound, "the answer tells of nothing"))
            }
        }
    }

    pub(super) async fn delete(&self, path: &[u8]) -> Result<()> {
        let call = self.call("delete", "remove", path, b"DELETE");
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    pub(super) async fn rename(&self, from: &[u8], onto: &[u8], overwrite: bool) -> Result<()> {
        let call = self
            .call("move", "move", from, b"MOVE")
            .header("destination", &self.address(onto))
            .header("overwrite", if overwrite { "T" } else { "F" });
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::Changed => {
                let words = "there is something of that name";
                Err(call.wrong(ErrorKind::Exists, words))
            }
            moved => moved.map(drop),
        }
    }
}

/// Who we are: a token, or a name and a password.
fn authorization(get: &Environment) -> Result<Option<HeaderValue>> {
    let text = match (get("WEBDAV_TOKEN"), get("WEBDAV_USER")) {
        (Some(token), _) => return bearer("WEBDAV_TOKEN", &token).map(Some),
        (None, Some(user)) => {
            let password = get("WEBDAV_PASSWORD").unwrap_or_default();
            format!(
                "Basic {}",
                BASE64_STANDARD.encode(format!("{user}:{password}"))
            )
        }
        (None, None) => return Ok(None),
    };
    let mut value = HeaderValue::from_str(&text).expect("base64 is text");
    value.set_sensitive(true);
    Ok(Some(value))
}

impl Protocol for Server {
    fn sign<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<HeaderMap>> {
        let mut headers = call.headers.clone();
        if let Some(authorization) = &self.authorization {
            headers.insert(http::header::AUTHORIZATION, authorization.clone());
        }
        Box::pin(std::future::ready(Ok(headers)))
    }

    fn judge(&self, status: StatusCode, headers: &HeaderMap, _body: &[u8]) -> (ErrorKind, String) {
        let mut words = status.to_string();
        let kind = match status.as_u16() {
            // The folder that it should be in is not there.
            409 => ErrorKind::NotFound,
            405 => ErrorKind::Exists,
            423 => ErrorKind::Temporary,
            _ => of_status(status, headers),
        };
        if status == StatusCode::UNAUTHORIZED {
            words.push_str(": set WEBDAV_USER and WEBDAV_PASSWORD, or WEBDAV_TOKEN");
        }
        (kind, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_token_comes_before_a_name_and_must_be_one_line() {
        let with = |token: &'static str| {
            let get: Environment = Arc::new(move |name| match name {
                "WEBDAV_TOKEN" => Some(token.to_owned()),
                "WEBDAV_USER" => Some("me".to_owned()),
                _ => None,
            });
            Server::open(b"webdav://host", &get).map(|server| server.authorization)
        };
        assert_eq!(with("abc\n").unwrap().unwrap(), "Bearer abc");
        let refused = with("a\nb").err().unwrap().to_string();
        assert!(refused.contains("WEBDAV_TOKEN"), "{refused}");
    }
}
