//! The scheduling core: decides which job runs next, and where.

mod time;

pub use time::Time;
