//! Credentials of admin requests.

use std::collections::HashMap;

use axum::extract::Query;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, Uri};

/// Name of the session cookie.
pub const SESSION_COOKIE: &str = "headworks_session";

/// Query parameter that holds the token when a browser opens the printed address.
const TOKEN_PARAMETER: &str = "token";

/// The credential that a request presents.
///
/// ```
/// use headworks_service::authenticator::Credential;
/// let mut headers = http::HeaderMap::new();
/// headers.insert("authorization", "Bearer secret".parse().unwrap());
/// let said = Credential::from_request(&headers, &http::Uri::from_static("/metrics"));
/// assert_eq!(said, Some(Credential::Bearer("secret".to_owned())));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// The token in `Authorization: Bearer`; empty if the header has another form.
    Bearer(String),
    /// The token in the query of the address.
    Query(String),
    /// The session in the cookie.
    Cookie(String),
}

impl Credential {
    /// The first credential found in header, address and cookie.
    #[must_use]
    pub fn from_request(headers: &HeaderMap, uri: &Uri) -> Option<Credential> {
        if let Some(value) = headers.get(AUTHORIZATION) {
            // A malformed header must fail authentication instead of falling through to the cookie.
            let token = value.to_str().ok().and_then(bearer).unwrap_or_default();
            return Some(Credential::Bearer(token.to_owned()));
        }
        let asked = Query::<HashMap<String, String>>::try_from_uri(uri).ok();
        if let Some(token) = asked.and_then(|Query(mut pairs)| pairs.remove(TOKEN_PARAMETER)) {
            return Some(Credential::Query(token));
        }
        let cookies = headers
            .get_all(COOKIE)
            .into_iter()
            .filter_map(|value| value.to_str().ok());
        let mut pairs = cookies
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.split_once('='));
        let session = pairs.find(|(name, _)| name.trim() == SESSION_COOKIE)?.1;
        Some(Credential::Cookie(session.trim().to_owned()))
    }
}

/// Whether `pair` of a query string is the token. The name is decoded as in
/// [`Credential::from_request`], which also accepts `%74oken=…`.
pub(crate) fn is_token_parameter(pair: &str) -> bool {
    let Ok(uri) = format!("/?{pair}").parse() else {
        return false;
    };
    Query::<HashMap<String, String>>::try_from_uri(&uri)
        .is_ok_and(|Query(pairs)| pairs.contains_key(TOKEN_PARAMETER))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// Prints the kind only, never the secret.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credential::Bearer(_) => "Bearer",
            Credential::Query(_) => "Query",
            Credential::Cookie(_) => "Cookie",
        })
    }
}
