//! A progress line for interactive runs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use headworks_sim::Progress;

/// Delay before the first output, so that short runs print nothing.
const DELAY: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(200);

/// One line of stderr that is overwritten in place. It prints nothing unless stderr is a terminal.
pub(super) struct ProgressLine<'a> {
    name: &'a str,
    /// Time of the next update.
    due: Option<Instant>,
    shown: bool,
}

impl<'a> ProgressLine<'a> {
    pub(super) fn on_a_terminal(name: &'a str) -> ProgressLine<'a> {
        let terminal = std::io::stderr().is_terminal();
        ProgressLine {
            name,
            due: terminal.then(|| Instant::now() + DELAY),
            shown: false,
        }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        let now = Instant::now();
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = Some(now + INTERVAL);
        self.shown = true;
        // Return to the start of the line and clear it.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{}: {}",
            self.name,
            format_progress(progress)
        );
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn format_progress(progress: Progress) -> String {
    let simulated = progress.simulated.as_secs_f64();
    let steps = progress.steps as f64 / 1e6;
    match progress.length {
        Some(length) => {
            let length = length.as_secs_f64();
            let percent = 100.0 * simulated / length;
            format!(
                "{percent:.0} %, {simulated:.1} of {length:.1} s simulated, {steps:.1} million steps"
            )
        }
        None => format!("{simulated:.1} s simulated, {steps:.1} million steps"),
    }
}
