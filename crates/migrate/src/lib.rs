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

mod control;
mod copy;
mod error;
mod filter;
mod job;
mod names;
mod panel;
mod plan;
mod progress;
mod queries;
mod side;
mod status;
mod store;
mod verify;

pub use control::{Request, send_request};
pub use copy::{CopyOptions, Delete, Deletion, Preflight};
pub use error::{Error, Result};
pub use filter::Filters;
pub use headworks_storage::{Requests, display};
pub use job::{Job, Settings};
pub use panel::{MigrateConfig, Migrations};
pub use progress::{
    Activity, Phase, Progress, ProgressSnapshot, RateMeter, Round, SideProgress, SideSnapshot,
};
pub use queries::{
    Class, Count, EntryReport, Explanation, FailedEntry, Outcome, StateReader, Summary,
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
    let seconds = nanos.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Civil calendar from a day count, in eras of 400 years that begin in March (Howard Hinnant,
    // `chrono`-Compatible Low-Level Date Algorithms).
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Returns a random number for jitter and job names. Not cryptographic.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
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
