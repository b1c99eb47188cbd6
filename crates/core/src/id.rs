//! Ids and names: classes, flows, targets, keys, tickets.
//!
//! All are small and `Copy`. [`Class`], [`Flow`] and [`Key`] are the application's own numbers; the
//! others mean nothing outside their core. Ids of the engine's tables are reused after a removal
//! and never leave this crate; a [`Ticket`] adds a serial number, so that one kept too long matches
//! no later job.

use crate::table::{Id, ids};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

/// How urgent a job is: class 0 is the most urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

impl Id for Class {
    fn from_index(index: usize) -> Self {
        Class(index as u8)
    }

    #[inline]
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.0)
    }
}

/// Targets that compete for the same work. Classes and flows share each domain by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub u16);

impl Domain {
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A class in one domain: the jobs that share by flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Section {
    pub(crate) domain: Domain,
    pub(crate) class: Class,
}

// One number is hashed in half the time of two.
impl Hash for Section {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(u32::from(self.domain.0) << 8 | u32::from(self.class.0));
    }
}

/// The party that work is for: flows share fairly inside a class.
///
/// The number is the application's: a tenant's index, a hash of a client address. Hash addresses
/// and other hostile input with a [`KeySeed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(pub u64);

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow {}", self.0)
    }
}

/// The load that a job puts on its target: tokens, bytes, or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub u64);

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One far side. Numbered in the order in which targets were configured; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub(crate) u32);

impl TargetId {
    /// The target configured as number `index`, counted from 0.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        TargetId(index)
    }

    /// Its place in the configuration, counted from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The targets that may serve a job. Obtained from [`Core::targets`](crate::Core::targets), or, for
/// one target alone, from its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetSet(pub(crate) SetRef);

/// A single target's set exists from the start; larger ones are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SetRef {
    One(u32),
    Many(GroupId),
}

impl Default for SetRef {
    fn default() -> Self {
        SetRef::One(0)
    }
}

impl From<TargetId> for TargetSet {
    fn from(target: TargetId) -> Self {
        TargetSet(SetRef::One(target.0))
    }
}

/// An admitted job, for as long as it lives. A ticket of a job that ended matches no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) job: JobId,
    /// Tells this job from every other one that had the same id.
    pub(crate) serial: u64,
}

ids! {
    /// A live job.
    JobId;
    /// A flow that has jobs, or limits worth remembering.
    FlowId;
    /// A flow's queue in one section; an id of that section alone.
    QueueId;
    /// The jobs of one flow queue that the same targets may serve.
    LaneId;
    /// A set of targets.
    GroupId;
}

impl Ticket {
    /// A small number that no other live job has: an index for tables of the driver's own.
    #[must_use]
    pub fn slot(self) -> usize {
        self.job.index()
    }
}

/// A refused job's claim on a place to come. See [`Forecast`](crate::Forecast).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Booking(pub u64);

/// A name of which at most one live job may exist.
///
/// 128 bits of a keyed hash: make it with [`KeySeed::key`], and nobody outside can make two
/// collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u128);

/// The secret with which an application turns names into [`Key`]s and hostile numbers into
/// [`Flow`]s.
///
/// ```
/// # use headworks_core::KeySeed;
/// let seed = KeySeed::new(0x5eed, 0xcafe); // random in production
/// let announce = seed.key(&("info hash", "forwarder", "peer"));
/// assert_eq!(announce, seed.key(&("info hash", "forwarder", "peer")));
/// assert_ne!(announce, seed.key(&("info hash", "forwarder", "another peer")));
/// ```
#[derive(Clone, Copy)]
pub struct KeySeed(u64, u64);

impl KeySeed {
    /// A seed from two random numbers.
    #[must_use]
    pub const fn new(a: u64, b: u64) -> Self {
        KeySeed(a, b)
    }

    /// A seed of its own for this process. The engine itself never draws a random number: this is
    /// for the application that names its jobs.
    #[must_use]
    pub fn random() -> Self {
        let draw = || RandomState::new().hash_one(0u8);
        KeySeed(draw(), draw())
    }

    /// The key of a name.
    #[must_use]
    pub fn key(&self, name: &impl Hash) -> Key {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        name.hash(&mut hasher);
        Key(hasher.finish128().as_u128())
    }

    /// The flow of a name, such as a client's address.
    #[must_use]
    pub fn flow(&self, name: &impl Hash) -> Flow {
        Flow(self.key(name).0 as u64)
    }
}

impl fmt::Debug for KeySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySeed(…)")
    }
}
