//! The startup message: addresses, failures and commands to try. It goes to stderr, because it is
//! not data.

use std::path::Path;

use headworks_service::admin::AdminListener;

use crate::applications::Started;

/// Maximum number of suggested commands.
const MAX_SUGGESTIONS: usize = 3;

/// The content of the startup message.
pub(super) struct StartupMessage {
    file: Option<String>,
    lines: Vec<String>,
    tries: Vec<String>,
    running: usize,
    failures: usize,
}

impl StartupMessage {
    pub(super) fn new(file: Option<String>) -> StartupMessage {
        StartupMessage {
            file,
            lines: Vec::new(),
            tries: Vec::new(),
            running: 0,
            failures: 0,
        }
    }

    pub(super) fn started(&mut self, name: &str, started: &Started) {
        self.lines.push(format!("{name}: {}", started.addresses));
        self.tries.extend(started.example_command.clone());
        self.running += 1;
    }

    pub(super) fn failed(&mut self, name: &str, error: &anyhow::Error) {
        tracing::error!(
            application = name,
            error = format!("{error:#}"),
            "did not start"
        );
        self.lines.push(format!("{name}: did not start: {error:#}"));
        self.failures += 1;
    }

    pub(super) fn demo(&mut self, folder: &Path) {
        self.lines.push(format!(
            "demo: synthetic load for 15 minutes, files in {} until this program ends",
            folder.display()
        ));
    }

    /// One line for the service manager.
    pub(super) fn status(&self) -> String {
        match self.failures {
            0 => format!("{} applications run", self.running),
            failures => format!(
                "{} applications run, {failures} did not start",
                self.running
            ),
        }
    }

    pub(super) fn nothing_started(&self) -> bool {
        self.running == 0
    }

    pub(super) fn print(&self, listening: &AdminListener) {
        let base = format!("http://{}", listening.address());
        match self.failures {
            0 => eprintln!("headworks {} is up", crate::version()),
            1 => eprintln!(
                "headworks {} is up, but an application did not start",
                crate::version()
            ),
            failures => eprintln!(
                "headworks {} is up, but {failures} applications did not start",
                crate::version()
            ),
        }
        for line in &self.lines {
            eprintln!("{line}");
        }
        let file = self.file.as_deref().unwrap_or("defaults (no file found)");
        eprintln!("configuration: {file}");
        eprintln!("admin: {base}");
        let page = match listening.generated_token() {
            Some(token) => {
                eprintln!("token: {token} (generated for this run; set `admin.token` to keep one)");
                format!("{base}/?token={token}")
            }
            None => {
                eprintln!("token: as configured in `admin.token`");
                format!("{base}/")
            }
        };
        eprintln!("console: {page}");
        eprintln!("\ntry:");
        let more = [
            format!("{} top '{page}'", program_name()),
            format!("curl {base}/healthz"),
        ];
        for line in self
            .tries
            .iter()
            .take(MAX_SUGGESTIONS - 1)
            .chain(&more)
            .take(MAX_SUGGESTIONS)
        {
            eprintln!("  {line}");
        }
        eprintln!(
            "\nCtrl-C stops it; kill -HUP {} reloads the configuration\n",
            std::process::id()
        );
    }
}

/// The program name as it was invoked: a binary that is not installed is not on the path.
fn program_name() -> String {
    let name = std::env::args().next();
    name.filter(|name| name.contains('/'))
        .unwrap_or_else(|| "headworks".to_owned())
}
