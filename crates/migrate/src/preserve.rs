//! Which attributes a copy preserves.

use crate::error::{Error, Result};
use headworks_storage::Probe;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The attributes that a copy into a directory preserves, as far as the destination keeps them.
/// Those that it does not preserve are not compared either. The default is all of them.
///
/// ```
/// let preserve: headworks_migrate::Preserve = "mode,times".parse().unwrap();
/// assert!(preserve.mode && !preserve.owner);
/// assert_eq!(preserve.to_string(), "mode,times");
/// assert!("colour".parse::<headworks_migrate::Preserve>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Preserve {
    /// Permissions. New entries get those of the umask otherwise.
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Modification times.
    pub times: bool,
    /// Extended attributes, except access control lists.
    pub xattrs: bool,
    /// Access control lists.
    pub acls: bool,
    /// Hard links. Every name becomes a file of its own otherwise.
    pub links: bool,
}

impl Default for Preserve {
    fn default() -> Preserve {
        Preserve::all(true)
    }
}

impl Preserve {
    fn all(preserved: bool) -> Preserve {
        Preserve {
            mode: preserved,
            owner: preserved,
            times: preserved,
            xattrs: preserved,
            acls: preserved,
            links: preserved,
        }
    }

    fn words(self) -> [(&'static str, bool); 6] {
        [
            ("mode", self.mode),
            ("owner", self.owner),
            ("times", self.times),
            ("xattrs", self.xattrs),
            ("acls", self.acls),
            ("links", self.links),
        ]
    }

    /// Returns what a destination keeps and is asked to.
    pub(crate) fn restrict(self, probe: Probe) -> Probe {
        Probe {
            time_step: if self.times { probe.time_step } else { 0 },
            owners: probe.owners && self.owner,
            hard_links: probe.hard_links && self.links,
            sets_xattrs: self.xattrs,
            sets_acls: self.acls,
            sets_permissions: self.mode,
            ..probe
        }
    }

    /// Names what is not preserved, if anything.
    pub(crate) fn notice(self) -> Option<String> {
        let dropped = self.words().into_iter().filter(|(_, kept)| !kept);
        let dropped: Vec<&str> = dropped.map(|(word, _)| word).collect();
        let list = dropped.join(", ");
        (!dropped.is_empty()).then(|| format!("neither copied nor compared, as asked: {list}"))
    }
}

impl fmt::Display for Preserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.words().into_iter().filter(|(_, kept)| *kept);
        let kept: Vec<&str> = kept.map(|(word, _)| word).collect();
        match kept.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&kept.join(",")),
        }
    }
}

impl FromStr for Preserve {
    type Err = Error;

    fn from_str(text: &str) -> Result<Preserve> {
        let mut preserve = Preserve::all(false);
        for word in text.split(',').map(str::trim) {
            match word {
                "all" => preserve = Preserve::all(true),
                "none" => {}
                "mode" => preserve.mode = true,
                "owner" => preserve.owner = true,
                "times" => preserve.times = true,
                "xattrs" => preserve.xattrs = true,
                "acls" => preserve.acls = true,
                "links" => preserve.links = true,
                _ => {
                    let message = format!(
                        "`{word}` cannot be preserved: expected some of mode, owner, times, xattrs, acls, links, or all or none"
                    );
                    return Err(Error::BadOption(message));
                }
            }
        }
        Ok(preserve)
    }
}
