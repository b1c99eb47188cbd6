//! A far side, and what we know of its health.

use crate::bucket::Bucket;
use crate::config::TargetConfig;
use crate::gate::{Gate, Pass};
use crate::heap::NOWHERE;
use crate::id::Cost;
use crate::time::Time;
use crate::wheel::TimerId;
use std::fmt;

/// What we know of a target's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetState {
    /// It serves.
    Active,
    /// It is left alone until then.
    Suspended {
        /// When a probe may go.
        until: Time,
    },
    /// One job at a time, the probe, may go; how it fares decides.
    Probation,
    /// It takes no part.
    Disabled {
        /// Why.
        reason: Disabled,
    },
}

impl TargetState {
    /// The word for it in metrics and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TargetState::Active => "active",
            TargetState::Suspended { .. } => "suspended",
            TargetState::Probation => "probation",
            TargetState::Disabled { .. } => "disabled",
        }
    }

    /// Whether jobs may wait for it: it serves, or may serve again by itself.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        matches!(self, TargetState::Active | TargetState::Probation)
    }
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a target is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Disabled {
    /// The far side is gone or will never serve us.
    Gone,
    /// The configuration says so.
    Configured,
    /// Somebody switched it off.
    Operator,
}

/// Two lines of the cache, in this order: an arrival asks for the first alone.
#[derive(Clone, Debug)]
#[repr(C, align(128))]
pub(crate) struct Target {
    pub(crate) state: TargetState,
    /// The bay of this target alone.
    pub(crate) bay: u32,
    /// The lane for whose head its cost bucket is saved.
    pub(crate) saved_for: u32,
    /// Jobs waiting that only it can serve.
    pub(crate) waiting: u32,
    /// Faults in a row.
    pub(crate) faults: u32,
    /// Its cost bucket begins the second line.
    pub(crate) gate: Gate<Bucket>,
    pub(crate) granted: u64,
    pub(crate) seldom: Box<Seldom>,
}

const _: () = assert!(std::mem::size_of::<Target>() == 128);

/// What is seldom asked of a target.
#[derive(Clone, Debug)]
pub(crate) struct Seldom {
    pub(crate) config: TargetConfig,
    /// Every bay that it is part of.
    pub(crate) bays: Vec<u32>,
    /// Whether a job probes it, while on probation.
    pub(crate) probe: bool,
    pub(crate) timer: TimerId,
    pub(crate) timer_at: Time,
}

impl Target {
    pub(crate) fn new(config: TargetConfig, bay: u32, now: Time) -> Self {
        Target {
            state: if config.enabled {
                TargetState::Active
            } else {
                TargetState::Disabled {
                    reason: Disabled::Configured,
                }
            },
            gate: Gate::new(config.limits, now),
            faults: 0,
            bay,
            saved_for: NOWHERE,
            waiting: 0,
            granted: 0,
            seldom: Box::new(Seldom {
                config,
                bays: vec![bay],
                probe: false,
                timer: TimerId::NONE,
                timer_at: Time::MAX,
            }),
        }
    }

    /// Whether it would serve some job now, whatever its cost.
    #[inline]
    pub(crate) fn shut(&mut self, now: Time) -> Option<Pass> {
        match self.state {
            TargetState::Suspended { until } => return Some(Pass::Shut(Some(until))),
            TargetState::Disabled { .. } => return Some(Pass::Shut(None)),
            TargetState::Probation if self.seldom.probe => return Some(Pass::Shut(None)),
            TargetState::Active | TargetState::Probation => {}
        }
        if self.saved_for != NOWHERE {
            return Some(Pass::Shut(None));
        }
        self.gate.shut(now)
    }

    /// Whether it would serve a job of that cost now.
    #[inline]
    pub(crate) fn pass(&mut self, now: Time, cost: Cost) -> Pass {
        if let Some(shut) = self.shut(now) {
            return shut;
        }
        self.gate.short(now, cost).map_or(Pass::Open, Pass::Short)
    }

    /// How busy it is for its weight: the least busy target of a set serves next.
    pub(crate) fn load(&self) -> (u64, u64) {
        let weight = u64::from(self.seldom.config.weight);
        (
            (u64::from(self.gate.running()) << 20) / weight,
            (self.granted << 20) / weight,
        )
    }
}
