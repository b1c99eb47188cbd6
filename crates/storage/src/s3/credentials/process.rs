//! Keys printed by a program: `credential_process` of a profile.

use super::{AccessKeys, fail};
use crate::error::Result;
use serde::Deserialize;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Timeout of the program, which may have to ask the user.
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessOutput {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// Runs the command of a profile and parses its output.
pub(super) async fn fetch(profile: &str, command: &str) -> Result<AccessKeys> {
    let refused = |message: String| {
        fail(
            "run the credential_process of the profile",
            profile,
            message,
        )
    };
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(TIMEOUT, shell.output()).await;
    let ran =
        ran.map_err(|_| refused(format!("it did not finish within {} s", TIMEOUT.as_secs())))?;
    let ran = ran.map_err(|error| refused(error.to_string()))?;
    if !ran.status.success() {
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let stderr = stderr.lines().next().unwrap_or_default();
        return Err(refused(format!("it exited with {}: {stderr}", ran.status)));
    }
    // The parser's error would repeat the output.
    let printed = serde_json::from_slice(&ran.stdout).ok();
    let printed = printed.filter(|printed: &ProcessOutput| printed.version == 1);
    let message = "its output is not JSON credentials of version 1";
    let printed = printed.ok_or_else(|| refused(message.to_owned()))?;
    Ok(AccessKeys {
        id: printed.access_key_id,
        secret: printed.secret_access_key,
        token: printed.session_token,
        expires: printed.expiration.as_deref().and_then(super::seconds),
    })
}
