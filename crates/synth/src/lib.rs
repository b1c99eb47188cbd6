//! Synthetic trees and loads, computed from a seed and never stored.
//!
//! For the simulator, benchmarks, tests and the `synth://` storage: work of any size without a
//! disk, and reproducible from its seed. Everything here is a pure function of its description.
//! Nothing reads a clock, a file or the system's random numbers, and results depend neither on the
//! platform's mathematics library nor on the order of calls.
//!
//! * [`Tree`]: folders and files whose children are computed from the folder alone, with a second
//!   tree that differs from the first in a known way, and contents for ranged reads.
//! * [`Arrivals`] and [`Distribution`]: arrival times and costs of requests.
//! * [`Rng`]: the generator under both, whose output is pinned by a test.

mod error;
mod load;
mod math;
mod rng;
mod spread;
mod tree;
mod units;

pub use error::SynthError;
pub use load::{Arrival, Arrivals, Distribution, Stream, Weighted};
pub use rng::Rng;
pub use spread::{Fraction, Spread};
pub use tree::{Children, Difference, Kind, NameKind, Node, Side, Totals, Tree, TreeSpec, Walk};
pub use units::parse_duration;
