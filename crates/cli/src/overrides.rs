//! From the command line and the environment to the sources of a configuration.

use std::path::PathBuf;

use anyhow::Result;
use headworks_gateway::GatewayConfig;
use headworks_service::config::Sources;

use crate::applications::schema;
use crate::arguments::Common;
use crate::report::UsageError;

/// The file that is meant, the environment, and the flags.
pub(crate) fn sources(common: &Common) -> Result<Sources> {
    let sources = Sources::new().environment();
    let asked = common.config.clone();
    let asked = asked.or_else(|| non_empty("HEADWORKS_CONFIG").map(PathBuf::from));
    // What is asked for must exist, and is an error if it does not; what is only looked for need
    // not.
    let sources = match asked {
        Some(path) => sources.file(path),
        None => sources.look_for(usual_places()),
    };
    let sources = flags(sources, common)?;
    Ok(with_keys_defaults(sources))
}

/// Adds what the gateway takes for granted: its default file of keys, and that it is open where
/// there is no configuration file and it listens on loopback.
pub(crate) fn with_keys_defaults(sources: Sources) -> Sources {
    let sources = sources.beside("gateway.keys_file", GatewayConfig::KEYS_FILE);
    let config = schema().load(&sources);
    let listen = config.map(|config| config.section::<GatewayConfig>().listen);
    match listen {
        Ok(listen) if listen.ip().to_canonical().is_loopback() => {
            sources.without_file("gateway.open", "true")
        }
        // A configuration that cannot be read is reported by whoever reads it next.
        _ => sources,
    }
}

/// Adds what the flags set.
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

/// Where a file is looked for that nobody named.
fn usual_places() -> impl Iterator<Item = PathBuf> {
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
