//! Metrics for Prometheus.
//!
//! Each component keeps its own atomics and writes them out at a scrape ([`Collect`]); a
//! [`Registry`] only holds the collectors. Names are [`Family`] constants, in one place per crate,
//! checked at compile time and exposed unchanged.

mod exposition;
mod family;
mod process;
#[cfg(test)]
mod test_parser;

use parking_lot::RwLock;
use std::sync::Arc;

pub use exposition::{Exposition, Samples};
pub use family::{Family, Kind};
pub(crate) use process::ProcessMetrics;

/// The content type of the text exposition.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A source of metrics.
pub trait Collect: Send + Sync {
    /// Writes the current values. Called at every scrape: read atomics, compute nothing.
    fn collect(&self, out: &mut Exposition);
}

/// The collectors of a program.
///
/// ```
/// use headworks_service::metrics::{Collect, Exposition, Family, Registry};
///
/// const GATES: Family = Family::gauge("headworks_gates_open", "Gates that are open.");
///
/// struct Gates;
/// impl Collect for Gates {
///     fn collect(&self, out: &mut Exposition) {
///         out.family(&GATES).sample(&[("bank", "left")], 3.0);
///     }
/// }
///
/// let registry = Registry::new();
/// registry.add(std::sync::Arc::new(Gates));
/// assert!(registry.render().contains("headworks_gates_open{bank=\"left\"} 3\n"));
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    collectors: Arc<RwLock<Vec<Arc<dyn Collect>>>>,
}

impl Registry {
    /// A registry without collectors.
    #[must_use]
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds `collector`.
    pub fn add(&self, collector: Arc<dyn Collect>) {
        self.collectors.write().push(collector);
    }

    /// Renders all metrics in the text exposition format.
    #[must_use]
    pub fn render(&self) -> String {
        // Cloned, so that no collector runs under the lock.
        let collectors = self.collectors.read().clone();
        let mut out = Exposition::default();
        for collector in &collectors {
            collector.collect(&mut out);
        }
        out.to_string()
    }
}
