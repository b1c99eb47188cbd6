//! A client: how calls to the server are addressed, signed and understood.

use super::properties;
use crate::cloud::url::Url;
use crate::cloud::{
    Call, Endpoint, Environment, FullResponse, Protocol, SegmentedBytes, bearer, kind_of_status,
    percent,
};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use headworks_outbound::{Outbound, Settings};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

/// Maximum number of concurrent calls, independent of the workers.
const MAX_CONCURRENT: usize = 32;

pub(super) struct Client {
    pub(super) endpoint: Endpoint,
    origin: String,
    /// The path of the root, ending with a slash.
    root: Vec<u8>,
    authorization: Option<HeaderValue>,
}

impl Client {
    pub(super) fn open(location: &[u8], get: &Environment) -> Result<Client> {
        let url = Url::parse(location)?;
        url.allow_only(&["at_once", "requests"])?;
        let fail = |message: String| Error::new(ErrorKind::Other, "open", location, message);
        let outbound = Outbound::new(Settings::default()).map_err(|e| fail(e.to_string()))?;
        let secure = location.starts_with(b"webdavs:");
        let scheme = if secure { "https" } else { "http" };
        Ok(Client {
            endpoint: Endpoint::new(outbound, url.limits(MAX_CONCURRENT)?),
            origin: format!("{scheme}://{}", url.host),
            root: [b"/", url.prefix.as_slice()].concat(),
            authorization: authorization(get)?,
        })
    }

    pub(super) fn path(&self, folder: &Folder, name: Option<&[u8]>) -> Vec<u8> {
        let below = folder.join(name.unwrap_or_default());
        [self.root.as_slice(), &below].concat()
    }

    /// Returns the URL of a path, for the `Destination` header.
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
        let method = Method::from_bytes(method).expect("a valid HTTP method");
        let target = percent::encode_path(path);
        Call::new((kind, operation, shown), method, &self.origin, target)
    }

    pub(super) async fn fetch(&self, call: &Call) -> Result<FullResponse> {
        self.endpoint.fetch(self, call).await
    }

    /// Returns the entry at a path, and the entries of a folder.
    pub(super) async fn propfind(
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
            .body(SegmentedBytes::from(properties::PROPFIND_BODY.to_owned()))
            .expect_xml();
        let response = self.fetch(&call).await?;
        properties::read(&response.body)
            .map_err(|message| call.failure(ErrorKind::Temporary, message))
    }

    /// Returns one entry.
    pub(super) async fn stat(&self, path: &[u8], name: &[u8]) -> Result<Entry> {
        let found = self.propfind("look at", path, "0").await?;
        match found.into_iter().next() {
            Some((_, entry)) => Ok(Entry {
                name: name.to_vec(),
                ..entry
            }),
            None => {
                let call = self.call("look", "look at", path, b"PROPFIND");
                Err(call.failure(ErrorKind::NotFound, "the response is empty"))
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

    pub(super) async fn rename(&self, from: &[u8], target: &[u8], overwrite: bool) -> Result<()> {
        let call = self
            .call("move", "move", from, b"MOVE")
            .header("destination", &self.address(target))
            .header("overwrite", if overwrite { "T" } else { "F" });
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::Changed => {
                let message = "an entry of that name exists";
                Err(call.failure(ErrorKind::Exists, message))
            }
            moved => moved.map(drop),
        }
    }
}

/// Returns the authorization header: of a token, or of a user and a password.
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

impl Protocol for Client {
    fn sign<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<HeaderMap>> {
        let mut headers = call.headers.clone();
        if let Some(authorization) = &self.authorization {
            headers.insert(http::header::AUTHORIZATION, authorization.clone());
        }
        Box::pin(std::future::ready(Ok(headers)))
    }

    fn classify(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        _body: &[u8],
    ) -> (ErrorKind, String) {
        let mut message = status.to_string();
        let kind = match status.as_u16() {
            // The parent folder does not exist.
            409 => ErrorKind::NotFound,
            405 => ErrorKind::Exists,
            423 => ErrorKind::Temporary,
            _ => kind_of_status(status, headers),
        };
        if status == StatusCode::UNAUTHORIZED {
            message.push_str(": set WEBDAV_USER and WEBDAV_PASSWORD, or WEBDAV_TOKEN");
        }
        (kind, message)
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
            Client::open(b"webdav://host", &get).map(|client| client.authorization)
        };
        assert_eq!(with("abc\n").unwrap().unwrap(), "Bearer abc");
        let refused = with("a\nb").err().unwrap().to_string();
        assert!(refused.contains("WEBDAV_TOKEN"), "{refused}");
    }
}
