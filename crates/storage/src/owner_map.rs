//! Other owners for the entries of a storage.

use crate::{Entry, Posix};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Numeric ids of users and groups, each with the id that replaces it. Others stay as they are.
///
/// ```
/// use headworks_storage::OwnerMap;
///
/// let mut map = OwnerMap::default();
/// map.users.insert(1000, 2000);
/// map.groups.insert(100, 200);
/// assert_eq!(map.to_string(), "--map-owner 1000:2000 --map-group 100:200");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerMap {
    /// By user.
    pub users: BTreeMap<u32, u32>,
    /// By group.
    pub groups: BTreeMap<u32, u32>,
}

impl OwnerMap {
    /// Whether nothing is replaced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    pub(crate) fn apply(&self, posix: Posix) -> Posix {
        let replace = |map: &BTreeMap<u32, u32>, id| map.get(&id).copied().unwrap_or(id);
        Posix {
            uid: replace(&self.users, posix.uid),
            gid: replace(&self.groups, posix.gid),
            ..posix
        }
    }

    pub(crate) fn apply_to(&self, mut entry: Entry) -> Entry {
        entry.posix = entry.posix.map(|posix| self.apply(posix));
        entry
    }
}

/// Formats the map as on the command line.
impl fmt::Display for OwnerMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users = self.users.iter().map(|pair| ("owner", pair));
        let groups = self.groups.iter().map(|pair| ("group", pair));
        for (at, (kind, (from, to))) in users.chain(groups).enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}--map-{kind} {from}:{to}")?;
        }
        Ok(())
    }
}
