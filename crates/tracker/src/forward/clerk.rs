//! Who passes announces on when their clients have their answers.
//!
//! An announce may go to a hundred forwarders, and its answer depends on one of them at most. The
//! pool's lock is shared with threads that stand back: a thread that answers clients does not take
//! it if it need not.

use super::intake::{Intake, Round, Wanted};
use crate::counters::Counters;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

/// So many errands may lie there. With more, whoever brings one runs it: so nobody brings more than
/// can be done.
const DESK: usize = 256;

/// What is to be done when the answers are sent.
pub(super) enum Errand {
    /// It is to be asked for.
    Ask(Wanted),
    /// It is known who is to be asked.
    HandIn(Round),
    /// Whoever sent it wants to know that it was its turn.
    Report(oneshot::Sender<()>),
}

impl Errand {
    /// How many forwards come of it at most.
    fn forwards(&self, intake: &Intake) -> u64 {
        let count = match self {
            Errand::Ask(_) => {
                let plan = intake.shared.plan();
                let most = plan.config.max_forwarders_per_announce;
                plan.forwarders().count().min(most)
            }
            Errand::HandIn(round) => round.chosen.len(),
            Errand::Report(_) => 0,
        };
        count as u64
    }
}

/// What a thread still has to bring once its clients have their answers.
#[derive(Default)]
pub(crate) struct Later(Vec<Errand>);

impl Later {
    pub(super) fn push(&mut self, errand: Errand) {
        self.0.push(errand);
    }
}

/// The way to the clerk, who is among those that stand back.
pub(super) struct Clerk {
    errands: mpsc::Sender<(Errand, u64)>,
    /// Forwards that lie there.
    behind: Arc<AtomicU64>,
}

impl Clerk {
    /// Call it where the clerk is to run.
    pub(super) fn start(intake: Intake) -> Clerk {
        let (errands, mut brought) = mpsc::channel(DESK);
        let behind = Arc::new(AtomicU64::new(0));
        let left = behind.clone();
        let counters = intake.shared.counters();
        tokio::spawn(async move {
            while let Some((errand, forwards)) = brought.recv().await {
                run(errand, &intake, &counters);
                left.fetch_sub(forwards, Ordering::Release);
            }
        });
        Clerk { errands, behind }
    }

    /// Forwards that were brought and are not handed in yet, at most.
    pub(super) fn behind(&self) -> u64 {
        self.behind.load(Ordering::Acquire)
    }

    /// Brings what was left for later.
    pub(super) fn bring(&self, later: &mut Later, intake: &Intake, counters: &Counters) {
        for errand in later.0.drain(..) {
            let forwards = errand.forwards(intake);
            self.behind.fetch_add(forwards, Ordering::Relaxed);
            let refused = self.errands.try_send((errand, forwards));
            if let Err(TrySendError::Full((errand, _)) | TrySendError::Closed((errand, _))) =
                refused
            {
                run(errand, intake, counters);
                self.behind.fetch_sub(forwards, Ordering::Release);
            }
        }
    }

    /// Returns when everything that was brought before is handed in.
    pub(super) async fn caught_up(&self) {
        let (to, turn) = oneshot::channel();
        // If there is no clerk any more, nothing lies there either.
        if self.errands.send((Errand::Report(to), 0)).await.is_ok() {
            let _ = turn.await;
        }
    }
}

fn run(errand: Errand, intake: &Intake, counters: &Counters) {
    match errand {
        Errand::Ask(wanted) => intake.ask(wanted, intake.pool.pressure(0), counters),
        Errand::HandIn(mut round) => {
            intake.hand_in(&mut round, usize::MAX, counters);
        }
        Errand::Report(to) => drop(to.send(())),
    }
}
