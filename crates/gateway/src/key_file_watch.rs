//! Notices changes of the key file, so that they take effect without a reload.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;

/// Interval of the looks at the file. With it, a revoked key is refused within 2 s.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time in which a changed file must not change again before it is read. A program that writes it
/// in place may have written half of it, which is perhaps half of the keys.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// After this many looks that each found a change, the file is read all the same.
const SETTLING_LOOKS: usize = 5;

/// Distinguishes the states of a file. Every tool that writes it changes one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    path: PathBuf,
    /// Device, inode, size, and times of change in seconds and nanoseconds.
    identity: Option<[i128; 7]>,
}

impl FileState {
    fn of(path: &Path) -> FileState {
        // The link is followed: its target is what is read.
        let identity = std::fs::metadata(path).ok().map(|about| {
            [
                about.dev().into(),
                about.ino().into(),
                about.size().into(),
                about.mtime().into(),
                about.mtime_nsec().into(),
                about.ctime().into(),
                about.ctime_nsec().into(),
            ]
        });
        FileState {
            path: path.to_path_buf(),
            identity,
        }
    }
}

/// Applies changes of the key file until shutdown. A file that cannot be used changes nothing.
pub(crate) async fn follow(shared: Arc<Shared>, stop: CancellationToken) {
    let follow = async {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watch = Watch::default();
        loop {
            ticks.tick().await;
            let shared = shared.clone();
            let looked = tokio::task::spawn_blocking(move || {
                watch.poll(&shared);
                watch
            });
            watch = looked.await.unwrap_or_default();
        }
    };
    let _: Option<()> = stop.run_until_cancelled(follow).await;
}

#[derive(Default)]
struct Watch {
    /// The state of the file when it was last read.
    read: Option<FileState>,
    /// The last error, so that it is logged once.
    failed: Option<String>,
}

impl Watch {
    fn poll(&mut self, shared: &Shared) {
        let Some(path) = shared.active.load().config.keys_file.clone() else {
            return;
        };
        // Taken before the file is read: a change in between is noticed at the next look.
        let mut state = FileState::of(&path);
        if self.read.as_ref() == Some(&state) {
            return;
        }
        // Not forever: a file that changes all the time has to count as well.
        for _ in 0..SETTLING_LOOKS {
            std::thread::sleep(SETTLED_AFTER);
            let before = std::mem::replace(&mut state, FileState::of(&path));
            if state == before {
                break;
            }
        }
        match shared.read_key_file() {
            Ok(()) => {
                self.read = Some(state);
                self.failed = None;
            }
            Err(error) => {
                // Not remembered as read: the file is tried again at every look.
                let error = error.to_string();
                if self.failed.as_ref() != Some(&error) {
                    tracing::error!(error, "the previous keys stay in force");
                }
                self.failed = Some(error);
            }
        }
    }
}
