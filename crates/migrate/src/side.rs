//! The two sides of a migration.

use crate::error::Error;
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
    /// The name of the side in messages, and of its table in the state file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Destination => "destination",
        }
    }

    /// Wraps an error that a call to this side's storage returned.
    pub(crate) fn error(self, error: headworks_storage::Error) -> Error {
        Error::Storage {
            side: self.name(),
            error,
        }
    }

    /// The role of the side in the coordinated walk: the destination follows the source.
    pub(crate) const fn role(self) -> Role {
        match self {
            Side::Source => Role::Leader,
            Side::Destination => Role::Follower,
        }
    }
}
