//! Configuration reload without a restart.
//!
//! The [`Reloader`] owns the sources and publishes each new configuration. Components subscribe to
//! it, or register as followers that must accept it first. A file is read and validated in full,
//! and applied by all followers or by none, so an invalid file changes nothing.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use tokio::sync::watch;

use crate::config::{Config, DisplayValue, Origin, Problem, Problems, Schema, Sources};
use crate::error::Error;
use crate::service_manager;
use crate::shutdown::Shutdown;

/// Reloads the configuration and distributes it.
#[derive(Clone)]
pub struct Reloader {
    inner: Arc<Inner>,
}

struct Inner {
    schema: Schema,
    sources: Sources,
    published: watch::Sender<Arc<Config>>,
    /// Serializes reloads: two at once could publish in the wrong order.
    reload_lock: Mutex<()>,
    followers: Mutex<Vec<ApplyFn>>,
}

/// Applies a configuration to a follower and returns how to undo it. After an error the follower
/// still uses the previous one.
type ApplyFn = Arc<dyn Fn(&Config) -> Result<Undo, String> + Send + Sync>;

/// Restores the previous configuration.
pub type Undo = Box<dyn FnOnce() + Send>;

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[non_exhaustive]
pub struct Reloaded {
    /// Changed keys that are in effect now.
    pub changed: Vec<String>,
    /// Changed keys that take effect after a restart.
    pub needs_restart: Vec<String>,
    /// Warnings.
    pub warnings: Vec<String>,
}

impl Reloader {
    /// Loads the initial configuration.
    ///
    /// # Errors
    /// Every problem found.
    ///
    /// ```
    /// use headworks_service::config::{Schema, Sources};
    /// use headworks_service::reload::Reloader;
    /// let reloader = Reloader::start(Schema::shared(), Sources::new()).unwrap();
    /// assert!(reloader.reload().unwrap().changed.is_empty());
    /// ```
    pub fn start(schema: Schema, sources: Sources) -> Result<Reloader, Problems> {
        let config = schema.load(&sources)?;
        let inner = Inner {
            schema,
            sources,
            published: watch::Sender::new(Arc::new(config)),
            reload_lock: Mutex::new(()),
            followers: Mutex::default(),
        };
        Ok(Reloader {
            inner: Arc::new(inner),
        })
    }

    /// The configuration in effect.
    #[must_use]
    pub fn current(&self) -> Arc<Config> {
        Arc::clone(&self.inner.published.borrow())
    }

    /// Subscribes to configuration changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<Config>> {
        self.inner.published.subscribe()
    }

    /// Registers `take`, which applies every new configuration or returns why it cannot; it may
    /// block. If one follower refuses, those that have already applied the configuration undo it.
    pub fn on_reload(
        &self,
        take: impl Fn(&Config) -> Result<Undo, String> + Send + Sync + 'static,
    ) {
        self.followers().push(Arc::new(take));
    }

    fn followers(&self) -> MutexGuard<'_, Vec<ApplyFn>> {
        self.inner.followers.lock()
    }

    /// Applies a configuration at all followers, or at none.
    fn apply_to_all(&self, config: &Config) -> Result<(), Problems> {
        let followers = self.followers().clone();
        let mut taken = Vec::<Undo>::new();
        for take in &followers {
            match take(config) {
                Ok(undo) => taken.push(undo),
                Err(text) => {
                    // Undone in reverse order, so that each follower sees the state it started
                    // from.
                    taken.into_iter().rev().for_each(|undo| undo());
                    let problem = Problem::new(Origin::Default, "", text);
                    return Err(Problems::sorted(vec![problem]));
                }
            }
        }
        Ok(())
    }

    /// Reloads the configuration from its sources. It reads files, so call it where blocking is
    /// allowed.
    ///
    /// # Errors
    /// Every problem found; the configuration in effect stays.
    pub fn reload(&self) -> Result<Reloaded, Problems> {
        let reload_lock = self.inner.reload_lock.lock();
        let reloading = service_manager::reloading();
        let read = self.inner.schema.load(&self.inner.sources);
        let outcome = read.and_then(|config| {
            // Published only once every follower has applied it, so that subscribers never see a
            // configuration that was rejected.
            self.apply_to_all(&config)?;
            let reloaded = difference(&self.current(), &config);
            self.inner.published.send_replace(Arc::new(config));
            Ok(reloaded)
        });
        drop(reloading);
        drop(reload_lock);
        report(&outcome);
        outcome
    }

    /// Reloads on every SIGHUP until shutdown.
    ///
    /// # Errors
    /// When the signal handler cannot be installed.
    pub fn reload_on_sighup(&self, shutdown: &Shutdown) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut hangup = signal(SignalKind::hangup()).map_err(Error::Signals)?;
        let (reloader, stop) = (self.clone(), shutdown.clone());
        shutdown.spawn("reload on SIGHUP", async move {
            loop {
                tokio::select! {
                    () = stop.requested() => return,
                    _ = hangup.recv() => {}
                }
                let reloader = reloader.clone();
                // The outcome is logged by `reload`, and a panic by the panic hook.
                let _ = tokio::task::spawn_blocking(move || reloader.reload()).await;
            }
        });
        Ok(())
    }
}

fn difference(old: &Config, new: &Config) -> Reloaded {
    let mut reloaded = Reloaded {
        warnings: new.warnings().iter().map(ToString::to_string).collect(),
        ..Reloaded::default()
    };
    let is_in = |one: &DisplayValue, all: &[DisplayValue]| {
        all.iter()
            .any(|other| one.key == other.key && one.value == other.value)
    };
    let removed = old.values().iter().filter(|one| !is_in(one, new.values()));
    let added = new.values().iter().filter(|one| !is_in(one, old.values()));
    for shown in added.chain(removed) {
        let list = if shown.restart {
            &mut reloaded.needs_restart
        } else {
            &mut reloaded.changed
        };
        if !list.contains(&shown.key) {
            list.push(shown.key.clone());
        }
    }
    // Masked secrets compare equal above; the typed comparison finds them without showing them.
    for section in new.changed_sections(old) {
        let prefix = format!("{section}.");
        let mut named = reloaded.changed.iter().chain(&reloaded.needs_restart);
        if !named.any(|key| key.starts_with(&prefix)) {
            reloaded.changed.push(format!("{section} (a secret)"));
        }
    }
    reloaded
}

fn report(outcome: &Result<Reloaded, Problems>) {
    match outcome {
        Ok(reloaded) => {
            for warning in &reloaded.warnings {
                tracing::warn!("{warning}");
            }
            for key in &reloaded.needs_restart {
                tracing::warn!(key, "key changed: takes effect after a restart");
            }
            tracing::info!(changed = ?reloaded.changed, "configuration reloaded");
        }
        Err(problems) => {
            for problem in problems {
                tracing::error!("{problem}");
            }
            tracing::error!("configuration reload failed: nothing was changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::LogConfig;

    /// A temporary file, removed on drop.
    struct File(std::path::PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> File {
            let name = format!("headworks-reload-{}-{name}.toml", std::process::id());
            let file = File(std::env::temp_dir().join(name));
            file.write(text);
            file
        }

        fn write(&self, text: &str) {
            std::fs::write(&self.0, text).unwrap();
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_good_file_is_published_and_a_bad_one_changes_nothing() {
        let file = File::new("good-bad", "[log]\nlevel = 'info'\n");
        let sources = Sources::new().file(&file.0);
        let reloader = Reloader::start(Schema::shared(), sources).unwrap();
        let mut follower = reloader.subscribe();

        file.write("[log]\nlevel = 5\nformta = 'json'\n");
        assert_eq!(reloader.reload().unwrap_err().len(), 2);
        assert!(!follower.has_changed().unwrap());
        assert_eq!(reloader.current().section::<LogConfig>().level, "info");

        file.write("[log]\nlevel = 'debug'\nformat = 'json'\n");
        let reloaded = reloader.reload().unwrap();
        assert_eq!(reloaded.changed, ["log.level"]);
        assert_eq!(reloaded.needs_restart, ["log.format"]);
        assert!(follower.has_changed().unwrap());
        assert_eq!(
            follower.borrow_and_update().section::<LogConfig>().level,
            "debug"
        );
    }

    #[test]
    fn a_rejected_configuration_is_undone_by_the_others() {
        let file = File::new("refused", "[log]\nlevel = 'info'\n");
        let sources = Sources::new().file(&file.0);
        let reloader = Reloader::start(Schema::shared(), sources).unwrap();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let noted = taken.clone();
        reloader.on_reload(move |config| {
            let level = config.section::<LogConfig>().level.clone();
            noted.lock().push(level);
            let noted = noted.clone();
            Ok(Box::new(move || {
                noted.lock().push("as before".into());
            }))
        });
        reloader.on_reload(
            |config| match config.section::<LogConfig>().level.as_str() {
                "trace" => Err("that is too much".into()),
                _ => Ok(Box::new(|| panic!("it was asked last"))),
            },
        );
        file.write("[log]\nlevel = 'trace'\n");
        let problems = reloader.reload().unwrap_err();
        assert_eq!(
            problems.iter().next().unwrap().to_string(),
            "that is too much"
        );
        assert_eq!(*taken.lock(), ["trace", "as before"]);
        assert_eq!(reloader.current().section::<LogConfig>().level, "info");
        file.write("[log]\nlevel = 'warn'\n");
        assert_eq!(reloader.reload().unwrap().changed, ["log.level"]);
    }

    #[test]
    fn a_new_secret_is_a_change_that_shows_nothing() {
        let file = File::new("secret", "[admin]\ntoken = 'the very first token'\n");
        let reloader = Reloader::start(Schema::shared(), Sources::new().file(&file.0)).unwrap();
        file.write("[admin]\ntoken = 'the second token'\n");
        assert_eq!(reloader.reload().unwrap().changed, ["admin (a secret)"]);
        assert!(reloader.reload().unwrap().changed.is_empty());
    }

    #[test]
    fn a_file_that_is_gone_changes_nothing() {
        let file = File::new("gone", "[log]\nlevel = 'warn'\n");
        let reloader = Reloader::start(Schema::shared(), Sources::new().file(&file.0)).unwrap();
        std::fs::remove_file(&file.0).unwrap();
        assert!(reloader.reload().is_err());
        assert_eq!(reloader.current().section::<LogConfig>().level, "warn");
    }
}
