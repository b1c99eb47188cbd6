//! Keys printed by a program: `credential_process` of a profile.

use super::{AccessKeys, fail};
use crate::cloud::command;
use crate::error::Result;
use serde::Deserialize;

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
    let printed = command::output(command).await.map_err(refused)?;
    // The parser's error would repeat the output.
    let printed = serde_json::from_slice(&printed).ok();
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
