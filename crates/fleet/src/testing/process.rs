//! Child processes that end with their value.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The signal on which the server ends and ends its children. Only the server receives it.
    end: Signal,
}

impl Process {
    pub(super) fn spawn(command: &mut Command, end: Signal) -> Process {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Process { child, end }
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn wait(&mut self) {
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // A stopped process gets its signal only when it goes on.
        self.signal(self.end);
        self.signal(Signal::CONT);
        self.wait();
    }
}

/// A free port. Another process could take it before the server does; the server then fails to
/// start, and is started again on another one.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port is free");
    listener
        .local_addr()
        .expect("a listener has an address")
        .port()
}

/// The user and group that servers run as; `None` to keep those of the test.
fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody"))
}

/// A command that runs as an unprivileged user.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = unprivileged() {
        command.uid(user).gid(group);
    }
    // The test's folder may be closed to that user.
    command.current_dir("/");
    command
}

/// A folder that an unprivileged server can use.
pub(super) fn folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .prefix("headworks-fleet-")
        .tempdir()
        .expect("a temporary folder can be made");
    give(folder.path());
    folder
}

/// Gives a file or folder to the servers' user.
pub(super) fn give(path: &Path) {
    if let Some((user, group)) = unprivileged() {
        chown(path, Some(user), Some(group)).expect("root can give files away");
    }
}

/// Writes a file for a server.
pub(super) fn write(path: &Path, content: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, content).expect("the temporary folder is writable");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, private).expect("permissions of an own file can be set");
    give(path);
}

/// Finds a program in the usual folders.
pub(super) fn program(names: &[&str], folders: &[PathBuf], package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let folders: Vec<PathBuf> = folders
        .iter()
        .cloned()
        .chain(std::env::split_paths(&path))
        .chain(usual)
        .collect();
    for name in names {
        let found = folders.iter().map(|folder| folder.join(name));
        if let Some(found) = found.into_iter().find(|path| path.is_file()) {
            return found;
        }
    }
    panic!("`{}` is missing: install the package `{package}`", names[0])
}
