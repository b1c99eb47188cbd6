//! Contenders of the gateway, each in a process of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::process::Process;

/// Starts this program in another role.
pub(super) fn role(role: &str, upstream: Option<SocketAddr>) -> Process {
    let program = std::env::current_exe().expect("this program is a file");
    let mut command = Command::new(program);
    command.args(["gateway", "--role", role]);
    if let Some(upstream) = upstream {
        command.args(["--upstream", &upstream.to_string()]);
    }
    Process::spawn_announcing(&mut command)
}

/// Starts vllm-router in front of the upstream.
pub(super) fn router(command: &Path, upstream: SocketAddr) -> Process {
    let address = Process::free();
    let mut command = Command::new(command);
    command
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--prometheus-port", &Process::free().port().to_string()])
        .args(["--policy", "round_robin"])
        .args(["--worker-urls", &format!("http://{upstream}")]);
    Process::spawn_at(&mut command, address, Process::takes_connections)
}

/// Starts LiteLLM's proxy in front of the upstream.
pub(super) fn litellm(command: &Path, upstream: SocketAddr) -> Process {
    let address = Process::free();
    // The load sends no key. LiteLLM permits that only with this setting.
    let settings = format!(
        "general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}\nmodel_list:\n- model_name: m\n  litellm_params: {{model: openai/m, api_base: 'http://{upstream}/v1', api_key: none}}\n"
    );
    let name = format!("headworks-bench-{}-litellm.yaml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, settings).expect("a temporary file can be written");
    let mut command = Command::new(command);
    command
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
        .arg("--config")
        .arg(&file);
    let process = Process::spawn_at(&mut command, address, Process::takes_connections);
    let _ = std::fs::remove_file(file);
    process
}
