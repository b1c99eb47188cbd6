//! How far a run is, for whoever sits in front of it.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use headworks_sim::Progress;

/// Short runs say nothing.
const PATIENCE: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

/// One line of stderr, written over and over. Where stderr is no terminal it says nothing.
pub(super) struct Line<'a> {
    name: &'a str,
    /// When it may speak next.
    due: Option<Instant>,
    shown: bool,
}

impl<'a> Line<'a> {
    pub(super) fn on_a_terminal(name: &'a str) -> Line<'a> {
        let terminal = std::io::stderr().is_terminal();
        Line {
            name,
            due: terminal.then(|| Instant::now() + PATIENCE),
            shown: false,
        }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        let now = Instant::now();
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = Some(now + EVERY);
        self.shown = true;
        // Back to the start of the line, and clear what is left of it.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{}: {}",
            self.name,
            words(progress)
        );
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn words(progress: Progress) -> String {
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
