//! Metrics of the admin listener: names and counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use http::StatusCode;

use crate::metrics::{Collect, Exposition, Family};

const REQUESTS: Family = Family::counter(
    "headworks_admin_requests_total",
    "Requests to the admin listener, by status class.",
);
const REFUSED: Family = Family::counter(
    "headworks_admin_refused_total",
    "Requests to the admin listener that failed authentication.",
);
const RELOADS: Family = Family::counter(
    "headworks_admin_reloads_total",
    "Reloads requested through the admin listener, by outcome.",
);
const STARTED: Family = Family::gauge(
    "headworks_start_time_seconds",
    "Start time of the process, as a Unix timestamp in seconds.",
);
const BUILD: Family = Family::gauge("headworks_build", "Always 1; the label has the version.");

/// Counters of the admin listener.
#[derive(Debug)]
pub(super) struct Counters {
    responses: [AtomicU64; 4],
    pub(super) refused: AtomicU64,
    pub(super) reloads_done: AtomicU64,
    pub(super) reloads_refused: AtomicU64,
    started: f64,
}

const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

impl Default for Counters {
    fn default() -> Counters {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Counters {
            responses: Default::default(),
            refused: AtomicU64::new(0),
            reloads_done: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
            started: since_1970.as_secs_f64(),
        }
    }
}

impl Counters {
    pub(super) fn count_response(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100)
            .saturating_sub(2)
            .min(CLASSES.len() - 1);
        self.responses[class].fetch_add(1, Ordering::Relaxed);
    }
}

impl Collect for Counters {
    fn collect(&self, out: &mut Exposition) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let mut requests = out.family(&REQUESTS);
        for (class, counter) in CLASSES.iter().zip(&self.responses) {
            requests.sample(&[("answer", class)], read(counter));
        }
        out.family(&REFUSED).sample(&[], read(&self.refused));
        out.family(&RELOADS)
            .sample(&[("outcome", "done")], read(&self.reloads_done))
            .sample(&[("outcome", "refused")], read(&self.reloads_refused));
        out.family(&STARTED).sample(&[], self.started);
        out.family(&BUILD)
            .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    }
}
