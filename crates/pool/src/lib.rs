//! The scheduling core under tokio.
//!
//! Work is run in two ways. A [`Pool`] has workers that run a [`Handler`] for every job that is [submitted](Pool::submit);
//! their number follows the queue. [`Permits`] lets a caller [acquire](Permits::acquire) a [`Permit`], which names a target,
//! and run the work himself, as a proxy does. Either way the core decides who goes next, and where.
//!
//! The state has one owner, the shell, behind one lock that is never held across an await. One timer sleeps until the core
//! wants to be called; nothing polls, and an idle pool costs no CPU.
//!
//! ```
//! use headworks_core::{Config, Job};
//! use headworks_pool::{Handler, Pool, Report, Run, Workers};
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
//! # async fn main() -> Result<(), headworks_core::ConfigError> {
//! let pool = Pool::new(Config::default(), Workers::new(2, 8), Greeter)?;
//! pool.submit(Job::new("river".to_string())).expect("there is room");
//! pool.idle().await;
//! pool.shutdown(Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```

mod clock;
mod controls;
mod metrics;
mod notice;
mod permit;
mod permits;
mod pool;
mod recent;
mod report;
mod shell;
mod sync;
mod worker;

pub use controls::{Controls, Drained};
pub use metrics::{Kind, Metrics, Sample};
pub use notice::{Cancel, Denied, How, Notice};
pub use permit::{Acquire, Permit};
pub use permits::Permits;
pub use pool::Pool;
pub use report::{Health, Report};
pub use shell::Workers;
pub use worker::{Handler, Run};

#[cfg(all(test, feature = "shuttle"))]
mod model;

/// The program in the guide compiles and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/using-the-pool.md")]
struct Guide;
