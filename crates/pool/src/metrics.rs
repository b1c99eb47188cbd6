//! A pool in numbers, and the one place where the numbers get their names.
//!
//! A snapshot: it is taken under the lock, named and formatted outside it. Applications add a
//! prefix of their own and must not rename a metric; dashboards of all applications read the same
//! names.

use headworks_core::{Class, Reason, View};

/// The state of a pool at one moment.
///
/// ```
/// use headworks_pool::{Config, Job, Permits, Report};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let permits = Permits::new(Config::default())?;
/// permits.acquire(Job::new(())).await?.finish(Report::done());
/// let samples = permits.metrics().samples();
/// let granted = samples.iter().find(|sample| sample.name == "granted").expect("class P0");
/// assert_eq!(granted.labels, [("class", "P0".to_string())]);
/// assert_eq!(granted.value, 1.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// The core.
    pub view: View,
    /// Workers.
    pub workers: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Attempts that took longer than their deadline.
    pub overruns: u64,
    /// How often the timer woke; an idle pool's does not.
    pub wakes: u64,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
}

/// One number with its name. Applications put their own prefix before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its labels.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: f64,
}

impl Metrics {
    /// Every number, with its name.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = self.whole();
        for (index, class) in self.view.classes.iter().enumerate() {
            let class_name = Class(index as u8).to_string();
            let stats = &class.stats;
            let label = || vec![("class", class_name.clone())];
            let mut add = |name, help, kind, value: u64| {
                samples.push(Sample {
                    name,
                    help,
                    kind,
                    labels: label(),
                    value: value as f64,
                });
            };
            add(
                "queue_waiting",
                "jobs waiting in a class",
                Kind::Gauge,
                class.waiting,
            );
            add("granted", "leases given out", Kind::Counter, stats.granted);
            add(
                "charged",
                "cost charged with leases",
                Kind::Counter,
                stats.charged,
            );
            add(
                "aged",
                "leases that went ahead because of age",
                Kind::Counter,
                stats.aged,
            );
            add(
                "retried",
                "attempts to be repeated",
                Kind::Counter,
                stats.retried,
            );
            add(
                "put_off",
                "due jobs that found no place",
                Kind::Counter,
                stats.postponed,
            );
            let ended = &stats.ended;
            for (how, value) in [
                ("done", ended.done),
                ("failed", ended.failed),
                ("merged", ended.merged),
                ("expired", ended.expired),
                ("cancelled", ended.cancelled),
                ("shed", ended.shed),
                ("returned", ended.returned),
            ] {
                let mut labels = label();
                labels.push(("how", how.into()));
                samples.push(Sample {
                    name: "ended",
                    help: "jobs by how they ended",
                    kind: Kind::Counter,
                    labels,
                    value: value as f64,
                });
            }
            for (reason, value) in Reason::ALL.iter().zip(stats.refused) {
                let mut labels = label();
                labels.push(("reason", reason.name().into()));
                samples.push(Sample {
                    name: "refused",
                    help: "jobs refused",
                    kind: Kind::Counter,
                    labels,
                    value: value as f64,
                });
            }
            for (q, name) in [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99")] {
                let mut labels = label();
                labels.push(("quantile", name.into()));
                let value = stats.waits.quantile(q).as_secs_f64();
                samples.push(Sample {
                    name: "wait_seconds",
                    help: "time between ready and leased",
                    kind: Kind::Gauge,
                    labels,
                    value,
                });
            }
        }
        samples
    }

    fn whole(&self) -> Vec<Sample> {
        let view = &self.view;
        let fill = if view.capacity == 0 {
            0.0
        } else {
            100.0 * view.waiting as f64 / view.capacity as f64
        };
        let gauge = |name, help, value: f64| Sample {
            name,
            help,
            kind: Kind::Gauge,
            labels: Vec::new(),
            value,
        };
        let counter = |name, help, value: u64| Sample {
            name,
            help,
            kind: Kind::Counter,
            labels: Vec::new(),
            value: value as f64,
        };
        vec![
            gauge("queue_depth", "jobs waiting", view.waiting as f64),
            gauge("queue_capacity", "jobs that may wait", view.capacity as f64),
            gauge(
                "queue_fill_pct",
                "jobs waiting, in percent of those that may",
                fill,
            ),
            gauge(
                "delayed",
                "jobs whose time has not come",
                view.delayed as f64,
            ),
            gauge("running", "leases out", view.running as f64),
            gauge("workers", "workers", self.workers as f64),
            counter("panics", "handlers that panicked", self.panics),
            counter("wakes", "times the timer woke", self.wakes),
            counter("overruns", "attempts beyond their deadline", self.overruns),
        ]
    }
}
