//! One module per command. Each takes its arguments and returns the exit code.

pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod fleet;
pub(crate) mod gateway;
pub(crate) mod generate;
mod instance;
pub(crate) mod migrate;
pub(crate) mod sim;
mod startup_message;
pub(crate) mod top;
pub(crate) mod tracker;
pub(crate) mod up;

use crate::arguments::Common;
use crate::report::UsageError;

/// Rejects configuration flags that `command` would ignore: silence would mislead the user.
fn reject_config_flags(common: &Common, command: &str) -> Result<(), UsageError> {
    let given = match common {
        Common {
            config: Some(_), ..
        } => "--config",
        Common { set, .. } if !set.is_empty() => "--set",
        _ => return Ok(()),
    };
    Err(UsageError(format!(
        "`{given}` has no effect on `headworks {command}`, which reads no configuration: remove it"
    )))
}
