//! `headworks migrate`, run as a user runs it, and checked by independent programs.

mod controls;
mod corrupt;
mod crashes;
mod deep;
mod deletions;
mod destinations;
mod faults;
mod limited_fs;
mod older;
mod outages;
mod overlap;
mod overwrites;
mod pauses;
mod support;
mod trees;
