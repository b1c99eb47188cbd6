//! The gateway's contenders, each a process of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::process::Process;

/// This program in another role.
pub(super) fn role(role: &str, upstream: Option<SocketAddr>) -> Process {
    let program = std::env::current_exe().expect("this program is a file");
    let mut command = Command::new(program);
    command.args(["gateway", "--role", role]);
    if let Some(upstream) = upstream {
        command.args(["--upstream", &upstream.to_string()]);
    }
    Process::speaking(&mut command)
}

/// vllm-router before the upstream.
pub(super) fn router(command: &Path, upstream: SocketAddr) -> Process {
    let address = Process::free();
    let mut command = Command::new(command);
    command
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--prometheus-port", &Process::free().port().to_string()])
        .args(["--policy", "round_robin"])
        .args(["--worker-urls", &format!("http://{upstream}")]);
    Process::silent(&mut command, address, Process::takes_connections)
}
