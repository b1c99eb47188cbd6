//! `headworks up`: runs the admin listener and all applications, or those that a command selects.

use anyhow::Result;
use clap::Args;
use headworks_console::Console;
use headworks_service::admin::{Admin, AdminConfig};
use headworks_service::config::{Config, Origin};
use headworks_service::exit::Exit;
use headworks_service::logs::{self, LogConfig, LogHandle};
use headworks_service::privileges::{self, ProcessConfig};
use headworks_service::reload::Reloader;
use headworks_service::service_manager;
use headworks_service::shutdown::{Shutdown, ShutdownConfig};

use crate::applications::{APPLICATIONS, Application, schema};
use crate::arguments::Common;
use crate::commands::config::warn;
use crate::commands::startup_message::StartupMessage;
use crate::demo::{Demo, DemoFiles, Targets};
use crate::overrides;
use crate::report::UsageError;

/// Arguments of this command only. Every key of every section is also a flag.
#[derive(Debug, Args)]
pub(crate) struct UpCommand {
    /// Fail if any application does not start. By default the others keep running, and the startup
    /// message names the failure.
    #[arg(long)]
    strict: bool,
    /// Show all applications at work: synthetic clients, forwarders that misbehave and a migration,
    /// for fifteen minutes, with a configuration of its own in a temporary folder.
    #[arg(long)]
    demo: bool,
}

impl UpCommand {
    pub(crate) fn run(&self, common: &Common) -> Result<Exit> {
        if !self.demo {
            return run_with(common, APPLICATIONS, self.strict, DemoMode::Offered);
        }
        if common.config.is_some() {
            let text = "`--demo` has a configuration of its own: leave out `--config`";
            return Err(UsageError(text.into()).into());
        }
        let files = DemoFiles::write()?;
        run_with(common, APPLICATIONS, self.strict, DemoMode::Runs(files))
    }
}

/// Whether there is a demo.
enum DemoMode {
    No,
    /// The console offers one as long as nothing is configured.
    Offered,
    /// It starts at once, with a configuration of its own.
    Runs(DemoFiles),
}

/// Runs `applications`; with `strict`, a failure to start one of them is an error.
pub(crate) fn run(common: &Common, applications: &[Application], strict: bool) -> Result<Exit> {
    run_with(common, applications, strict, DemoMode::No)
}

fn run_with(
    common: &Common,
    applications: &[Application],
    strict: bool,
    mut demo: DemoMode,
) -> Result<Exit> {
    let sources = match &demo {
        // Nothing of this machine's may be mixed in: neither real forwarders nor a shared database.
        DemoMode::Runs(files) => overrides::isolated(&files.config(), common)?,
        DemoMode::No | DemoMode::Offered => overrides::sources(common)?,
    };
    let file = sources.path().map(|path| path.display().to_string());
    let reloader = Reloader::start(schema(), sources)?;
    if matches!(demo, DemoMode::Offered) && (file.is_some() || is_configured(&reloader.current())) {
        demo = DemoMode::No;
    }
    warn(&reloader.current());
    let log = logs::install(&reloader.current().section::<LogConfig>())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let mut startup_message = StartupMessage::new(file);
    let exit = runtime.block_on(serve(
        &reloader,
        log,
        applications,
        strict,
        &mut demo,
        &mut startup_message,
    ));
    // Tasks that did not stop in time are abandoned, so that the process can exit.
    runtime.shutdown_background();
    exit
}

/// Whether variables or flags name something real that a demo would send its load to.
fn is_configured(config: &Config) -> bool {
    const REAL: [&str; 7] = [
        "fleet.url",
        "gateway.key",
        "gateway.keys_file",
        "gateway.upstream",
        "tracker.forwarder_lists",
        "tracker.forwarders",
        "tracker.forwarders_file",
    ];
    let mut values = config.values().iter();
    values.any(|value| {
        let is_set = !matches!(value.origin, Origin::Default | Origin::NoFile);
        is_set && REAL.iter().any(|key| value.key.starts_with(key))
    })
}

async fn serve(
    reloader: &Reloader,
    log: LogHandle,
    applications: &[Application],
    strict: bool,
    demo: &mut DemoMode,
    startup_message: &mut StartupMessage,
) -> Result<Exit> {
    let shutdown = Shutdown::new();
    shutdown.on_signals()?;
    reloader.reload_on_sighup(&shutdown)?;
    follow_log_level(reloader, &shutdown, log);

    let config = reloader.current().section::<AdminConfig>();
    let mut admin = Admin::new(&config).reloader(reloader.clone());
    let (mut failed, mut ends) = (None, Vec::new());
    let mut targets = Targets::default();
    for application in applications {
        match (application.start)(reloader, &shutdown) {
            Ok(started) => {
                startup_message.started(application.name, &started);
                targets.set(application.name, started.http);
                admin = (started.attach)(admin);
                ends.push(started.ended_badly);
            }
            Err(error) if strict => {
                return Err(error.context(format!("{} did not start", application.name)));
            }
            Err(error) => {
                startup_message.failed(application.name, &error);
                failed = Some(error);
            }
        }
    }
    if let Some(error) = failed.filter(|_| startup_message.nothing_started()) {
        return Err(error.context("no application started"));
    }
    targets.migrations = admin.panels().get("migrate").cloned();
    let demo_started = match demo {
        DemoMode::No => None,
        DemoMode::Offered => {
            admin = admin.panel(Demo::new(targets, None, &shutdown).panel());
            None
        }
        DemoMode::Runs(files) => {
            startup_message.demo(files.folder());
            let demo = Demo::new(targets, Some(files), &shutdown);
            admin = admin.panel(demo.panel());
            Some(demo)
        }
    };
    let listening = Console::mount(admin, &shutdown).bind().await?;
    // After every bind: ports below 1024 need root.
    privileges::drop_privileges(&reloader.current().section::<ProcessConfig>())?;
    startup_message.print(&listening);
    listening.serve(&shutdown);
    if let Some(demo) = demo_started {
        demo.start().await;
    }

    service_manager::ready(&startup_message.status());
    shutdown.requested().await;
    service_manager::stopping();
    let grace = reloader.current().section::<ShutdownConfig>().grace;
    let end = shutdown.drain(grace).await;
    let ended_badly = ends.iter().any(|ended_badly| ended_badly());
    if end.unfinished.is_empty() && !end.forced && !ended_badly {
        tracing::info!("stopped");
        return Ok(Exit::Done);
    }
    Ok(Exit::FinishedWithFailures)
}

fn follow_log_level(reloader: &Reloader, shutdown: &Shutdown, log: LogHandle) {
    let mut configs = reloader.subscribe();
    let stop = shutdown.token();
    shutdown.spawn("log level", async move {
        while let Some(Ok(())) = stop.run_until_cancelled(configs.changed()).await {
            let config = configs.borrow_and_update().section::<LogConfig>();
            if let Err(error) = log.apply(&config) {
                tracing::error!(%error, "log level not changed");
            }
        }
    });
}
