//! The limit of open files, which are mostly connections here.

use crate::config::TrackerConfig;
use crate::error::Error;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside connections: listeners, lists, snapshots and the sockets of UDP forwarders.
const OTHERS: u64 = 128;
/// The fewest and the most requests over HTTP that need no worker: events and probes.
const REQUESTS: (u64, u64) = (128, 4096);

/// The shares of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// The most connections of clients.
    pub(crate) connections: usize,
    /// The most requests over HTTP at once that need no worker.
    pub(crate) requests: usize,
}

impl Descriptors {
    /// Raises the soft limit of open files to the hard one and divides it. The connections are the
    /// configured number, or fewer if that is the default. Otherwise accepting would fail when the
    /// tracker is busiest.
    pub(crate) fn for_config(config: &TrackerConfig) -> Result<Descriptors, Error> {
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
        let workers = config.max_forwarder_workers as u64;
        Descriptors::divide(config.max_connections, workers, limit)
    }

    fn divide(wanted: usize, workers: u64, limit: u64) -> Result<Descriptors, Error> {
        let reserve = OTHERS + REQUESTS.0 + workers;
        let connections = fit(wanted, reserve, limit)?;
        // A list may have a thousand dead forwarders over HTTP. The more of them are probed at
        // once, the sooner the good ones are found.
        let spare = limit.saturating_sub(reserve + connections as u64);
        let requests = REQUESTS.0.saturating_add(spare).min(REQUESTS.1);
        Ok(Descriptors {
            connections,
            requests: requests as usize,
        })
    }
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

    #[test]
    fn the_limit_is_never_exceeded() {
        let default = TrackerConfig::default().max_connections;
        for (wanted, limit, expected) in [
            (1000, 4096, (1000, 4096 - 148 - 1000)),
            (default, 4096, (4096 - 276, 128)),
            (default, 1 << 20, (default, 4096)),
            (default, u64::MAX, (default, 4096)),
        ] {
            let divided = Descriptors::divide(wanted, 20, limit).unwrap();
            let Descriptors {
                connections,
                requests,
            } = divided;
            assert_eq!((connections, requests), expected, "of {limit}");
            assert!((connections + requests) as u64 + OTHERS + 20 <= limit);
        }
    }
}
