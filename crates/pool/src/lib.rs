//! The scheduling core of Headworks, driven by tokio.
//!
//! Work is run in two ways. A [`Pool`] has workers that run a [`Handler`] for every job that is
//! [submitted](Pool::submit); their number follows the queue. [`Permits`] lets a caller
//! [acquire](Permits::acquire) a [`Permit`], which names a target, and run the work itself, as a
//! proxy does. Either way the core decides which job goes next, and where.
//!
//! The state has one owner, the driver, behind one lock that is never held across an await and
//! under which no code of yours runs. One timer sleeps until the core wants to be called; nothing
//! polls, and an idle pool costs no CPU.
//!
//! Jobs, targets and limits come from [`headworks_core`] and are re-exported here: a program needs
//! only this crate.
//!
//! ```
//! use headworks_pool::{Config, Handler, Job, Pool, Report, Run, Workers};
//! use std::time::Duration;
//!
//! struct Greeter;
//!
//! impl Handler<String> for Greeter {
//!     async fn run(&self, run: &mut Run<'_, String>) -> Report {
//!         println!("hello, {}", run.payload);
//!         Report::done()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::new(Config::default(), Workers::new(2, 8), Greeter)?;
//! pool.submit(Job::new("river".to_string()))?;
//! pool.idle().await;
//! pool.shutdown(Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```
#![doc = include_str!("../README.md")]

mod clock;
mod driver;
mod handle;
mod job_handle;
mod metrics;
mod notice;
mod permit;
mod permits;
mod pool;
mod report;
mod sync;
pub mod traversal;
mod worker;

pub use driver::Workers;
pub use handle::{Drained, PoolHandle};
pub use job_handle::JobHandle;
pub use metrics::{Kind, Metrics, Sample};
pub use notice::{Cancel, Denied, EndReason, Notice};
pub use permit::{Acquire, Permit};
pub use permits::Permits;
pub use pool::Pool;
pub use report::{Health, Report};
pub use worker::{Handler, Run};

#[doc(no_inline)]
pub use headworks_core::{
    Backoff, Booking, Bound, Claimant, Class, ClassConfig, ClassStats, ClassView, Config,
    ConfigError, Coordinator, Cost, DemandView, Disabled, Domain, Ended, Fault, Flow, FlowConfig,
    FlowView, Forecast, Job, Key, KeySeed, Limits, LocalLimits, LocalShare, OnSuspend, Policy,
    Pressure, Rate, Reason, Refused, Rounds, Side, TargetConfig, TargetId, TargetSet, TargetState,
    TargetView, Thresholds, Ticket, Time, Unservable, View, Waits, rounds, shares,
};

#[cfg(all(test, feature = "shuttle"))]
mod model;
