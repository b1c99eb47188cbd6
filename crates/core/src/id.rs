//! Names for the things that scheduling speaks of. All are small, `Copy`, and mean nothing outside their core.

use std::fmt;
use std::hash::Hash;

use siphasher::sip128::{Hasher128, SipHasher13};

/// How urgent a job is: class 0 is the most urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

impl Class {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.0)
    }
}

/// Who the work is for: flows share fairly inside a class.
///
/// The number is the application's: a tenant's index, a hash of a client address. Hash addresses and
/// other hostile input with a [`KeySeed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(pub u64);

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow {}", self.0)
    }
}

/// What a job draws on the far side: tokens, bytes, or 1.
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

/// The targets that may serve a job. Obtained from [`Core::targets`](crate::Core::targets), or, for one
/// target alone, from its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetSet(pub(crate) SetRef);

/// Single targets need no registration: their set is made when first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SetRef {
    One(u32),
    Many(u32),
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
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// A refused job's claim on a place to come. See [`Forecast`](crate::Forecast).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Booking(pub u64);

/// A name of which at most one live job may exist.
///
/// 128 bits of a keyed hash: make it with [`KeySeed::key`], and nobody outside can make two collide.
// Not aligned to 16: whether there is one would be 16 bytes too, which are written in halves and read at once, and a processor waits
// until both halves have left for its cache (ADR 27).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(8))]
pub struct Key(pub u128);

impl Key {
    /// Its place in a table. It is a hash already; keys that somebody made of small numbers are spread, too.
    #[inline]
    pub(crate) fn spread(self) -> u64 {
        let word = (self.0 >> 64) as u64 ^ self.0 as u64;
        word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    }
}

/// The secret with which an application turns names into [`Key`]s and hostile numbers into [`Flow`]s.
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
