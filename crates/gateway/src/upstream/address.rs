//! Base URL of an upstream's API.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use crate::wire::Endpoint;

/// Longest base URL.
const MAX_URL: usize = 16 << 10;

/// Scheme, host, the path that replaces `/v1`, and the query that is sent with every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: Scheme,
    authority: Authority,
    path: String,
    query: Option<String>,
    /// URL of every endpoint, in the order of the endpoints. Few requests have a query, so the URL
    /// is rarely built anew.
    plain: Vec<Uri>,
}

impl Address {
    /// Parses a base URL. `https://host` means `https://host/v1`; any other path is the base
    /// itself.
    pub(crate) fn parse(text: &str) -> Result<Address, String> {
        let wrong =
            || format!("invalid `url` `{text}`: expected one such as \"https://api.example.com\"");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(wrong());
        };
        if ![Scheme::HTTP, Scheme::HTTPS].contains(&scheme) {
            return Err(wrong());
        }
        // The URL appears in logs and statistics, so a password in it would too.
        if authority.as_str().contains('@') {
            return Err("`url` contains a user name or password: put the key into `api_key`, as in \"env:KEY\"".into());
        }
        // The parser ignores an invalid port; requests would silently go to the default port.
        if authority.as_str() != authority.host() && authority.port_u16().is_none() {
            return Err(format!(
                "invalid `url` `{text}`: the port is not a number from 0 to 65535"
            ));
        }
        let rest = parts.path_and_query;
        let query = rest.as_ref().and_then(|rest| rest.query());
        let query = query.filter(|query| !query.is_empty()).map(str::to_owned);
        // Leaves room for the path of an endpoint and the query of a client.
        if text.len() > MAX_URL {
            return Err(format!("invalid `url`: longer than {MAX_URL} bytes"));
        }
        let path = rest.map(|path| path.path().to_owned()).unwrap_or_default();
        let path = match path.trim_end_matches('/') {
            "" => "/v1".to_owned(),
            path => path.to_owned(),
        };
        let mut address = Address {
            scheme,
            authority,
            path,
            query,
            plain: Vec::new(),
        };
        let plain = Endpoint::ALL
            .iter()
            .map(|endpoint| address.at(endpoint.path(), None));
        address.plain = plain.collect::<Option<_>>().ok_or_else(wrong)?;
        Ok(address)
    }

    /// Host and port, in one spelling.
    pub(crate) fn server(&self) -> (String, u16) {
        let default = if self.scheme == Scheme::HTTPS {
            443
        } else {
            80
        };
        let port = self.authority.port_u16().unwrap_or(default);
        (self.authority.host().to_ascii_lowercase(), port)
    }

    /// URL of an endpoint, with the client's query.
    pub(crate) fn join(&self, endpoint: Endpoint, query: Option<&str>) -> Option<Uri> {
        match query {
            None => self.plain.get(endpoint as usize).cloned(),
            Some(query) => self.at(endpoint.path(), Some(query)),
        }
    }

    /// URL of the list of models.
    pub(crate) fn models(&self) -> Option<Uri> {
        self.at("/models", None)
    }

    fn at(&self, rest: &str, query: Option<&str>) -> Option<Uri> {
        let path = match self.query(query) {
            query if query.is_empty() => format!("{}{rest}", self.path),
            query => format!("{}{rest}?{query}", self.path),
        };
        let builder = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone());
        builder
            .path_and_query(PathAndQuery::try_from(path).ok()?)
            .build()
            .ok()
    }
}

impl Address {
    /// Combines the queries. A client cannot override a parameter of the operator, such as
    /// `api-version`.
    fn query(&self, client: Option<&str>) -> String {
        let client = client.unwrap_or_default();
        let Some(own) = &self.query else {
            return client.to_owned();
        };
        let mut query = own.clone();
        for pair in client.split('&').filter(|pair| !pair.is_empty()) {
            if !own.split('&').any(|set| name(set) == name(pair)) {
                query.push('&');
                query.push_str(pair);
            }
        }
        query
    }
}

/// Decoded name of a query parameter. Decoded, because `%61pi-version` is `api-version` to the
/// upstream.
fn name(pair: &str) -> Vec<u8> {
    percent_decode(pair.split('=').next().unwrap_or_default())
}

/// Decodes `%XX`. Other uses of `%` stay as they are.
pub(crate) fn percent_decode(text: &str) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        decoded.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_refused_without_being_said() {
        let refused = Address::parse("http://user:secret@127.0.0.1:1").unwrap_err();
        assert!(!refused.contains("secret"), "{refused}");
    }

    #[test]
    fn a_query_of_the_address_is_sent() {
        let address = Address::parse("https://a.example/openai/?api-version=1&x").unwrap();
        let join = |query| {
            let uri = address.join(Endpoint::Chat, query).unwrap();
            uri.path_and_query().unwrap().to_string()
        };
        let base = "/openai/chat/completions?api-version=1&x";
        assert_eq!(join(None), base);
        assert_eq!(join(Some("beta=true")), format!("{base}&beta=true"));
        let overridden = "api-version=9&beta=true&x=2&%61pi-version=9";
        assert_eq!(join(Some(overridden)), format!("{base}&beta=true"));
        assert_eq!(join(Some("")), base);
    }

    #[test]
    fn a_path_replaces_the_version() {
        let join = |url: &str| {
            let address = Address::parse(url).unwrap();
            let uri = address.join(Endpoint::Messages, Some("beta=true"));
            uri.unwrap().to_string()
        };
        let address = Address::parse("http://127.0.0.1:9").unwrap();
        for endpoint in Endpoint::ALL {
            let uri = address.join(endpoint, None).unwrap();
            assert_eq!(uri.path(), format!("/v1{}", endpoint.path()));
        }
        assert_eq!(
            join("https://a.example"),
            "https://a.example/v1/messages?beta=true"
        );
        assert_eq!(
            join("https://a.example/v1/"),
            "https://a.example/v1/messages?beta=true"
        );
        assert_eq!(
            join("http://127.0.0.1:9/api/openai"),
            "http://127.0.0.1:9/api/openai/messages?beta=true"
        );
        for wrong in ["", "a.example", "ftp://a.example", "https://"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
