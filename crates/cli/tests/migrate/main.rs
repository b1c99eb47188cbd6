//! `headworks migrate`, run as a user runs it, and checked by independent programs.

mod controls;
mod corrupt;
mod crashes;
mod deep;
mod deletions;
mod destinations;
mod explanations;
mod exported_keys;
mod faults;
mod interruptions;
mod limited_fs;
mod older;
mod outages;
mod overlap;
mod overwrites;
mod pauses;
mod reports;
mod since_plan;
mod support;
mod trees;
mod verification;
