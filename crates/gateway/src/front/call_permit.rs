//! The permit of a call. The charge is returned if the call ends before the upstream has the
//! request.

use std::sync::Arc;

use headworks_core::{Cost, TargetId};
use headworks_h1::CallProgress;
use headworks_pool::{Health, Permit, Report};

/// A permit whose call may be dropped at any moment, because the client disconnects.
pub(super) struct CallPermit {
    permit: Option<Permit>,
    target: TargetId,
    progress: Arc<CallProgress>,
}

impl CallPermit {
    pub(super) fn new(permit: Permit, progress: &Arc<CallProgress>) -> CallPermit {
        CallPermit {
            target: permit.target(),
            permit: Some(permit),
            progress: progress.clone(),
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
        // The upstream may have generated something: the permit charges its estimate.
        if self.progress.is_sent() {
            return;
        }
        if let Some(permit) = self.permit.take() {
            permit.finish(Report::done_at(Cost(0)).target(Health::Unknown));
        }
    }
}
