//! The system's own `ssh`, which carries the packets: how it is started, and what its words mean.
//!
//! It knows agents, keys, certificates, `~/.ssh/config` and `known_hosts`, and whoever can log in
//! with it by hand can do so here. No key and no password passes through us.

use super::address::Address;
use crate::error::ErrorKind;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::MemfdFlags;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::OnceLock;
use tokio::process::{Child, Command};

/// Whatever a user's own configuration says. The host must be known; a connection is ours alone;
/// one on which nothing is heard for a minute is over.
const OPTIONS: [&str; 12] = [
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=20",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ControlMaster=no",
    "ControlPath=none",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "LogLevel=ERROR",
];

/// Answers with the password whoever asks, out of the environment that it inherits.
const ASKPASS: &[u8] = b"#!/bin/sh\nprintf '%s\\n' \"$SFTP_PASSWORD\"\n";

pub(super) struct Ssh {
    address: Address,
    /// A key file, in place of those that `ssh` finds.
    key: Option<OsString>,
    /// A configuration, in place of the user's.
    config: Option<OsString>,
    /// The program that says the password, if there is one: a file in memory.
    askpass: Option<OwnedFd>,
    is_root: OnceLock<bool>,
}

impl Ssh {
    /// `get` reads a variable of the environment.
    pub(super) fn new(
        address: Address,
        get: &dyn Fn(&str) -> Option<OsString>,
    ) -> std::io::Result<Ssh> {
        let askpass = match get("SFTP_PASSWORD") {
            None => None,
            Some(_) => {
                let file = rustix::fs::memfd_create("askpass", MemfdFlags::CLOEXEC)?;
                rustix::io::write(&file, ASKPASS)?;
                Some(file)
            }
        };
        Ok(Ssh {
            address,
            key: get("SFTP_KEY"),
            config: get("SFTP_CONFIG"),
            askpass,
            is_root: OnceLock::new(),
        })
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut message: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: OsString| message.extend([flag.into(), value]);
        if let Some(config) = &self.config {
            add("-F", config.clone());
        }
        for option in OPTIONS {
            add("-o", option.into());
        }
        match &self.askpass {
            Some(_) => add("-o", "NumberOfPasswordPrompts=1".into()),
            // Nobody is there to be asked.
            None => add("-o", "BatchMode=yes".into()),
        }
        if let Some(key) = &self.key {
            add("-o", "IdentitiesOnly=yes".into());
            add("-i", key.clone());
        }
        if let Some(port) = self.address.port {
            add("-p", port.to_string().into());
        }
        if let Some(user) = &self.address.user {
            add("-l", user.into());
        }
        message
    }

    pub(super) fn start(&self) -> std::io::Result<Child> {
        let mut command = Command::new("ssh");
        command
            .args(self.arguments())
            .args(["-T", "-s", "--", &self.address.host, "sftp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // An interrupt at the terminal is for us: what is under way is ended in order.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(file) = &self.askpass {
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            command.env("SSH_ASKPASS", path);
            command.env("SSH_ASKPASS_REQUIRE", "force");
        }
        command.spawn()
    }

    /// Whether we log in as root, and so may give files to others.
    pub(super) fn is_root(&self) -> bool {
        *self.is_root.get_or_init(|| self.query_is_root())
    }

    fn query_is_root(&self) -> bool {
        if let Some(user) = &self.address.user {
            return user == "root";
        }
        let asked = std::process::Command::new("ssh")
            .args(self.arguments())
            .args(["-G", "--", &self.address.host])
            .stdin(Stdio::null())
            .output();
        asked.is_ok_and(|told| {
            told.stdout
                .split(|&b| b == b'\n')
                .any(|l| l == b"user root")
        })
    }

    /// What it means that `ssh` ended with these words.
    pub(super) fn explain_exit(&self, stderr: &str) -> (ErrorKind, String) {
        let shown = self.address.ssh_arguments();
        let host = match self.address.port {
            None | Some(22) => self.address.host.clone(),
            Some(port) => format!("[{}]:{port}", self.address.host),
        };
        let has = |message: &str| stderr.contains(message);
        if has("IDENTIFICATION HAS CHANGED") {
            let message = format!(
                "the host has another key than known_hosts says, so it may be another host; if that is right, `ssh-keygen -R {host}` and then `ssh {shown}`"
            );
            return (ErrorKind::Denied, message);
        }
        if has("Host key verification failed") {
            let message = format!(
                "the host is not in known_hosts; connect once with `ssh {shown}`, compare its fingerprint and say yes"
            );
            return (ErrorKind::Denied, message);
        }
        let last = stderr
            .lines()
            .map(str::trim)
            .rfind(|connection| !connection.is_empty());
        let last = last.unwrap_or("the connection ended");
        if has("Permission denied (") || has("Too many authentication failures") {
            let message = format!(
                "{last}; `ssh {shown}` must work without a question, or set SFTP_KEY or SFTP_PASSWORD"
            );
            return (ErrorKind::Denied, message);
        }
        if has("subsystem request failed") {
            let message = "the server does not offer SFTP".to_owned();
            return (ErrorKind::Unsupported, message);
        }
        if has("Bad configuration option") || has("Can't open user config file") {
            return (ErrorKind::Other, last.to_owned());
        }
        (ErrorKind::Temporary, last.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(url: &str, variables: &[(&str, &str)]) -> Ssh {
        let address = Address::parse(url.as_bytes()).unwrap();
        let get = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Ssh::new(address, &get).unwrap()
    }

    #[test]
    fn a_password_is_no_argument_and_a_host_is_always_checked() {
        let ssh = ssh(
            "sftp://me@h:2222/x",
            &[("SFTP_PASSWORD", "topsecret"), ("SFTP_KEY", "/k")],
        );
        let message = ssh.arguments().join(" ".as_ref()).into_string().unwrap();
        assert!(!message.contains("topsecret") && !message.contains("BatchMode"));
        assert!(message.contains("StrictHostKeyChecking=yes"));
        assert!(message.ends_with("-i /k -p 2222 -l me"), "{message}");
    }

    #[test]
    fn what_ssh_says_is_understood() {
        let ssh = ssh("sftp://me@h:2222/x", &[]);
        let unknown = "No ED25519 host key is known for [h]:2222 and you have requested strict checking.\r\nHost key verification failed.\r\n";
        let (kind, message) = ssh.explain_exit(unknown);
        assert_eq!(kind, ErrorKind::Denied);
        assert!(message.contains("`ssh -p 2222 me@h`"), "{message}");
        let other = format!("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\n{unknown}");
        assert!(
            ssh.explain_exit(&other)
                .1
                .contains("ssh-keygen -R [h]:2222")
        );
        let (kind, message) = ssh.explain_exit("me@h: Permission denied (publickey).\r\n");
        assert_eq!(kind, ErrorKind::Denied);
        assert!(message.contains("SFTP_KEY"), "{message}");
        for passing in [
            "ssh: connect to host h port 2222: Connection refused\r\n",
            "kex_exchange_identification: Connection closed by remote host\r\n",
            "",
        ] {
            assert_eq!(
                ssh.explain_exit(passing).0,
                ErrorKind::Temporary,
                "{passing}"
            );
        }
    }
}
