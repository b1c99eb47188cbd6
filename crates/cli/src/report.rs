//! Error output and exit codes.

use headworks_service::config::{Problems, truncate_numbers};
use headworks_service::exit::Exit;
use indicatif::MultiProgress;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// The progress bars on the terminal, if any.
static BARS: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Sets the progress bars that output must not run into, or removes them.
pub(crate) fn set_bars(bars: Option<MultiProgress>) {
    *BARS.lock().unwrap_or_else(PoisonError::into_inner) = bars;
}

/// Prints above the progress bars: they move down, instead of erasing it when they are redrawn.
fn above_bars<R>(print: impl FnOnce() -> R) -> R {
    let bars = BARS.lock().unwrap_or_else(PoisonError::into_inner);
    match &*bars {
        Some(bars) => bars.suspend(print),
        None => print(),
    }
}

/// An error of the user's request, as opposed to a failure while carrying it out.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Prints data to stdout. A closed pipe is not an error, as in `headworks … | head`.
pub(crate) fn data(text: &str) -> anyhow::Result<()> {
    let written = above_bars(|| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    });
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to stdout"))
        }
        _ => Ok(()),
    }
}

/// Prints a line to stderr. Unlike `eprintln!` it does not panic if stderr is closed.
pub(crate) fn note(line: &str) {
    let _ = above_bars(|| writeln!(std::io::stderr(), "{line}"));
}

/// Prints the error with its causes to stderr.
pub(crate) fn print_error(error: &anyhow::Error) -> Exit {
    if let Some(problems) = error.downcast_ref::<Problems>() {
        return print_problems(problems);
    }
    note(&truncate_numbers(&format!("error: {error}")));
    for cause in error.chain().skip(1) {
        note(&truncate_numbers(&format!("  because: {cause}")));
    }
    if error.is::<UsageError>() {
        Exit::Usage
    } else {
        Exit::Failed
    }
}

/// Maximum number of problems printed; the others are only counted.
const MAX_PRINTED: usize = 100;

/// Prints the problems of a configuration to stderr.
pub(crate) fn print_problems(problems: &Problems) -> Exit {
    for problem in problems.into_iter().take(MAX_PRINTED) {
        note(&format!("error: {problem}"));
    }
    let count = problems.len();
    let things = if count == 1 { "problem" } else { "problems" };
    let more = count.saturating_sub(MAX_PRINTED);
    if more > 0 {
        note(&format!("and {more} more"));
    }
    note(&format!(
        "{count} {things} in the configuration; `headworks config init` lists every key"
    ));
    Exit::Usage
}
