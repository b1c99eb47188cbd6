//! Wire formats as pure functions over bytes. Nothing here does I/O, keeps state beyond one
//! message, or panics on input.

mod ask;
mod endpoint;
pub mod http1;
mod meter;
mod priority;
mod problem;

pub use ask::{Ask, read_ask};
pub use endpoint::{Dialect, Endpoint};
pub use meter::{Meter, Usage, find_usage};
pub use priority::{class_name, read_priority};
pub use problem::Problem;
