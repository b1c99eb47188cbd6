//! Metrics of this process, under the names that Prometheus's client libraries use.
//!
//! Read from `/proc/self` at every scrape. A value that cannot be read is left out: a container may
//! hide it.

use std::time::SystemTime;

use nix::time::{ClockId, clock_gettime};

use super::{Collect, Exposition, Family};

const CPU: Family = Family::counter(
    "process_cpu_seconds_total",
    "Processor time used by the process.",
);
const RESIDENT: Family = Family::gauge(
    "process_resident_memory_bytes",
    "Memory of the process that is in RAM.",
);
const VIRTUAL: Family = Family::gauge(
    "process_virtual_memory_bytes",
    "Address space of the process.",
);
const THREADS: Family = Family::gauge("process_threads", "Threads of the process.");
const OPEN_FILES: Family = Family::gauge("process_open_fds", "Open file descriptors.");
const MAX_FILES: Family = Family::gauge("process_max_fds", "Limit on open file descriptors.");
const START: Family = Family::gauge(
    "process_start_time_seconds",
    "Start of the process, in seconds since 1970.",
);

/// Metrics of this process.
pub(crate) struct ProcessMetrics {
    started: SystemTime,
}

impl ProcessMetrics {
    /// To be made when the program starts.
    pub(crate) fn new() -> ProcessMetrics {
        ProcessMetrics {
            started: SystemTime::now(),
        }
    }
}

impl Collect for ProcessMetrics {
    fn collect(&self, out: &mut Exposition) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kibibytes = |name| number_of(&status, name).map(|value| value * 1024.0);
        let since = self.started.duration_since(SystemTime::UNIX_EPOCH);
        let values = [
            (&CPU, cpu_seconds()),
            (&RESIDENT, kibibytes("VmRSS:")),
            (&VIRTUAL, kibibytes("VmSize:")),
            (&THREADS, number_of(&status, "Threads:")),
            (&OPEN_FILES, open_files()),
            (&MAX_FILES, max_files()),
            (&START, since.ok().map(|since| since.as_secs_f64())),
        ];
        for (family, value) in values {
            if let Some(value) = value {
                out.family(family).sample(&[], value);
            }
        }
    }
}

fn cpu_seconds() -> Option<f64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

fn open_files() -> Option<f64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    // One of them is the open folder itself.
    Some(entries.count().saturating_sub(1) as f64)
}

fn max_files() -> Option<f64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    number_of(&limits, "Max open files")
}

/// The first number after a name at the beginning of a line.
fn number_of(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Registry;
    use std::sync::Arc;

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(' '))
        });
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(' ')
            .next()
            .and_then(|value| value.parse().ok())
            .expect("a number")
    }

    #[test]
    fn the_process_is_measured() {
        let registry = Registry::new();
        registry.add(Arc::new(ProcessMetrics::new()));
        let before = registry.render();
        let files: Vec<_> = (0..20)
            .map(|_| std::fs::File::open("/proc/self/status").expect("readable"))
            .collect();
        let memory = vec![1u8; 64 << 20];
        let spent: u64 = (0..20_000_000u64).fold(0, |sum, n| sum ^ std::hint::black_box(n));
        let after = registry.render();
        assert!(
            value(&after, "process_cpu_seconds_total")
                > value(&before, "process_cpu_seconds_total")
        );
        let grown = value(&after, "process_resident_memory_bytes")
            - value(&before, "process_resident_memory_bytes");
        assert!(
            grown >= f64::from(32 << 20),
            "{grown} bytes for {} and {spent}",
            memory.len()
        );
        let opened = value(&after, "process_open_fds") - value(&before, "process_open_fds");
        // Other tests of this process open and close files, too.
        assert!(opened >= 1.0, "{opened} for {}", files.len());
        assert!(value(&after, "process_max_fds") >= value(&after, "process_open_fds"));
        assert!(value(&after, "process_virtual_memory_bytes") > 0.0);
        assert!(value(&after, "process_threads") >= 1.0);
        assert!(value(&after, "process_start_time_seconds") > 1.7e9);
    }
}
