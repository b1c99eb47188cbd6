//! Credentials: the standard chain of AWS tools.
//!
//! The environment, a web identity, the profile files, the container's and the machine's role, in
//! this order. Keys are kept in memory only and refreshed before they expire. Their debug output is
//! redacted.

mod partition;
mod process;
mod profile;
mod roles;

pub(crate) use partition::dns_suffix;
pub(crate) use roles::metadata_token;

use crate::cloud::renewing::Renewing;
use crate::cloud::{Clients, Environment, Recovery};
use crate::error::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Access keys, and their expiry in seconds since 1970.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AccessKeys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
    pub(super) expires: Option<i64>,
}

impl std::fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(hidden)")
    }
}

/// The source of keys.
#[derive(Clone)]
enum Source {
    Anonymous,
    Fixed(AccessKeys),
    /// The keys of a profile, which another program may replace.
    Profile(profile::Profile),
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
            Source::Profile(profile) => write!(f, "Profile({})", profile.name),
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
    clients: Clients,
    current: Renewing<AccessKeys>,
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
        clients: Clients,
    ) -> Result<(Credentials, ProfileDefaults)> {
        let get = |name: &str| environment(name);
        let named = profile.map(str::to_owned).or_else(|| get("AWS_PROFILE"));
        let home = get("HOME").map(PathBuf::from).unwrap_or_default();
        let file = |name: &str, usual: &str| {
            get(name).map_or_else(|| home.join(".aws").join(usual), PathBuf::from)
        };
        let profile_name = named.as_deref().unwrap_or("default");
        let files = profile::Profile {
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: file("AWS_CONFIG_FILE", "config"),
            name: profile_name.to_owned(),
        };
        let settings = files.read()?;
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
            let chain = Chain {
                get: &get,
                in_location: profile.is_some(),
                named: named.is_some(),
                files,
                settings: &settings,
                region: defaults.region.as_deref(),
            };
            chain.source()?
        };
        let found = Credentials {
            source,
            clients,
            current: Renewing::default(),
        };
        Ok((found, defaults))
    }

    /// Returns the keys to sign with; `None` for anonymous access.
    pub(crate) async fn keys(&self) -> Result<Option<Arc<AccessKeys>>> {
        if let Source::Anonymous = self.source {
            return Ok(None);
        }
        self.current.get(|| self.fetch()).await.map(Some)
    }

    async fn fetch(&self) -> Result<(AccessKeys, Option<i64>)> {
        let Clients { direct, proxied } = &self.clients;
        let keys = match &self.source {
            Source::Anonymous => return Err(no_credentials()),
            Source::Fixed(keys) => keys.clone(),
            Source::Profile(profile) => profile_keys(&profile.read()?)
                .ok_or_else(|| fail("use the profile", &profile.name, "its keys are gone"))??,
            Source::WebIdentity(identity) => identity.fetch(proxied).await?,
            Source::Container(container) => container.fetch(direct).await?,
            Source::Instance(base) => roles::instance(direct, base).await?,
            Source::Process(profile, command) => process::fetch(profile, command).await?,
        };
        let expires = keys.expires;
        Ok((keys, expires))
    }

    /// Discards the keys with a session token that a service rejected. Returns when there may be
    /// others.
    pub(super) fn reject(&self, token: Option<&str>) -> Recovery {
        match self.source {
            Source::Anonymous | Source::Fixed(_) => Recovery::Impossible,
            _ => self.current.reject(|keys| keys.token.as_deref() == token),
        }
    }
}

/// The settings that decide about the source of keys.
struct Chain<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the location names a profile.
    in_location: bool,
    /// Whether the location or the environment does.
    named: bool,
    files: profile::Profile,
    settings: &'a profile::Settings,
    region: Option<&'a str>,
}

impl Chain<'_> {
    fn source(self) -> Result<Source> {
        let Chain { get, settings, .. } = self;
        // As in AWS's own tools: keys in the environment precede `AWS_PROFILE`. Only a profile that
        // the location names precedes them.
        if !self.in_location
            && let (Some(id), Some(secret)) =
                (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"))
        {
            let keys = fixed(&id, &secret, get("AWS_SESSION_TOKEN").as_deref())?;
            return Ok(Source::Fixed(keys));
        }
        let identity = |file: String, role: String, session| {
            let service = get("AWS_ENDPOINT_URL_STS");
            let service = service.unwrap_or_else(|| partition::sts(self.region, &role));
            Source::WebIdentity(roles::WebIdentity::new(file, role, session, service))
        };
        if !self.named
            && let (Some(file), Some(role)) =
                (get("AWS_WEB_IDENTITY_TOKEN_FILE"), get("AWS_ROLE_ARN"))
        {
            return Ok(identity(file, role, get("AWS_ROLE_SESSION_NAME")));
        }
        let setting = |name: &str| settings.get(name).cloned();
        if let (Some(file), Some(role)) = (setting("web_identity_token_file"), setting("role_arn"))
        {
            return Ok(identity(file, role, setting("role_session_name")));
        }
        // A role must be assumed: the keys beside it are only for that.
        let by_tool = ["role_arn", "sso_session", "sso_start_url"];
        let profile = self.files.name.clone();
        if by_tool.iter().any(|name| settings.contains_key(*name)) {
            let command = export_command(&profile);
            return Ok(Source::Process(profile, command));
        }
        if let Some(keys) = profile_keys(settings) {
            return keys.map(|_| Source::Profile(self.files));
        }
        if let Some(command) = setting("credential_process") {
            return Ok(Source::Process(profile, command));
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
}

/// Returns the keys of a profile, if it has any.
fn profile_keys(settings: &profile::Settings) -> Option<Result<AccessKeys>> {
    let id = settings.get("aws_access_key_id")?;
    let secret = settings.get("aws_secret_access_key")?;
    let token = settings.get("aws_session_token").map(String::as_str);
    Some(fixed(id, secret, token))
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
fn fixed(id: &str, secret: &str, token: Option<&str>) -> Result<AccessKeys> {
    let keys = AccessKeys {
        id: id.trim().to_owned(),
        secret: secret.trim().to_owned(),
        token: token.map(|token| token.trim().to_owned()),
        expires: None,
    };
    let is_line = |text: &str| http::HeaderValue::from_str(text).is_ok();
    match is_line(&keys.id) && keys.token.as_deref().is_none_or(is_line) {
        true => Ok(keys),
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
