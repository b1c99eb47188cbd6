//! Request log: arrivals in the format of `headworks sim --trace`, without prompts and keys.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use headworks_core::Class;
use parking_lot::Mutex;

use crate::error::Error;

/// The log file: one line per arrival, and one comment per end.
pub(crate) struct RequestLog {
    start: Instant,
    file: Mutex<BufWriter<File>>,
}

impl RequestLog {
    pub(crate) fn create(path: &Path) -> Result<RequestLog, Error> {
        let unusable = |source| Error::RequestLog {
            path: path.to_path_buf(),
            source,
        };
        let mut file = BufWriter::new(File::create(path).map_err(unusable)?);
        writeln!(file, "arrival time,class,flow,cost").map_err(unusable)?;
        Ok(RequestLog {
            start: Instant::now(),
            file: Mutex::new(file),
        })
    }

    pub(crate) fn arrived(&self, class: Class, tenant: &str, estimate: u64) {
        let mut file = self.file.lock();
        // The time is taken under the lock, so that the lines are in order.
        let at = self.start.elapsed().as_secs_f64();
        // Keeps an arrival on one line, whatever the name of the tenant.
        let tenant = tenant.replace(['"', '\n', '\r'], "_");
        let _ = writeln!(file, "{at:.6},{},\"{tenant}\",{estimate}", class.0);
    }

    pub(crate) fn ended(&self, id: &str, reason: &str, status: u16, tokens: Option<u64>) {
        let at = self.start.elapsed().as_secs_f64();
        let tokens = tokens.map_or("unknown".to_owned(), |tokens| tokens.to_string());
        let _ = writeln!(
            self.file.lock(),
            "# {at:.6} {id} {reason} {status}, tokens {tokens}"
        );
    }

    pub(crate) fn flush(&self) {
        if let Err(cause) = self.file.lock().flush() {
            tracing::warn!(%cause, "cannot write the request log");
        }
    }
}
