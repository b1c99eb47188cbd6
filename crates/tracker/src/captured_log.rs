//! Log lines, for tests.

use parking_lot::Mutex;
use std::io::{self, Write};
use std::sync::Arc;
use tracing::subscriber::with_default;
use tracing_subscriber::fmt::MakeWriter;

/// The lines that were logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

/// Runs a function and returns the lines that it logged, each with its level.
pub(crate) fn captured_log(function: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(lines.clone())
        .with_ansi(false)
        .finish();
    with_default(log, function);
    let text = String::from_utf8(lines.0.lock().clone()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
