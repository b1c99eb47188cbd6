//! The outcome of a forward: what a response or an error means for the job, for the forwarder and
//! for the time of the next announce. `handler` changes it only for silence, which it counts, for
//! rejections, and during an outage of our own network. There it becomes a
//! [`Report`](headworks_pool::Report) of the pool: `RetryAfter` is `retry_in`, which costs no
//! attempt.

use super::outage::NetworkEvidence;
use crate::client::ClientError;
use headworks_tracker_wire::RetryIn;
use headworks_tracker_wire::response::AnnounceResponse;
use std::time::Duration;

/// A `retry in` below this delays the job. For a longer one the job is done and the torrent is due
/// again at that time, so that the job does not occupy the queue.
const MAX_DELAY: Duration = Duration::from_secs(600);
/// The time until the next announce after an error.
const AFTER_ERROR: Duration = Duration::from_secs(60);
/// The shortest and the longest interval accepted from a forwarder, in seconds. A `retry in` is not
/// longer, either.
const INTERVALS: (u64, u64) = (60, 24 * 3600);

/// The outcome of a request to a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) job: JobOutcome,
    pub(super) forwarder: ForwarderHealth,
}

/// The outcome for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobOutcome {
    /// The job is done. The torrent is due at the forwarder again after this time.
    Done(Duration),
    /// The job is retried with backoff, and fails after the last attempt.
    Retry,
    /// The job is retried after this time. This costs no attempt.
    RetryAfter(Duration),
    /// The job failed. The torrent is due at the forwarder again after this time.
    Failed(Duration),
}

/// The outcome for the forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwarderHealth {
    /// The request was never sent, for a reason of our own.
    Unknown,
    /// The forwarder works.
    Healthy,
    /// The request failed. Many failures in a row suspend the forwarder.
    Fault,
    /// Nothing came back. A few silences in a row suspend the forwarder.
    Silent,
    /// The forwarder is overloaded and is suspended.
    Overloaded,
    /// The forwarder does not exist. It is disabled and probed from time to time.
    Unavailable,
    /// The forwarder answered with a status that may be about the torrent, its client, or all of
    /// us. In the last case it is disabled and probed from time to time.
    Rejected,
    /// The forwarder answered `retry in: never`, which may be about the torrent, its client, or all
    /// of us. In the last case it is disabled and not probed.
    Declined,
}

impl Outcome {
    /// Classifies a result. `usual` is our own announce interval.
    pub(super) fn of(
        result: &Result<AnnounceResponse, ClientError>,
        suspend: Duration,
        usual: Duration,
    ) -> Outcome {
        use ForwarderHealth::{
            Declined, Fault, Healthy, Overloaded, Rejected, Silent, Unavailable, Unknown,
        };
        let (job, forwarder) = match result {
            Ok(AnnounceResponse::Peers(peers)) => {
                let asked = peers.interval.map_or(usual.as_secs(), u64::from);
                let least = peers.min_interval.map_or(0, u64::from);
                let interval = asked.max(least).clamp(INTERVALS.0, INTERVALS.1);
                (JobOutcome::Done(Duration::from_secs(interval)), Healthy)
            }
            Ok(AnnounceResponse::Failure { retry_in, .. }) => match retry_in {
                // A forwarder that says 0 would be asked again at once, for ever.
                Some(RetryIn::After(wait)) if *wait < MAX_DELAY => {
                    (JobOutcome::RetryAfter((*wait).max(AFTER_ERROR)), Healthy)
                }
                Some(RetryIn::After(wait)) => {
                    let wait = (*wait).min(Duration::from_secs(INTERVALS.1));
                    (JobOutcome::Done(wait), Healthy)
                }
                Some(RetryIn::Never) => (JobOutcome::Failed(usual), Declined),
                None => (JobOutcome::Done(usual), Healthy),
            },
            Ok(_) => (JobOutcome::Failed(AFTER_ERROR), Fault),
            Err(error) => match error {
                // Unreachable says a router, and anybody can pretend to be one.
                ClientError::Timeout | ClientError::Lookup(_) | ClientError::Unreachable => {
                    (JobOutcome::Retry, Silent)
                }
                ClientError::Transient(_) | ClientError::Status(500..=599) => {
                    (JobOutcome::Retry, Fault)
                }
                ClientError::NoDescriptor => (JobOutcome::Retry, Unknown),
                ClientError::Status(429) => (JobOutcome::RetryAfter(suspend), Overloaded),
                ClientError::NoSuchHost | ClientError::PrivateHost | ClientError::Refused => {
                    (JobOutcome::Failed(AFTER_ERROR), Unavailable)
                }
                ClientError::Status(400 | 403 | 404) => (JobOutcome::Failed(usual), Rejected),
                ClientError::Status(_)
                | ClientError::TooLarge
                | ClientError::Malformed(_)
                | ClientError::Redirects
                | ClientError::UnsafeRedirect(_) => (JobOutcome::Failed(AFTER_ERROR), Fault),
            },
        };
        Outcome { job, forwarder }
    }

    /// Decides about a rejection, which is `of_all` torrents or of the one that was announced. A
    /// web server that never `answered` as a tracker is no tracker; it is probed without a torrent.
    pub(super) fn of_rejection(self, of_all: bool, answered: bool) -> Outcome {
        let no_tracker = self.forwarder == ForwarderHealth::Rejected && (of_all || !answered);
        let (job, forwarder) = match self.forwarder {
            _ if no_tracker => (
                JobOutcome::Failed(AFTER_ERROR),
                ForwarderHealth::Unavailable,
            ),
            ForwarderHealth::Declined if of_all => (self.job, self.forwarder),
            ForwarderHealth::Declined => {
                let longest = Duration::from_secs(INTERVALS.1);
                (JobOutcome::Failed(longest), ForwarderHealth::Healthy)
            }
            _ => (self.job, ForwarderHealth::Healthy),
        };
        Outcome { job, forwarder }
    }
}

/// Returns the meaning of a request's result for our own network.
pub(super) fn network_evidence<T>(result: &Result<T, ClientError>) -> NetworkEvidence {
    match result {
        Err(ClientError::Timeout | ClientError::Lookup(_) | ClientError::Unreachable) => {
            NetworkEvidence::Silence
        }
        Err(ClientError::Transient(_) | ClientError::NoDescriptor) => NetworkEvidence::Unclear,
        _ => NetworkEvidence::Works,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_tracker_wire::response;

    #[test]
    fn every_result_has_its_outcome() {
        use ForwarderHealth::{
            Declined, Fault, Healthy, Overloaded, Rejected, Silent, Unavailable, Unknown,
        };
        use JobOutcome::{Done, Failed, Retry, RetryAfter};
        let secs = Duration::from_secs;
        let text = |text: &str| Ok(response::parse(text.as_bytes()).unwrap());
        let failure = |rest: &str| text(&format!("d14:failure reason1:x{rest}e"));
        for (result, job, forwarder) in [
            (text("d8:intervali900e5:peers0:e"), Done(secs(900)), Healthy),
            (
                text("d8:intervali1e12:min intervali120ee"),
                Done(secs(120)),
                Healthy,
            ),
            (text("d8:intervali1ee"), Done(secs(60)), Healthy),
            (text("d8:intervali99999999ee"), Done(secs(86400)), Healthy),
            (text("de"), Done(secs(1800)), Healthy),
            (failure(""), Done(secs(1800)), Healthy),
            (failure("8:retry in1:9"), RetryAfter(secs(540)), Healthy),
            (failure("8:retry in1:0"), RetryAfter(secs(60)), Healthy),
            (failure("8:retry ini10e"), Done(secs(600)), Healthy),
            (
                failure("8:retry ini4294967295e"),
                Done(secs(86400)),
                Healthy,
            ),
            (failure("8:retry in5:never"), Failed(secs(1800)), Declined),
            (Err(ClientError::Timeout), Retry, Silent),
            (Err(ClientError::Lookup("x".into())), Retry, Silent),
            (Err(ClientError::Unreachable), Retry, Silent),
            (Err(ClientError::NoDescriptor), Retry, Unknown),
            (Err(ClientError::Status(503)), Retry, Fault),
            (Err(ClientError::Transient("reset".into())), Retry, Fault),
            (
                Err(ClientError::Status(429)),
                RetryAfter(secs(300)),
                Overloaded,
            ),
            (Err(ClientError::Status(404)), Failed(secs(1800)), Rejected),
            (Err(ClientError::Status(403)), Failed(secs(1800)), Rejected),
            (Err(ClientError::NoSuchHost), Failed(secs(60)), Unavailable),
            (Err(ClientError::Refused), Failed(secs(60)), Unavailable),
            (Err(ClientError::Status(418)), Failed(secs(60)), Fault),
            (Err(ClientError::TooLarge), Failed(secs(60)), Fault),
            (
                Err(ClientError::Malformed("html".into())),
                Failed(secs(60)),
                Fault,
            ),
        ] {
            let got = Outcome::of(&result, secs(300), secs(1800));
            assert_eq!((got.job, got.forwarder), (job, forwarder), "{result:?}");
        }
    }

    #[test]
    fn a_refusal_proves_that_the_network_works() {
        for (error, expected) in [
            (ClientError::Refused, NetworkEvidence::Works),
            (ClientError::NoSuchHost, NetworkEvidence::Works),
            (ClientError::Status(503), NetworkEvidence::Works),
            (
                ClientError::Malformed("html".into()),
                NetworkEvidence::Works,
            ),
            (ClientError::Timeout, NetworkEvidence::Silence),
            (ClientError::Unreachable, NetworkEvidence::Silence),
            (ClientError::Lookup("x".into()), NetworkEvidence::Silence),
            (ClientError::Transient("x".into()), NetworkEvidence::Unclear),
            (ClientError::NoDescriptor, NetworkEvidence::Unclear),
        ] {
            assert_eq!(
                network_evidence::<()>(&Err(error.clone())),
                expected,
                "{error}"
            );
        }
    }
}
