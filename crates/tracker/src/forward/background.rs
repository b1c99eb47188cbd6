//! The forward plane's own threads. They give way to those that answer clients: a forwarder that
//! sends rubbish must not make anybody wait.

use std::io;
use tokio::runtime::{Builder, EnterGuard, Runtime};

/// How far they stand back, as `nice` counts.
const STAND_BACK: i32 = 10;

/// Threads for what nobody waits for. They end with it, whatever they are at.
pub(crate) struct Background(Option<Runtime>);

impl Background {
    pub(crate) fn new() -> io::Result<Background> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forward")
            .on_thread_start(|| {
                // On Linux it is the thread's own. Where it is not allowed, clients may wait longer
                // under load.
                let _ = rustix::process::setpriority_process(None, STAND_BACK);
            })
            .enable_all()
            .build()?;
        Ok(Background(Some(runtime)))
    }

    /// What is spawned meanwhile runs there.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(Runtime::enter)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A runtime that waits for its threads must not be dropped where others wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
