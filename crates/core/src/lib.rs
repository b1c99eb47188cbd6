//! The scheduling core: decides which job runs next, and where.

mod backoff;
mod coordinator;
mod pressure;
pub mod rounds;
mod scaler;
mod time;

pub use backoff::Backoff;
pub use coordinator::{Coordinator, Side};
pub use pressure::{Pressure, Thresholds};
pub use rounds::Rounds;
pub use scaler::{Scale, Scaler};
pub use time::Time;
