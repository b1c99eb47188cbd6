//! The two sides of a migration.

use headworks_core::Side as Role;

/// A side of a migration. The number of a variant is stored in the state file (`known.side`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The tree that is copied.
    Source = 0,
    /// The tree that it is copied to.
    Destination = 1,
}

impl Side {
    /// The role of the side in the coordinated walk: the destination follows the source.
    pub(crate) const fn role(self) -> Role {
        match self {
            Side::Source => Role::Leader,
            Side::Destination => Role::Follower,
        }
    }
}
