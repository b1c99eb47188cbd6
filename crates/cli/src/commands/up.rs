//! `headworks up`: the admin listener and every application there is, or those that a command names.

use anyhow::Result;
use headworks_service::admin::{Admin, AdminConfig, Listening};
use headworks_service::exit::Exit;
use headworks_service::logs::{self, LogConfig, LogHandle};
use headworks_service::reload::Reloader;
use headworks_service::shutdown::{Shutdown, ShutdownConfig};

use crate::applications::{Application, schema};
use crate::arguments::Common;
use crate::commands::config::warn;
use crate::overrides;

pub(crate) fn run(common: &Common, applications: &[Application]) -> Result<Exit> {
    let sources = overrides::sources(common)?;
    let file = sources.path().map(|path| path.display().to_string());
    let reloader = Reloader::start(schema(), sources)?;
    warn(&reloader.current());
    let log = logs::install(&reloader.current().section::<LogConfig>())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let exit = runtime.block_on(serve(&reloader, log, file.as_deref(), applications));
    // Whatever was told to stop and did not is left behind, not waited for.
    runtime.shutdown_background();
    exit
}

async fn serve(
    reloader: &Reloader,
    log: LogHandle,
    file: Option<&str>,
    applications: &[Application],
) -> Result<Exit> {
    let shutdown = Shutdown::new();
    shutdown.on_signals()?;
    reloader.on_hangup(&shutdown)?;
    follow_log_level(reloader, &shutdown, log);

    let config = reloader.current().section::<AdminConfig>();
    let mut admin = Admin::new(&config).reloader(reloader.clone());
    let mut lines = Vec::new();
    for application in applications {
        let (with_panel, line) = (application.start)(reloader, &shutdown, admin)?;
        admin = with_panel;
        lines.push(format!("{}: {line}", application.name));
    }
    let listening = admin.bind().await?;
    greet(&listening, &lines, file);
    listening.serve(&shutdown);

    shutdown.requested().await;
    let grace = reloader.current().section::<ShutdownConfig>().grace;
    let end = shutdown.drain(grace).await;
    if end.left.is_empty() {
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
                tracing::error!(%error, "the log level stays");
            }
        }
    });
}

/// Where things are, and what to try. To stderr: it is not data.
fn greet(listening: &Listening, applications: &[String], file: Option<&str>) {
    let base = format!("http://{}", listening.address());
    eprintln!("headworks {} is up", env!("CARGO_PKG_VERSION"));
    for line in applications {
        eprintln!("{line}");
    }
    eprintln!(
        "configuration: {}",
        file.unwrap_or("defaults (no file found)")
    );
    eprintln!("admin: {base}");
    let token = match listening.generated_token() {
        Some(token) => {
            eprintln!("token: {token} (made for this run; set `admin.token` to keep one)");
            token
        }
        None => {
            eprintln!("token: as configured in `admin.token`");
            "$TOKEN"
        }
    };
    eprintln!("\ntry:");
    eprintln!("  curl {base}/healthz");
    eprintln!("  curl -H \"Authorization: Bearer {token}\" {base}/metrics");
    eprintln!("  curl -H \"Authorization: Bearer {token}\" {base}/admin/panels");
    eprintln!(
        "\nCtrl-C stops it; kill -HUP {} reloads the configuration\n",
        std::process::id()
    );
}
