//! Credentials: the standard chain of AWS tools.
//!
//! The environment, a web identity, the profile files, the container's and the machine's role, in
//! this order. Keys are kept in memory only and refreshed before they expire. Their debug output is
//! redacted.

mod process;
mod profile;
mod roles;

use crate::cloud::Environment;
use crate::error::{Error, ErrorKind, Result};
use headworks_outbound::Outbound;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Access keys, and their expiry in seconds since 1970.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AccessKeys {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
    pub(super) expires: Option<i64>,
}

impl std::fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(hidden)")
    }
}

/// Keys are refreshed when they are valid for less than this, in seconds.
const REFRESH_MARGIN: i64 = 300;
/// Keys that have not expired are fetched at most this often.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// The source of keys.
#[derive(Clone)]
enum Source {
    Anonymous,
    Fixed(AccessKeys),
    WebIdentity(roles::WebIdentity),
    Container(roles::Container),
    Instance(String),
    /// A profile, and the command that prints its keys. The command may contain secrets.
    Process(String, String),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Anonymous => f.write_str("Nobody"),
            Source::Fixed(keys) => keys.fmt(f),
            Source::WebIdentity(identity) => identity.fmt(f),
            Source::Container(container) => container.fmt(f),
            Source::Instance(base) => write!(f, "Instance({base})"),
            Source::Process(profile, _) => write!(f, "Process({profile})"),
        }
    }
}

/// The source of keys, and the current ones.
pub(crate) struct Credentials {
    source: Source,
    outbound: Outbound,
    /// The keys, and when they were fetched.
    current: Mutex<Option<(Arc<AccessKeys>, Instant)>>,
    fetching: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Region and endpoint from the profile files and the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProfileDefaults {
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl Credentials {
    /// Finds the source of keys; makes no call.
    ///
    /// # Errors
    /// When the requested profile does not exist or is of an unsupported kind.
    pub(crate) fn find(
        environment: &Environment,
        profile: Option<&str>,
        anonymous: bool,
        outbound: Outbound,
    ) -> Result<(Credentials, ProfileDefaults)> {
        let get = |name: &str| environment(name);
        let named = profile.map(str::to_owned).or_else(|| get("AWS_PROFILE"));
        let home = get("HOME").map(PathBuf::from).unwrap_or_default();
        let file = |name: &str, usual: &str| {
            get(name).map_or_else(|| home.join(".aws").join(usual), PathBuf::from)
        };
        let profile_name = named.as_deref().unwrap_or("default");
        let settings = profile::read(
            &file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            &file("AWS_CONFIG_FILE", "config"),
            profile_name,
        )?;
        let variables = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let environment_keys =
            profile.is_none() && variables.iter().all(|name| get(name).is_some());
        if named.is_some() && settings.is_empty() && !environment_keys {
            let message = "no such profile in the credentials and config files";
            return Err(fail("use the profile", profile_name, message));
        }
        let region = get("AWS_REGION").or_else(|| get("AWS_DEFAULT_REGION"));
        let endpoint = get("AWS_ENDPOINT_URL_S3").or_else(|| get("AWS_ENDPOINT_URL"));
        let defaults = ProfileDefaults {
            region: region.or_else(|| settings.get("region").cloned()),
            endpoint: endpoint.or_else(|| settings.get("endpoint_url").cloned()),
        };
        let source = if anonymous {
            Source::Anonymous
        } else {
            source(
                &get,
                (profile.is_some(), named.is_some()),
                profile_name,
                &settings,
            )?
        };
        let found = Credentials {
            source,
            outbound,
            current: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        };
        Ok((found, defaults))
    }

    /// Returns the keys to sign with; `None` for anonymous access.
    pub(super) async fn keys(&self) -> Result<Option<Arc<AccessKeys>>> {
        if let Source::Anonymous = self.source {
            return Ok(None);
        }
        if let Some(keys) = self.unexpired() {
            return Ok(Some(keys));
        }
        let _one_at_a_time = self.fetching.lock().await;
        if let Some(keys) = self.unexpired() {
            return Ok(Some(keys));
        }
        let fetched = match &self.source {
            Source::Anonymous => return Ok(None),
            Source::Fixed(keys) => keys.clone(),
            Source::WebIdentity(identity) => identity.fetch(&self.outbound).await?,
            Source::Container(container) => container.fetch(&self.outbound).await?,
            Source::Instance(base) => roles::instance(&self.outbound, base).await?,
            Source::Process(profile, command) => process::fetch(profile, command).await?,
        };
        let keys = Arc::new(fetched);
        *self.current.lock() = Some((keys.clone(), Instant::now()));
        Ok(Some(keys))
    }

    /// Discards the current keys after the service rejected them as expired.
    pub(super) fn expired(&self) {
        *self.current.lock() = None;
    }

    fn unexpired(&self) -> Option<Arc<AccessKeys>> {
        let now = jiff::Timestamp::now().as_second();
        let (current, fetched) = self.current.lock().clone()?;
        // Keys that are short-lived from the start are not fetched for every request.
        let is_new = fetched.elapsed() < REFRESH_INTERVAL;
        let margin = if is_new { 0 } else { REFRESH_MARGIN };
        let is_valid = current.expires.is_none_or(|expires| expires - margin > now);
        is_valid.then_some(current)
    }
}

fn source(
    get: &dyn Fn(&str) -> Option<String>,
    (in_location, named): (bool, bool),
    profile: &str,
    settings: &profile::Settings,
) -> Result<Source> {
    // As in AWS's own tools: keys in the environment precede `AWS_PROFILE`. Only a profile that the
    // location names precedes them.
    if !in_location
        && let (Some(id), Some(secret)) = (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"))
    {
        return fixed(&id, &secret, get("AWS_SESSION_TOKEN").as_deref());
    }
    let sts = get("AWS_ENDPOINT_URL_STS");
    if !named
        && let (Some(file), Some(role)) = (get("AWS_WEB_IDENTITY_TOKEN_FILE"), get("AWS_ROLE_ARN"))
    {
        let session = get("AWS_ROLE_SESSION_NAME");
        return Ok(Source::WebIdentity(roles::WebIdentity::new(
            file, role, session, sts,
        )));
    }
    let has_role = settings.contains_key("role_arn");
    if let (Some(file), Some(role)) = (
        settings.get("web_identity_token_file"),
        settings.get("role_arn"),
    ) {
        let session = settings.get("role_session_name").cloned();
        let identity = roles::WebIdentity::new(file.clone(), role.clone(), session, sts);
        return Ok(Source::WebIdentity(identity));
    }
    // A role must be assumed: the keys beside it are only for that.
    if has_role || settings.contains_key("sso_session") || settings.contains_key("sso_start_url") {
        return Ok(Source::Process(profile.to_owned(), export_command(profile)));
    }
    if let (Some(id), Some(secret)) = (
        settings.get("aws_access_key_id"),
        settings.get("aws_secret_access_key"),
    ) {
        let token = settings.get("aws_session_token").map(String::as_str);
        return fixed(id, secret, token);
    }
    if let Some(command) = settings.get("credential_process") {
        return Ok(Source::Process(profile.to_owned(), command.clone()));
    }
    if let Some(container) = roles::Container::find(get) {
        return Ok(Source::Container(container));
    }
    if get("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value == "true") {
        return Err(no_credentials());
    }
    let base = get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    Ok(Source::Instance(
        base.unwrap_or_else(|| "http://169.254.169.254".to_owned()),
    ))
}

/// The command of AWS's own tool that prints the keys of any profile: single sign-on, assumed
/// roles, chains of profiles. It is run again before the keys expire.
fn export_command(profile: &str) -> String {
    let quoted = profile.replace('\'', r"'\''");
    format!("aws configure export-credentials --format process --profile '{quoted}'")
}

/// Parses a time into seconds since 1970.
fn seconds(time: &str) -> Option<i64> {
    Some(time.parse::<jiff::Timestamp>().ok()?.as_second())
}

/// Accepts keys with a trailing newline, but not with several lines.
fn fixed(id: &str, secret: &str, token: Option<&str>) -> Result<Source> {
    let keys = AccessKeys {
        id: id.trim().to_owned(),
        secret: secret.trim().to_owned(),
        token: token.map(|token| token.trim().to_owned()),
        expires: None,
    };
    let is_line = |text: &str| http::HeaderValue::from_str(text).is_ok();
    match is_line(&keys.id) && keys.token.as_deref().is_none_or(is_line) {
        true => Ok(Source::Fixed(keys)),
        // The error must not repeat the keys.
        false => {
            let message = "the key or the session token contains invalid characters; set each to one line of text";
            Err(fail("use the keys for", "s3", message))
        }
    }
}

fn fail(operation: &'static str, on: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, operation, on.as_bytes(), message)
}

/// Returns the error when no credentials were found.
fn no_credentials() -> Error {
    let message = "found none in the environment, the profile files, or a role of this container or machine; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add ?anonymous to the URL of a public bucket";
    fail("find credentials for", "s3", message)
}

#[cfg(test)]
mod tests;
