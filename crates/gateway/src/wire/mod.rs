//! Wire formats as pure functions over bytes. Nothing here does I/O, keeps state beyond one
//! message, or panics on input.

mod endpoint;
mod meter;
mod priority;
mod problem;
mod request_summary;

pub use endpoint::{Dialect, Endpoint};
pub use meter::{Meter, Usage, find_usage};
pub use priority::{class_name, read_priority};
pub use problem::Problem;
pub use request_summary::{OtherModels, RequestSummary, read_summary};
