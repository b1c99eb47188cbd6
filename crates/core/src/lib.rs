//! The scheduling core: decides which job runs next, and where.

mod backoff;
mod pressure;
mod scaler;
mod time;

pub use backoff::Backoff;
pub use pressure::{Pressure, Thresholds};
pub use scaler::{Scale, Scaler};
pub use time::Time;
