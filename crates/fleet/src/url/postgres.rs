//! `postgres://` URLs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Tls;
use super::authority::{Host, decode, split};
use super::parameters::Parameters;
use crate::error::{Error, Result};

const ADVICE: &str = "set PGPASSWORD, or name a file with lines `host:port:database:user:password` \
                      in PGPASSFILE";

const KNOWN: &[&str] = &["job", "sslmode", "sslrootcert"];

pub(super) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'/');

/// The address of a PostgreSQL database. It never contains a password.
///
/// Several hosts, separated by commas, are tried in order until one is not a standby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresUrl {
    pub(crate) user: Option<String>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) database: String,
    pub(crate) job: Option<JobName>,
    pub(crate) tls: Tls,
}

impl PostgresUrl {
    /// The user in the URL.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The servers to try, in order.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The job, for URLs of a migration's state.
    #[must_use]
    pub fn job(&self) -> Option<&JobName> {
        self.job.as_ref()
    }

    /// How connections are protected.
    #[must_use]
    pub fn tls(&self) -> &Tls {
        &self.tls
    }
}

impl FromStr for PostgresUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<PostgresUrl> {
        let pieces = split(text, 5432, ADVICE)?;
        let mut parameters = Parameters::parse(pieces.query, KNOWN, ADVICE)?;
        let database = decode(pieces.path, "database")?;
        if database.is_empty() || database.contains('/') {
            return Err(Error::Url(
                "name one database: `postgres://user@host/database`".to_owned(),
            ));
        }
        let job = parameters.take("job").map(|job| job.parse()).transpose()?;
        let roots = parameters.take("sslrootcert");
        let tls = tls(parameters.take("sslmode").as_deref(), roots, &pieces.hosts)?;
        Ok(PostgresUrl {
            user: pieces.user,
            hosts: pieces.hosts,
            database,
            job,
            tls,
        })
    }
}

/// Verified TLS, or none on the loopback interface. The modes in between protect against nobody
/// who can answer in the server's place.
fn tls(mode: Option<&str>, roots: Option<String>, hosts: &[Host]) -> Result<Tls> {
    let local = hosts.iter().all(Host::is_loopback);
    // `system` is libpq's word for the system's certificates.
    let roots = roots.filter(|roots| roots != "system").map(PathBuf::from);
    match mode {
        None if local && roots.is_none() => Ok(Tls::Off),
        None | Some("verify-full") => Ok(Tls::Verified { roots }),
        Some("disable") if local => Ok(Tls::Off),
        Some("disable") => Err(Error::Url(
            "`sslmode=disable` is for this machine only: use `verify-full`, with `sslrootcert` for \
             a CA of your own"
                .to_owned(),
        )),
        Some(_) => Err(Error::Url(
            "`sslmode` must be `verify-full`, or `disable` on this machine: other modes do not \
             verify the server"
                .to_owned(),
        )),
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoded = |text| utf8_percent_encode(text, ENCODED);
        f.write_str("postgres://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", encoded(user))?;
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{host}")?;
        }
        write!(f, "/{}?sslmode=", encoded(&self.database))?;
        match &self.tls {
            Tls::Off => f.write_str("disable")?,
            Tls::Verified { roots: None } => f.write_str("verify-full")?,
            Tls::Verified { roots: Some(roots) } => {
                let roots = roots.to_string_lossy();
                write!(f, "verify-full&sslrootcert={}", encoded(&roots))?;
            }
        }
        match &self.job {
            Some(job) => write!(f, "&job={job}"),
            None => Ok(()),
        }
    }
}

/// The name of a migration job; it becomes part of the name of a PostgreSQL schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobName(String);

impl JobName {
    /// The name of the PostgreSQL schema of this job. It needs quotes.
    #[must_use]
    pub fn schema(&self) -> String {
        format!("headworks_job_{}", self.0)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobName {
    type Err = Error;

    fn from_str(name: &str) -> Result<JobName> {
        // PostgreSQL cuts identifiers at 63 bytes, and two jobs must not meet in one schema.
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        if (1..=40).contains(&name.len()) && name.bytes().all(fits) {
            Ok(JobName(name.to_owned()))
        } else {
            Err(Error::Url(
                "a job's name has 1 to 40 characters of `a` to `z`, `0` to `9`, `-` and `_`"
                    .to_owned(),
            ))
        }
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
