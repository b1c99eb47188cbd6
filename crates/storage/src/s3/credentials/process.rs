//! Keys that a program prints: `credential_process` of a profile.

use super::{Keys, wrong};
use crate::error::Result;
use serde::Deserialize;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How long the program may take: it may have to ask somebody.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// Runs the command of a profile, and reads what it prints.
pub(super) async fn fetch(profile: &str, command: &str) -> Result<Keys> {
    let refused =
        |words: String| wrong("run the credential_process of the profile", profile, words);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(PATIENCE, shell.output()).await;
    let ran = ran.map_err(|_| refused(format!("it did not end in {} s", PATIENCE.as_secs())))?;
    let ran = ran.map_err(|error| refused(error.to_string()))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        let said = said.lines().next().unwrap_or_default();
        return Err(refused(format!("it ended with {}: {said}", ran.status)));
    }
    // The error would repeat what it could not read.
    let printed = serde_json::from_slice(&ran.stdout).ok();
    let printed = printed.filter(|printed: &Printed| printed.version == 1);
    let words = "what it prints are no keys in JSON of version 1";
    let printed = printed.ok_or_else(|| refused(words.to_owned()))?;
    Ok(Keys {
        id: printed.access_key_id,
        secret: printed.secret_access_key,
        token: printed.session_token,
        expires: printed.expiration.as_deref().and_then(super::seconds),
    })
}
