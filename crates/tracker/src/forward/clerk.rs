//! Who hands forwards in when their client has its answer.
//!
//! An announce may go to a hundred forwarders, and its answer depends on one of them at most. The pool's lock is shared with
//! threads that stand back: a thread that answers clients does not take it if it need not.

use super::intake::{Intake, Round};
use crate::counters::Counters;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

/// So many announces may lie there. With more, whoever brings one hands it in: so nobody brings more than can be done.
const DESK: usize = 256;

/// What a thread still has to bring once its clients have their answers.
#[derive(Default)]
pub(crate) struct Later(Vec<Round>);

impl Later {
    pub(super) fn push(&mut self, round: Round) {
        self.0.push(round);
    }
}

enum Errand {
    HandIn(Round),
    Answer(oneshot::Sender<()>),
}

/// The way to the clerk, who is among those that stand back.
pub(super) struct Clerk {
    errands: mpsc::Sender<Errand>,
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
            while let Some(errand) = brought.recv().await {
                match errand {
                    Errand::HandIn(mut round) => {
                        let count = round.chosen.len() as u64;
                        intake.hand_in(&mut round, usize::MAX, &counters);
                        left.fetch_sub(count, Ordering::Relaxed);
                    }
                    Errand::Answer(to) => drop(to.send(())),
                }
            }
        });
        Clerk { errands, behind }
    }

    /// Forwards that were brought and are not handed in yet.
    pub(super) fn behind(&self) -> u64 {
        self.behind.load(Ordering::Relaxed)
    }

    /// Brings what was left for later.
    pub(super) fn bring(&self, later: &mut Later, intake: &Intake, counters: &Counters) {
        for round in later.0.drain(..) {
            let count = round.chosen.len() as u64;
            self.behind.fetch_add(count, Ordering::Relaxed);
            let refused = self.errands.try_send(Errand::HandIn(round));
            if let Err(TrySendError::Full(errand) | TrySendError::Closed(errand)) = refused {
                self.behind.fetch_sub(count, Ordering::Relaxed);
                if let Errand::HandIn(mut round) = errand {
                    intake.hand_in(&mut round, usize::MAX, counters);
                }
            }
        }
    }

    /// Returns when everything that was brought before is handed in.
    pub(super) async fn caught_up(&self) {
        let (to, answer) = oneshot::channel();
        // If there is no clerk any more, nothing lies there either.
        if self.errands.send(Errand::Answer(to)).await.is_ok() {
            let _ = answer.await;
        }
    }
}
