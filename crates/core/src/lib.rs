//! The scheduling core of Headworks: decides which job runs next, and where.
//!
//! A pure state machine. Every call takes `now`, every decision is returned, and [`Core::wake_at`]
//! says when time alone will change the answer. There is no clock, I/O, lock or task in this crate,
//! and the engine draws no random numbers, so the same code runs under tokio in production, under a
//! virtual clock in simulation, and under a fuzzer.
//!
//! | | |
//! |---|---|
//! | [`Core`] | classes, flows, lanes, limits, targets, timers: the engine |
//! | [`Rounds`], [`Coordinator`] | breadth-first rounds, and two of them in step |
//! | [`Scaler`], [`Pressure`] | how many workers, and how full is full |
//! | [`Backoff`], [`Forecast`] | when to retry |
//! | [`Shares`], [`NodeShare`] | one set of limits for many nodes |
//! | [`Wheel`] | timers, for drivers as well |
//!
//! # Where to look
//!
//! | question | module |
//! |---|---|
//! | which job is served next? | `engine/select.rs`, on `fair_queue.rs` and `classes.rs` |
//! | which jobs may wait, and which give way? | `engine/admit.rs` and `engine/shed.rs`, on `occupancy.rs` |
//! | when should a refused job try again? | `engine/predict.rs`, on `forecast.rs` |
//! | what happens when a gate shuts or opens? | `engine/gates.rs`, on `blocked.rs` |
//! | what does a target's health mean for its jobs? | `engine/health.rs`, on `targets.rs` |
//!
//! The example of the README runs as a test.
#![expect(
    clippy::result_large_err,
    reason = "a refusal hands the job back by value: boxing it would allocate"
)]
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod adaptive;
mod aging;
mod backoff;
mod blocked;
mod bookings;
mod bucket;
mod classes;
mod config;
mod coordinator;
mod delayed;
mod drain_rate;
mod engine;
mod event;
mod fair_queue;
mod flows;
mod forecast;
mod gate;
mod heap;
mod id;
mod job;
mod jobs;
mod lanes;
mod list;
mod local_limits;
mod occupancy;
mod pressure;
pub mod rounds;
mod scaler;
pub mod shares;
mod stats;
mod table;
mod targets;
mod time;
mod wheel;

pub use adaptive::AdaptiveLimit;
pub use backoff::Backoff;
pub use bucket::{Rate, TokenBucket};
pub use config::{
    Bound, ClassConfig, Config, ConfigError, FlowConfig, Limits, MAX_CLASSES, MAX_DOMAINS, MAX_SET,
    OnSuspend, Policy, TargetConfig,
};
pub use coordinator::{Coordinator, Side};
pub use engine::{ClassView, Core, DemandView, FlowView, TargetView, View};
pub use event::{Event, Reason, Refused, Unservable};
pub use forecast::{Claimant, Forecast, LONGEST};
pub use id::{Booking, Class, Cost, Domain, Flow, Key, KeySeed, TargetId, TargetSet, Ticket};
pub use job::{Cancelled, Fault, Job, Lease, Outcome, Settled, Verdict};
pub use local_limits::{LocalLimits, LocalShare};
pub use pressure::{Pressure, Thresholds};
pub use rounds::Rounds;
pub use scaler::{Scale, Scaler};
pub use shares::{NodeShare, Shares};
pub use stats::{ClassStats, Ended, Waits};
pub use targets::{Disabled, TargetState};
pub use time::Time;
pub use wheel::{TimerId, Wheel};
