//! Loads: arrival times and costs of requests.
//!
//! A description ([`Arrivals`], [`Distribution`]) holds only numbers and can be read from a
//! scenario file. A [`Stream`] is one run of it and owns its position.

mod arrivals;
mod distribution;
mod stream;

pub use arrivals::Arrivals;
pub use distribution::{Distribution, Weighted};
pub use stream::{Arrival, Stream};
