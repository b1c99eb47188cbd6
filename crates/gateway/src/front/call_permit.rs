//! The permit of a call. The charge is returned if the call ends before the upstream has the
//! request.

use std::sync::Arc;
use std::time::Instant;

use headworks_core::{Cost, TargetId};
use headworks_h1::CallProgress;
use headworks_pool::{Health, Permit, Report};

use super::request::ScheduledRequest;
use super::unread_output::UnreadOutput;

/// A permit whose call may be dropped at any moment, because the client disconnects.
pub(super) struct CallPermit {
    permit: Option<Permit>,
    target: TargetId,
    progress: Arc<CallProgress>,
    prompt: u64,
    unread: UnreadOutput,
    is_stream: bool,
}

impl CallPermit {
    pub(super) fn new(permit: Permit, request: &ScheduledRequest) -> CallPermit {
        CallPermit {
            target: permit.target(),
            permit: Some(permit),
            progress: request.progress.clone(),
            prompt: request.summary.prompt,
            unread: request.unread_output(Instant::now()),
            is_stream: request.summary.stream,
        }
    }

    pub(super) fn target(&self) -> TargetId {
        self.target
    }

    pub(super) fn aged(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::aged)
    }

    /// The permit, once the outcome of the call is known.
    pub(super) fn take(mut self) -> Permit {
        self.permit.take().expect("only this takes it")
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let cost = match self.progress.is_sent() {
            false => Cost(0),
            // The upstream may have generated something: at least the estimate is charged, and what
            // is booked if that is more.
            true => {
                let output = self.unread.for_leaver(self.is_stream);
                Cost(self.prompt.saturating_add(output)).max(permit.cost())
            }
        };
        permit.finish(Report::done_at(cost).target(Health::Unknown));
    }
}
