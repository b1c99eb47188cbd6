//! The system's `ssh`, which transports the packets: how it is started, and what its output means.
//!
//! It handles agents, keys, certificates, `~/.ssh/config` and `known_hosts`, so a login that works
//! by hand works here. No key and no password passes through this process.

use super::address::Address;
use crate::error::ErrorKind;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::MemfdFlags;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::OnceLock;
use tokio::process::{Child, Command};

/// Options that override the user's configuration. The host must be known, the connection is not
/// shared, and it ends after a minute without traffic.
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

/// A program that prints the password from the environment it inherits.
const ASKPASS: &[u8] = b"#!/bin/sh\nprintf '%s\\n' \"$SFTP_PASSWORD\"\n";

pub(super) struct Ssh {
    address: Address,
    /// A key file, instead of those that `ssh` finds.
    key: Option<OsString>,
    /// A configuration, instead of the user's.
    config: Option<OsString>,
    /// The askpass program, if there is a password: a file in memory.
    askpass: Option<OwnedFd>,
    is_root: OnceLock<bool>,
}

impl Ssh {
    /// `get` reads an environment variable.
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
            // There is no user to answer a prompt.
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
            // Ctrl-C is handled by this process, which finishes in order.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(file) = &self.askpass {
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            command.env("SSH_ASKPASS", path);
            command.env("SSH_ASKPASS_REQUIRE", "force");
        }
        command.spawn()
    }

    /// Returns whether the login is root's, who may change owners.
    pub(super) fn is_root(&self) -> bool {
        *self.is_root.get_or_init(|| self.query_is_root())
    }

    fn query_is_root(&self) -> bool {
        if let Some(user) = &self.address.user {
            return user == "root";
        }
        let resolved = std::process::Command::new("ssh")
            .args(self.arguments())
            .args(["-G", "--", &self.address.host])
            .stdin(Stdio::null())
            .output();
        resolved.is_ok_and(|output| {
            output
                .stdout
                .split(|&b| b == b'\n')
                .any(|l| l == b"user root")
        })
    }

    /// Returns the kind and the message for the output of an `ssh` that ended.
    pub(super) fn explain_exit(&self, stderr: &str) -> (ErrorKind, String) {
        let target = self.address.ssh_arguments();
        let host = match self.address.port {
            None | Some(22) => self.address.host.clone(),
            Some(port) => format!("[{}]:{port}", self.address.host),
        };
        let has = |message: &str| stderr.contains(message);
        if has("IDENTIFICATION HAS CHANGED") {
            let message = format!(
                "the host key differs from known_hosts, so this may be another host; if the change is legitimate, run `ssh-keygen -R {host}` and then `ssh {target}`"
            );
            return (ErrorKind::Denied, message);
        }
        if has("Host key verification failed") {
            let message = format!(
                "the host is not in known_hosts; connect once with `ssh {target}` and compare its fingerprint"
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
                "{last}; `ssh {target}` must work without a prompt, or set SFTP_KEY or SFTP_PASSWORD"
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
    fn the_output_of_ssh_is_classified() {
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
