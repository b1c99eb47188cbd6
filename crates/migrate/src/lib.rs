//! Moves a tree from one storage to another, loses nothing, and proves it.
//!
//! A [`Job`] holds a state file and two backends. [`Job::plan`] walks both trees and records every
//! entry; [`Job::copy`] copies what is missing or different; [`Job::verify`] checks the destination
//! again. Each of them can be killed at any time and resumes where it was. [`StateReader`] reads a
//! state file, also while another process runs the job.
//!
//! The state file is authoritative; memory holds a window of it. The source's rows say what must
//! exist, the destination's rows what exists. A status is derived from both and never stored, so it
//! cannot be stale.

mod concurrency;
mod control;
mod copy;
mod error;
mod filter;
mod job;
mod names;
mod panel;
mod plan;
mod preserve;
mod progress;
mod queries;
mod side;
mod status;
mod store;
mod verify;

pub use control::{Request, send_request};
pub use copy::{CopyOptions, Delete, Deletion, Existing, Preflight};
pub use error::{Error, Result};
pub use filter::Filters;
pub use headworks_storage::{OwnerMap, Requests, display};
pub use job::{Job, Settings};
pub use panel::{MigrateConfig, Migrations};
pub use preserve::Preserve;
pub use progress::{
    Activity, Phase, Progress, ProgressSnapshot, RateMeter, Round, SideProgress, SideSnapshot,
};
pub use queries::{
    Class, Count, EntryReport, Explanation, FailedEntry, LostAttributes, Outcome, StateReader,
    Summary,
};
pub use status::{Difference, Status};
pub use store::lock_holder;
pub use verify::{Verification, VerifyOptions};

/// Returns nanoseconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}

/// Formats a time for people, in UTC.
#[must_use]
pub fn clock(nanos: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(nanos.into()).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn clocks_are_right() {
        assert_eq!(super::clock(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(
            super::clock(951_782_399_000_000_000),
            "2000-02-28 23:59:59 UTC"
        );
        assert_eq!(
            super::clock(951_782_400_000_000_000),
            "2000-02-29 00:00:00 UTC"
        );
        assert_eq!(super::clock(-1), "1969-12-31 23:59:59 UTC");
    }
}
