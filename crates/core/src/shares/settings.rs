//! How the allocator and the nodes deal with silence and noise.
//!
//! The three spans depend on each other: a node stops ([`STOP_AFTER`]) before its share is
//! reclaimed ([`RECLAIM_AFTER`]), by any two clocks that agree within a quarter, and a new
//! allocator learns ([`LEARN_FOR`]) at least as long as a share can be out unknown. They are
//! constants so that no configuration can break that order.

use std::time::Duration;

/// The fate of a node's share while it cannot reach the exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The node keeps using its share, which is withheld from the others until it is back or
    /// forgotten.
    #[default]
    Keep,
    /// The node stops granting, and its share is reclaimed. Slots of calls that may still run
    /// return after `request_timeout`; `None` if the node aborts its calls when it stops.
    Closed {
        /// The longest time that a call of the node may run.
        request_timeout: Option<Duration>,
    },
}

/// Settings of an allocator.
///
/// ```
/// use headworks_core::shares::{OnLoss, RECLAIM_AFTER, STOP_AFTER, ShareSettings};
/// use std::time::Duration;
///
/// let settings = ShareSettings {
///     on_loss: OnLoss::Closed { request_timeout: Some(Duration::from_secs(60)) },
///     ..ShareSettings::default()
/// };
/// assert!(settings.dead_band > 0.0);
/// assert!(STOP_AFTER < RECLAIM_AFTER, "a node stops before its share is given to others");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareSettings {
    /// The fate of the shares of silent nodes that have not said their own
    /// [mode](super::Report::on_loss) to this allocator.
    pub on_loss: OnLoss,
    /// The silence after which a node is forgotten under [`OnLoss::Keep`]. An operator may forget
    /// it earlier: [`Shares::forget`](super::Shares::forget).
    pub forget_after: Duration,
    /// The silence after which a node that leaves is gone: none of its calls can run any more.
    pub leave_after: Duration,
    /// Flows with limits of their own that allocations name. Any other flow has the same part of
    /// its limits on every node.
    pub most_flows: usize,
    /// A change of less than this part of a limit moves nothing.
    pub dead_band: f64,
    /// The part of a falling demand that one report takes away.
    pub decay: f64,
    /// The part of a limit that is kept for nodes without demand, all together, so that each can
    /// start at once.
    pub idle_part: f64,
}

impl Default for ShareSettings {
    fn default() -> Self {
        ShareSettings {
            on_loss: OnLoss::Keep,
            forget_after: Duration::from_secs(600),
            leave_after: Duration::from_secs(600),
            most_flows: 4096,
            dead_band: 0.005,
            decay: 0.05,
            idle_part: 0.01,
        }
    }
}

/// A node stops granting this long after it sent its last exchange that succeeded.
pub const STOP_AFTER: Duration = Duration::from_secs(3);

/// A silent node's rate is reclaimed after this: later than the node stops, by any clock that is
/// less than a quarter wrong.
pub const RECLAIM_AFTER: Duration = Duration::from_secs(4);

/// A silent node that has stopped by itself is granted nothing after this. Its share is reclaimed
/// in a later round: until it is published that the node has nothing, the node could come back and
/// apply a grant that it has not received yet.
pub(crate) const WITHDRAW_AFTER: Duration = Duration::from_millis(3500);

/// For how long an allocator that knows of no grants only lowers shares.
pub const LEARN_FOR: Duration = Duration::from_secs(4);

/// An allocator that has not looked for longer than this has missed the rest: it is silence of its
/// own, and not of the nodes.
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// How long a slot stays with a node when there are fewer than nodes that want one.
pub(crate) const TURN: Duration = Duration::from_millis(1500);
