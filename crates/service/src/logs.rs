//! Log output.
//!
//! Logs always go to stderr, because stdout is for data. The program installs the subscriber once;
//! libraries log through `tracing`. Secrets do not appear because [`Secret`](crate::config::Secret)
//! does not print them; nothing here filters them.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::config::{ValidationError, truncate_numbers};
use crate::error::Error;

crate::section! {
    /// Logging. Logs go to stderr.
    pub struct LogConfig = "log", check = check;

    /// The log level: error, warn, info, debug or trace. Targets may have their own:
    /// "info,headworks_service=debug".
    level: String = "info".to_owned(), env(&["RUST_LOG"]);
    /// The format: "auto" (human-readable, coloured on a terminal), "human" (without
    /// colour) or "json" (one object per line).
    format: LogFormat = LogFormat::Auto, restart();
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LogFormat {
    /// Human-readable, coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Human-readable, without colour.
    Human,
    /// One JSON object per line.
    Json,
}

fn check(config: &LogConfig) -> Vec<ValidationError> {
    match filter(&config.level) {
        Ok(_) => Vec::new(),
        Err(error) => vec![ValidationError::new("level", error.to_string())],
    }
}

fn filter(level: &str) -> Result<EnvFilter, Error> {
    let wrong = |cause: String| Error::LogFilter {
        filter: truncate_numbers(level),
        cause,
    };
    check_filter(level).map_or(Ok(()), |cause| Err(wrong(cause)))?;
    EnvFilter::builder()
        .parse(level)
        .map_err(|cause| wrong(cause.to_string()))
}

/// Detects filters that the parser accepts but nobody means. It takes a word that is not a level
/// for the name of a target, which silences everything else, and it mishandles text that is not
/// ASCII.
fn check_filter(level: &str) -> Option<String> {
    if level.trim().is_empty() {
        return Some("it is empty".to_owned());
    }
    if !level.is_ascii() {
        return Some("it must be ASCII".to_owned());
    }
    let mut words = level.split(',').map(str::trim);
    let word = words.find(|word| !word.is_empty() && !is_directive(word))?;
    let word = truncate_numbers(word);
    Some(format!(
        "`{word}` is not a level; to set the level of a target, write {word}=debug"
    ))
}

fn is_directive(word: &str) -> bool {
    word.contains(['=', '[']) || word.parse::<LevelFilter>().is_ok()
}

/// Handle that changes the log level at run time.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl LogHandle {
    /// Applies the level of `config`. The format is read only at start.
    ///
    /// # Errors
    /// When the level is not a valid filter.
    pub fn apply(&self, config: &LogConfig) -> Result<(), Error> {
        let filter = filter(&config.level)?;
        // The handle fails only if the subscriber is gone, and then there is nothing to change.
        let _ = self.filter.reload(filter);
        Ok(())
    }
}

/// Installs the subscriber that writes this program's logs to stderr.
///
/// ```
/// use headworks_service::logs::{LogConfig, install};
/// let logs = install(&LogConfig::default()).unwrap();
/// logs.apply(&LogConfig::default()).unwrap();
/// ```
///
/// # Errors
/// When a subscriber is already installed, or the level is not a valid filter.
pub fn install(config: &LogConfig) -> Result<LogHandle, Error> {
    let colour = config.format == LogFormat::Auto
        && std::io::stderr().is_terminal()
        // An empty NO_COLOR counts as unset (https://no-color.org).
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (subscriber, handle) = subscriber(config, colour, std::io::stderr)?;
    subscriber.try_init().map_err(|_| Error::LogsInstalled)?;
    Ok(handle)
}

fn subscriber<W>(
    config: &LogConfig,
    colour: bool,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync, LogHandle), Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(&config.level)?);
    let lines: Box<dyn Layer<_> + Send + Sync> = match config.format {
        LogFormat::Json => fmt::layer().json().with_writer(writer).boxed(),
        LogFormat::Auto | LogFormat::Human => fmt::layer()
            .with_ansi(colour)
            .with_target(false)
            .with_writer(writer)
            .boxed(),
    };
    let subscriber = Registry::default().with(filter).with(lines);
    Ok((subscriber, LogHandle { filter: handle }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn page_of(config: &LogConfig, log: impl FnOnce(&LogHandle)) -> String {
        let page = Page::default();
        let writer = page.clone();
        let (subscriber, handle) = subscriber(config, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || log(&handle));
        page.text()
    }

    #[test]
    fn human_lines_have_no_colour_without_a_terminal() {
        let text = page_of(&LogConfig::default(), |_| {
            tracing::info!(gate = 3, "opened");
        });
        assert!(text.contains("INFO opened gate=3"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn json_lines_are_objects() {
        let config = LogConfig {
            format: LogFormat::Json,
            ..LogConfig::default()
        };
        let text = page_of(&config, |_| tracing::info!(gate = 3, "opened"));
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(line["fields"]["message"], "opened");
        assert_eq!(line["fields"]["gate"], 3);
    }

    #[test]
    fn the_level_changes_while_running() {
        let text = page_of(&LogConfig::default(), |handle| {
            tracing::debug!("too quiet");
            let config = LogConfig {
                level: "debug".to_owned(),
                ..LogConfig::default()
            };
            handle.apply(&config).unwrap();
            tracing::debug!("loud enough");
        });
        assert!(
            !text.contains("too quiet") && text.contains("loud enough"),
            "{text}"
        );
    }

    #[test]
    fn junk_is_not_a_level() {
        let told = |level: &str| match filter(level) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        for right in [
            "info",
            "WARN",
            "off",
            "info,headworks_service=debug",
            "info,[span{field=1}]=trace",
        ] {
            assert_eq!(told(right), "", "{right}");
        }
        assert!(
            told("loud")
                .contains("`loud` is not a level; to set the level of a target, write loud=debug")
        );
        assert!(told("info,dbug").contains("`dbug` is not a level"));
        assert!(told("").contains("it is empty"));
        assert!(told("info=\u{fffd}[").contains("it must be ASCII"));
        assert!(!told("a=loud").is_empty());
        assert!(told(&"9".repeat(500)).len() < 300);
    }
}
