//! Request log: arrivals in the format of `headworks sim --trace`, without prompts and keys.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use headworks_core::Class;
use parking_lot::Mutex;

use crate::error::Error;

/// Moves a log of an earlier run aside, to the first free name `PATH.1`, `PATH.2` and so on. Its
/// times count from another start, so that the two cannot be one file.
fn keep_previous(path: &Path) -> std::io::Result<()> {
    let is_empty = match std::fs::metadata(path) {
        Ok(found) => !found.is_file() || found.len() == 0,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    if is_empty {
        return Ok(());
    }
    let numbered = (1..).map(|number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    });
    let mut free = numbered.filter(|name| !name.exists());
    let kept = free.next().unwrap_or_else(|| path.with_extension("old"));
    std::fs::rename(path, kept)
}

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
        keep_previous(path).map_err(unusable)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_an_earlier_run_is_kept() {
        let folder = std::env::temp_dir().join(format!("headworks-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("requests.csv");
        for tenant in ["first", "second", "third"] {
            let log = RequestLog::create(&path).unwrap();
            log.arrived(Class(1), tenant, 5);
            log.flush();
        }
        let has = |name: &str, tenant: &str| {
            let text = std::fs::read_to_string(folder.join(name)).unwrap();
            text.contains(tenant)
        };
        assert!(has("requests.csv.1", "first") && has("requests.csv.2", "second"));
        assert!(has("requests.csv", "third") && !has("requests.csv", "first"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
