//! Loads: when requests come, and how much each costs.
//!
//! A description ([`Arrivals`], [`Distribution`]) holds numbers only and can be read from a
//! scenario file. A [`Stream`] is one run of it; it owns where it has come to.

mod arrivals;
mod distribution;
mod stream;

pub use arrivals::Arrivals;
pub use distribution::{Distribution, Weighted};
pub use stream::{Arrival, Stream};
