//! Filesystems that are mounted inside a tree.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Returns the mount points below a folder, one per filesystem other than the folder's own.
///
/// `table` is `/proc/self/mountinfo`: fields separated by spaces, the third the device, the fifth
/// the mount point, with spaces and the like written in octal.
pub(super) fn mounts_below(root: &Path, table: &[u8]) -> Vec<PathBuf> {
    let mut own = (0, &b""[..]);
    let mut inside: Vec<(&[u8], PathBuf)> = Vec::new();
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (Some(device), Some(point)) = (fields.nth(2), fields.nth(1)) else {
            continue;
        };
        let point = PathBuf::from(OsString::from_vec(unescape(point)));
        let depth = point.as_os_str().as_bytes().len();
        if point == root || !point.starts_with(root) {
            // The longest mount point above the folder is the one that it lies on; of several at
            // the same place the last covers the others.
            if root.starts_with(&point) && depth >= own.0 {
                own = (depth, device);
            }
        } else if !inside.iter().any(|(known, _)| *known == device) {
            inside.push((device, point));
        }
    }
    let others = inside.into_iter().filter(|(device, _)| *device != own.1);
    others.map(|(_, point)| point).collect()
}

/// Replaces `\ooo` by the byte with that octal number.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let value = octal.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match value {
            Some(value) => {
                bytes.push(value);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_filesystem_inside_is_named_once() {
        let table = b"21 1 8:1 / / rw - ext4 /dev/a rw\n\
            30 21 8:2 / /data rw - ext4 /dev/b rw\n\
            31 30 8:3 / /data/my\\040volume rw - ext4 /dev/c rw\n\
            32 30 8:3 /x /data/bound rw - ext4 /dev/c rw\n\
            33 30 8:2 /y /data/same rw - ext4 /dev/b rw\n\
            34 21 8:4 / /database rw - ext4 /dev/d rw\n";
        let below = |root: &str| mounts_below(root.as_ref(), table);
        assert_eq!(below("/data"), [PathBuf::from("/data/my volume")]);
        assert!(below("/data/my volume").is_empty());
        let all = ["/data", "/data/my volume", "/database"].map(PathBuf::from);
        assert_eq!(below("/"), all);
        assert!(below("/srv").is_empty());
    }
}
