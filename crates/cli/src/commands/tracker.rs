//! `headworks tracker`: the tracker alone, with the flags that its predecessor's users know.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use headworks_service::exit::Exit;

use crate::applications::TRACKER;
use crate::arguments::Common;
use crate::commands::up;

/// What only this command takes. Its keys' flags are made from its section.
#[derive(Debug, Args)]
pub(crate) struct TrackerCommand {
    /// The configuration file: TOML, or a predecessor's YAML. The same as `--config`.
    #[arg(short = 'c', value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(command: &TrackerCommand, common: &Common) -> Result<Exit> {
    let mut common = common.clone();
    common.config = command.file.clone().or(common.config);
    up::run(&common, &[TRACKER], true)
}
