//! Programs that print credentials.

use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Timeout of a program, which may have to ask the user.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a shell command and returns its output. The error contains the first line that it printed
/// about itself, and nothing of its output.
pub(crate) async fn output(command: &str) -> Result<Vec<u8>, String> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(TIMEOUT, shell.output()).await;
    let ran = ran.map_err(|_| format!("it did not finish within {} s", TIMEOUT.as_secs()))?;
    let ran = ran.map_err(|error| error.to_string())?;
    if !ran.status.success() {
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let stderr = stderr.lines().next().unwrap_or_default();
        return Err(format!("it exited with {}: {stderr}", ran.status));
    }
    Ok(ran.stdout)
}
