//! The limit of open files, which are mostly connections here.

use crate::config::TrackerConfig;
use crate::error::Error;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside connections: listeners, lists, snapshots, and events and probes over HTTP. Every
/// worker needs one more.
const RESERVE: u64 = 256;

/// Raises the soft limit of open files to the hard one and returns the most connections that fit:
/// the configured number, or fewer if that is the default. Otherwise accepting would fail when the
/// tracker is busiest.
pub(crate) fn max_connections(config: &TrackerConfig) -> Result<usize, Error> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current != limits.maximum {
        let raised = Rlimit {
            current: limits.maximum,
            ..limits
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let reserve = RESERVE + config.max_forwarder_workers as u64;
    fit(config.max_connections, reserve, limit)
}

fn fit(wanted: usize, reserve: u64, limit: u64) -> Result<usize, Error> {
    let needed = (wanted as u64).saturating_add(reserve);
    let fitting = limit.saturating_sub(reserve);
    if needed <= limit {
        return Ok(wanted);
    }
    if wanted != TrackerConfig::default().max_connections || fitting == 0 {
        return Err(Error::Descriptors {
            fitting,
            needed,
            limit,
        });
    }
    let connections = fitting as usize;
    tracing::debug!(
        connections,
        limit,
        "fewer connections than the default, because of the limit of open files"
    );
    Ok(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_cannot_fit_are_refused() {
        let default = TrackerConfig::default().max_connections;
        assert_eq!(fit(1000, 276, 4096).unwrap(), 1000);
        assert_eq!(fit(default, 276, 4096).unwrap(), 4096 - 276);
        let error = fit(5000, 276, 4096).unwrap_err().to_string();
        assert!(
            error
                .contains("needs 5276 open files, but the limit is 4096; lower it to at most 3820"),
            "{error}"
        );
        assert!(fit(default, 276, 200).is_err(), "not even for one");
    }
}
