//! Points at which a test can kill the process: `HEADWORKS_FAILPOINT=name`, or `name:3` for the
//! third time.
//!
//! They exist only in builds with debug assertions; in others the call does nothing. A test
//! compares the names in the source with those that it uses, so a new one cannot be forgotten.

/// Kills the process if the point and the count match.
#[cfg(debug_assertions)]
pub fn hit(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("HEADWORKS_FAILPOINT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), count.parse().ok()?))
    });
    let Some((point, count)) = wanted else { return };
    if point == name && SEEN.fetch_add(1, Ordering::Relaxed) + 1 == *count {
        // Like `kill -9`: no destructor runs, nothing is flushed.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Does nothing in a build without debug assertions.
#[cfg(not(debug_assertions))]
pub fn hit(_name: &str) {}
