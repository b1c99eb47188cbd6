//! Dropping root privileges once every address is bound.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, geteuid, initgroups, setgid, setuid};

use crate::error::Error;

crate::section! {
    /// The process itself.
    pub struct ProcessConfig = "process";

    /// The user to switch to when started as root, after binding: `user` or `user:group`.
    /// Files that are accessed later (snapshots, lists) must be accessible to that user.
    user: Option<String> = None, example("\"headworks\""), restart();
}

/// Switches to the configured user. Does nothing without root privileges; with them and no
/// configured user, it logs a warning.
///
/// # Errors
/// When the user or group does not exist, or the system refuses.
pub fn drop_privileges(config: &ProcessConfig) -> Result<(), Error> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let Some(user) = config.user.as_deref().filter(|user| !user.is_empty()) else {
        tracing::warn!("running as root: set `process.user` to drop privileges");
        return Ok(());
    };
    let refused = |cause: String| Error::Privileges {
        user: user.to_owned(),
        cause,
    };
    let someone = find_identity(user).map_err(refused)?;
    someone.assume().map_err(refused)?;
    tracing::info!(user, "root privileges dropped");
    Ok(())
}

struct Identity {
    name: CString,
    user: Uid,
    group: Gid,
}

fn find_identity(text: &str) -> Result<Identity, String> {
    let (name, group) = match text.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (text, None),
    };
    let user = User::from_name(name).map_err(|error| error.to_string())?;
    let user = user.ok_or_else(|| format!("no such user `{name}`"))?;
    let group = match group {
        None => user.gid,
        Some(group) => {
            let found = Group::from_name(group).map_err(|error| error.to_string())?;
            let found = found.ok_or_else(|| format!("no such group `{group}`"))?;
            found.gid
        }
    };
    let name = CString::new(name).map_err(|error| error.to_string())?;
    Ok(Identity {
        name,
        user: user.uid,
        group,
    })
}

impl Identity {
    /// Sets the groups first, because only root may change them. The C library applies each call to
    /// all threads.
    fn assume(&self) -> Result<(), String> {
        let steps = initgroups(&self.name, self.group)
            .and_then(|()| setgid(self.group))
            .and_then(|()| setuid(self.user));
        steps.map_err(|error| error.to_string())?;
        // Verified: a process that can return to root has not dropped its privileges.
        if !self.user.is_root() && setuid(Uid::from_raw(0)).is_ok() {
            return Err("root privileges could be regained".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name() {
        let root = find_identity("root").unwrap();
        assert!(root.user.is_root() && root.group.as_raw() == 0);
        let mixed = find_identity("nobody:root").unwrap();
        assert!(!mixed.user.is_root() && mixed.group.as_raw() == 0);
        let wrong = find_identity("nobody-has-this-name").err().unwrap();
        assert_eq!(wrong, "no such user `nobody-has-this-name`");
        assert!(find_identity("root:no-such-group").is_err());
    }
}
