//! The storage account: its endpoint and credentials, from the variables that Azure's own tools
//! read.

use super::tokens::Tokens;
use crate::cloud::{Clients, Environment, bearer, percent};
use crate::error::{Error, ErrorKind, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The emulator's account and its key, which are the same everywhere.
const EMULATED: &str = "devstoreaccount1";
const EMULATED_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Credentials of an account. Their debug output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Anonymous,
    Key(Vec<u8>),
    /// A shared access signature, which is added to the query of every call.
    Sas(Vec<(String, String)>),
    Token(HeaderValue),
    /// Tokens that are renewed.
    Renewed(Arc<Tokens>),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(hidden)")
    }
}

/// An account at its endpoint.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) credentials: Credentials,
    /// Scheme and host.
    pub(super) origin: String,
    /// The part of the path before the container.
    pub(super) base: String,
}

impl Account {
    /// Whether requests are encrypted, or do not leave this machine.
    pub(super) fn is_confidential(&self) -> bool {
        let host = self.origin.strip_prefix("http://");
        host.is_none_or(|host| {
            let is = |name: &str| host == name || host.starts_with(&format!("{name}:"));
            is("127.0.0.1") || is("localhost") || is("[::1]")
        })
    }

    /// Resolves the endpoint and the credentials; makes no call. `endpoint` overrides the
    /// environment.
    pub(super) fn resolve(
        name: &str,
        endpoint: Option<&str>,
        anonymous: bool,
        environment: &Environment,
        clients: &Clients,
    ) -> Result<Account> {
        let string = connection_string(environment)?;
        // A connection string of another account does not apply to this one.
        let is_same_account = string.get("accountname").is_none_or(|of| of == name);
        let string = string.into_iter().filter(|_| is_same_account).collect();
        let credentials = match anonymous {
            true => Credentials::Anonymous,
            false => credentials(name, &string, environment, clients)?,
        };
        let endpoint = endpoint
            .map(str::to_owned)
            .or_else(|| string.get("blobendpoint").cloned())
            .or_else(|| environment("AZURE_STORAGE_ENDPOINT"))
            .or_else(|| environment("AZURE_STORAGE_SERVICE_ENDPOINT"));
        let (origin, base) = match endpoint {
            Some(endpoint) => split_endpoint(name, &endpoint)?,
            None => (default_origin(name, &string), String::new()),
        };
        Ok(Account {
            name: name.to_owned(),
            credentials,
            origin,
            base,
        })
    }
}

type Settings = BTreeMap<String, String>;

/// Parses `Name=value;…`; names are converted to lower case.
fn connection_string(environment: &Environment) -> Result<Settings> {
    const NAME: &str = "AZURE_STORAGE_CONNECTION_STRING";
    let Some(text) = environment(NAME) else {
        return Ok(Settings::new());
    };
    let mut settings = Settings::new();
    for pair in text.split(';').filter(|pair| !pair.trim().is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            let message = "a part has no `=`; copy the whole string from the account's access keys";
            return Err(fail("read", NAME, message));
        };
        settings.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
    if settings
        .get("usedevelopmentstorage")
        .is_some_and(|value| value == "true")
    {
        let usual = format!("http://127.0.0.1:10000/{EMULATED}");
        settings.insert("accountname".into(), EMULATED.into());
        settings.entry("blobendpoint".into()).or_insert(usual);
    }
    Ok(settings)
}

fn credentials(
    account: &str,
    string: &Settings,
    get: &Environment,
    clients: &Clients,
) -> Result<Credentials> {
    let setting = |name: &str| string.get(name).cloned();
    if let Some(key) = setting("accountkey") {
        return key_of("AZURE_STORAGE_CONNECTION_STRING", &key);
    }
    if let Some(sas) = setting("sharedaccesssignature") {
        return Ok(sas_of(&sas));
    }
    for name in ["AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"] {
        if let Some(key) = get(name) {
            let owner = get("AZURE_STORAGE_ACCOUNT").or_else(|| get("AZURE_STORAGE_ACCOUNT_NAME"));
            return match owner.filter(|owner| owner != account) {
                None => key_of(name, &key),
                Some(owner) => {
                    let message = format!("the environment has the key of the account `{owner}`");
                    Err(fail("open the account", account, message))
                }
            };
        }
    }
    if let Some(sas) = get("AZURE_STORAGE_SAS_TOKEN") {
        return Ok(sas_of(&sas));
    }
    if let Some(token) = get("AZURE_STORAGE_TOKEN") {
        return Ok(Credentials::Token(bearer("AZURE_STORAGE_TOKEN", &token)?));
    }
    if account == EMULATED {
        return key_of("the emulator's key", EMULATED_KEY);
    }
    let tokens = Tokens::find(get, clients.clone());
    Ok(Credentials::Renewed(tokens))
}

fn key_of(from: &str, text: &str) -> Result<Credentials> {
    let key = BASE64_STANDARD.decode(text.trim());
    // The decoder's error would repeat the key.
    let key = key.map_err(|_| fail("use the key of", from, "the key is not base64"))?;
    Ok(Credentials::Key(key))
}

fn sas_of(text: &str) -> Credentials {
    let pairs = text.trim().trim_start_matches('?').split('&');
    let decode = |text: &str| {
        let bytes = percent::decode(text.as_bytes());
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    let pairs = pairs.filter(|pair| !pair.is_empty());
    Credentials::Sas(pairs.map(pair).collect())
}

fn default_origin(account: &str, string: &Settings) -> String {
    let setting = |name: &str, usual: &str| {
        let value = string.get(name).map(String::as_str);
        value.unwrap_or(usual).to_owned()
    };
    let scheme = setting("defaultendpointsprotocol", "https");
    let suffix = setting("endpointsuffix", "core.windows.net");
    format!("{scheme}://{account}.blob.{suffix}")
}

/// Splits an endpoint into its origin and path. An endpoint that is a bare address, like an
/// emulator's, has the account in its path.
fn split_endpoint(account: &str, endpoint: &str) -> Result<(String, String)> {
    let Some((scheme, rest)) = endpoint.trim_end_matches('/').split_once("://") else {
        let message = "the endpoint has no scheme; write http:// or https://";
        return Err(fail("use the endpoint", endpoint, message));
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if rest.contains(['@', '?', '#']) || host.is_empty() {
        let message = "an endpoint is a scheme, a host and optionally a path, as in https://account.blob.core.windows.net";
        return Err(fail("use the endpoint", "AZURE_STORAGE_ENDPOINT", message));
    }
    let alone = host.rsplit_once(':').map_or(host, |(alone, _)| alone);
    let is_bare = alone == "localhost"
        || alone
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok();
    let base = match path {
        "" if is_bare => format!("/{account}"),
        "" => String::new(),
        path => format!("/{path}"),
    };
    Ok((format!("{scheme}://{host}"), base))
}

fn fail(operation: &'static str, on: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, operation, on.as_bytes(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(name: &str, endpoint: Option<&str>, variables: &[(&str, &str)]) -> Result<Account> {
        let variables: BTreeMap<String, String> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let environment: Environment = Arc::new(move |name| variables.get(name).cloned());
        let direct = crate::cloud::test_server::outbound();
        let proxied = direct.clone();
        Account::resolve(
            name,
            endpoint,
            false,
            &environment,
            &Clients { proxied, direct },
        )
    }

    fn at(account: &Account) -> (&str, &str) {
        (&account.origin, &account.base)
    }

    const STRING: &str = "AZURE_STORAGE_CONNECTION_STRING";

    #[test]
    fn a_connection_string_has_everything() {
        let text = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=c2VjcmV0;EndpointSuffix=core.example.org";
        let account = resolve("me", None, &[(STRING, text)]).unwrap();
        assert_eq!(at(&account), ("https://me.blob.core.example.org", ""));
        assert_eq!(account.credentials, Credentials::Key(b"secret".to_vec()));
        assert!(!format!("{account:?}").contains("secret"));
        // It does not apply to another account.
        let other = resolve("you", None, &[(STRING, text)]).unwrap();
        assert!(matches!(other.credentials, Credentials::Renewed(_)));
        let text = "UseDevelopmentStorage=true";
        let account = resolve("devstoreaccount1", None, &[(STRING, text)]).unwrap();
        assert_eq!(
            at(&account),
            ("http://127.0.0.1:10000", "/devstoreaccount1")
        );
    }

    #[test]
    fn a_key_of_another_account_is_not_tried() {
        let variables = [
            ("AZURE_STORAGE_KEY", "a2V5"),
            ("AZURE_STORAGE_ACCOUNT", "me"),
        ];
        let account = resolve("me", None, &variables).unwrap();
        assert_eq!(at(&account), ("https://me.blob.core.windows.net", ""));
        let refused = resolve("you", None, &variables).unwrap_err();
        assert!(refused.to_string().contains("`me`"), "{refused}");
        let refused = resolve("me", None, &[("AZURE_STORAGE_KEY", "top secret")]).unwrap_err();
        assert!(!refused.to_string().contains("top secret"), "{refused}");
    }

    #[test]
    fn a_sas_token_is_parsed() {
        let account = resolve(
            "me",
            None,
            &[("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=a%2Bb%3D")],
        );
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let pairs = vec![pair("sv", "1"), pair("sig", "a+b=")];
        assert_eq!(account.unwrap().credentials, Credentials::Sas(pairs));
    }

    #[test]
    fn endpoints_are_split() {
        let split = |endpoint| split_endpoint("me", endpoint).unwrap();
        let is = |origin: &str, base: &str| (origin.to_owned(), base.to_owned());
        assert_eq!(split("http://127.0.0.1:1"), is("http://127.0.0.1:1", "/me"));
        assert_eq!(split("http://localhost/"), is("http://localhost", "/me"));
        assert_eq!(split("http://[::1]:1/you"), is("http://[::1]:1", "/you"));
        let named = "https://files.example.org";
        assert_eq!(split(named), is(named, ""));
        let refused = super::split_endpoint("me", "https://h/?sig=topsecret").unwrap_err();
        assert!(!refused.to_string().contains("topsecret"), "{refused}");
    }
}
