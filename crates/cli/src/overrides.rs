//! Configuration sources from the command line and the environment.

use std::path::{Path, PathBuf};

use anyhow::Result;
use headworks_gateway::GatewayConfig;
use headworks_service::config::Sources;

use crate::applications::schema;
use crate::arguments::Common;
use crate::report::UsageError;

/// A file and the flags alone. Variables that are meant for another configuration have no effect.
pub(crate) fn isolated(file: &Path, common: &Common) -> Result<Sources> {
    let sources = flags(Sources::new().file(file), common)?;
    Ok(with_gateway_defaults(sources))
}

/// The configuration file, the environment and the flags.
pub(crate) fn sources(common: &Common) -> Result<Sources> {
    let sources = Sources::new().environment();
    let asked = common.config.clone();
    let asked = asked.or_else(|| non_empty("HEADWORKS_CONFIG").map(PathBuf::from));
    // A file that was named must exist; the default locations need not.
    let sources = match asked {
        Some(path) => sources.file(path),
        None => sources.search(default_paths()),
    };
    let sources = flags(sources, common)?;
    Ok(with_gateway_defaults(sources))
}

/// Adds defaults of the gateway: its key file next to the configuration file, and open access if
/// there is no configuration file and it listens on loopback only.
pub(crate) fn with_gateway_defaults(sources: Sources) -> Sources {
    let sources = sources.sibling_file("gateway.keys_file", GatewayConfig::KEYS_FILE);
    let config = schema().load(&sources);
    let listen = config.map(|config| config.section::<GatewayConfig>().listen);
    match listen {
        // Only on loopback: elsewhere an open gateway would serve anyone who can connect.
        Ok(listen) if listen.ip().to_canonical().is_loopback() => {
            sources.without_file("gateway.open", "true")
        }
        // An invalid configuration is reported by the caller that loads it next.
        _ => sources,
    }
}

/// Adds the values of flags and `--set`.
fn flags(mut sources: Sources, common: &Common) -> Result<Sources> {
    for setting in &common.settings {
        sources = sources.flag(&setting.flag, &setting.key, &setting.value);
    }
    for setting in &common.set {
        let Some((key, value)) = setting.split_once('=') else {
            let text = format!("`--set {setting}` has no value: write `--set section.key=value`");
            return Err(UsageError(text).into());
        };
        sources = sources.flag("--set", key.trim(), value);
    }
    Ok(sources)
}

/// The default locations of the configuration file.
fn default_paths() -> impl Iterator<Item = PathBuf> {
    let home = || non_empty("HOME").map(|home| PathBuf::from(home).join(".config"));
    let user = non_empty("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(home);
    let user = user.map(|folder| folder.join("headworks").join("headworks.toml"));
    [Some(PathBuf::from("headworks.toml")), user]
        .into_iter()
        .flatten()
}

fn non_empty(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
