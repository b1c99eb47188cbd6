//! The one place that decides what a forwarder's answer means: for the forward, for the forwarder,
//! and for when it is asked again.

use super::AskError;
use headworks_tracker_wire::RetryIn;
use headworks_tracker_wire::response::AnnounceResponse;
use std::time::Duration;

/// Whoever asks for less patience than this gets it; for more, the forward counts as done until
/// then.
const PATIENCE: Duration = Duration::from_secs(600);
/// When a forwarder is asked again after an error that says nothing about it.
const AFTER_ERROR: Duration = Duration::from_secs(60);
/// The bounds of an interval that is believed.
const INTERVALS: (u64, u64) = (60, 24 * 3600);

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) forward: Fate,
    pub(super) forwarder: Standing,
    /// Whether it was the network that failed, theirs or ours.
    pub(super) network: bool,
}

/// What becomes of the forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is done; the forwarder is asked again after so long.
    Done(Duration),
    /// It is tried again after a pause, and counts as failed when that was often enough.
    Retry,
    /// It is tried again when the forwarder wants it.
    Later(Duration),
    /// It failed; the forwarder is asked again after so long.
    Failed(Duration),
}

/// How the forwarder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It works.
    Fine,
    /// It failed; many of those in a row suspend it.
    Fault,
    /// It has too much to do.
    Overloaded,
    /// It is not there, or will not have us: it is disabled, and looked at again now and then.
    Gone,
    /// It never wants to hear of us again.
    Never,
}

/// What `outcome` means. `usual` is our own announce interval.
pub(super) fn judge(
    outcome: &Result<AnnounceResponse, AskError>,
    suspend: Duration,
    usual: Duration,
) -> Judgement {
    use Standing::{Fault, Fine, Gone, Never, Overloaded};
    let (forward, forwarder) = match outcome {
        Ok(AnnounceResponse::Peers(peers)) => {
            let asked = peers.interval.map_or(usual.as_secs(), u64::from);
            let least = peers.min_interval.map_or(0, u64::from);
            let interval = asked.max(least).clamp(INTERVALS.0, INTERVALS.1);
            (Fate::Done(Duration::from_secs(interval)), Fine)
        }
        Ok(AnnounceResponse::Failure { retry_in, .. }) => match retry_in {
            Some(RetryIn::After(wait)) if *wait < PATIENCE => (Fate::Later(*wait), Fine),
            Some(RetryIn::After(wait)) => (Fate::Done(*wait), Fine),
            Some(RetryIn::Never) => (Fate::Failed(usual), Never),
            None => (Fate::Done(usual), Fine),
        },
        Ok(_) => (Fate::Failed(AFTER_ERROR), Fault),
        Err(error) => match error {
            AskError::Timeout | AskError::Passing(_) | AskError::Status(500..=599) => {
                (Fate::Retry, Fault)
            }
            AskError::Status(429) => (Fate::Later(suspend), Overloaded),
            AskError::NoSuchHost
            | AskError::Refused
            | AskError::Unreachable
            | AskError::Status(400 | 403 | 404) => (Fate::Failed(AFTER_ERROR), Gone),
            AskError::Status(_)
            | AskError::TooLarge
            | AskError::Garbage(_)
            | AskError::Redirects => (Fate::Failed(AFTER_ERROR), Fault),
        },
    };
    let network = matches!(
        outcome,
        Err(AskError::Timeout
            | AskError::Passing(_)
            | AskError::NoSuchHost
            | AskError::Refused
            | AskError::Unreachable)
    );
    Judgement {
        forward,
        forwarder,
        network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_tracker_wire::response;

    #[test]
    fn what_answers_mean() {
        use Fate::{Done, Failed, Later, Retry};
        use Standing::{Fault, Fine, Gone, Never, Overloaded};
        let secs = Duration::from_secs;
        let text = |text: &str| Ok(response::parse(text.as_bytes()).unwrap());
        let failure = |rest: &str| text(&format!("d14:failure reason1:x{rest}e"));
        for (outcome, forward, forwarder) in [
            (text("d8:intervali900e5:peers0:e"), Done(secs(900)), Fine),
            (
                text("d8:intervali1e12:min intervali120ee"),
                Done(secs(120)),
                Fine,
            ),
            (text("d8:intervali1ee"), Done(secs(60)), Fine),
            (text("d8:intervali99999999ee"), Done(secs(86400)), Fine),
            (text("de"), Done(secs(1800)), Fine),
            (failure(""), Done(secs(1800)), Fine),
            (failure("8:retry in1:9"), Later(secs(540)), Fine),
            (failure("8:retry ini10e"), Done(secs(600)), Fine),
            (failure("8:retry in5:never"), Failed(secs(1800)), Never),
            (Err(AskError::Timeout), Retry, Fault),
            (Err(AskError::Status(503)), Retry, Fault),
            (Err(AskError::Passing("reset".into())), Retry, Fault),
            (Err(AskError::Status(429)), Later(secs(300)), Overloaded),
            (Err(AskError::Status(404)), Failed(secs(60)), Gone),
            (Err(AskError::Status(403)), Failed(secs(60)), Gone),
            (Err(AskError::NoSuchHost), Failed(secs(60)), Gone),
            (Err(AskError::Refused), Failed(secs(60)), Gone),
            (Err(AskError::Status(418)), Failed(secs(60)), Fault),
            (Err(AskError::TooLarge), Failed(secs(60)), Fault),
            (
                Err(AskError::Garbage("html".into())),
                Failed(secs(60)),
                Fault,
            ),
        ] {
            let got = judge(&outcome, secs(300), secs(1800));
            assert_eq!(
                (got.forward, got.forwarder),
                (forward, forwarder),
                "{outcome:?}"
            );
        }
    }
}
