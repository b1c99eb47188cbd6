//! The runtime of the forwards, with threads of low priority: the work that a misbehaving forwarder
//! causes must not delay a response to a client.

use std::io;
use tokio::runtime::{Builder, EnterGuard, Runtime};

/// The nice value of the threads.
const NICE: i32 = 10;

/// A runtime with low-priority threads. Dropping it stops them without waiting for their tasks.
pub(crate) struct ForwardRuntime(Option<Runtime>);

impl ForwardRuntime {
    pub(crate) fn new() -> io::Result<ForwardRuntime> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forward")
            .on_thread_start(|| {
                // On Linux the nice value belongs to the thread. Where this is not permitted,
                // clients may wait longer under load.
                let _ = rustix::process::setpriority_process(None, NICE);
            })
            .enable_all()
            .build()?;
        Ok(ForwardRuntime(Some(runtime)))
    }

    /// Enters the runtime: tasks are spawned on it until the guard is dropped.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(Runtime::enter)
    }
}

impl Drop for ForwardRuntime {
    fn drop(&mut self) {
        // A plain drop would block, which panics inside another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
