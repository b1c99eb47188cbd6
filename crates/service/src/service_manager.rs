//! Tells the service manager how the program is doing: systemd's `sd_notify` protocol.
//!
//! The service manager names a socket in `NOTIFY_SOCKET`. Without it nothing is sent, and an error
//! is only logged: a program that serves must not end because nobody listens.

use std::sync::atomic::{AtomicBool, Ordering};

use sd_notify::NotifyState;

/// A program reloads only once it is ready.
static READY: AtomicBool = AtomicBool::new(false);

/// The program serves; `status` says what, in a line for people.
pub fn ready(status: &str) {
    READY.store(true, Ordering::SeqCst);
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The program is ending: no request is accepted any more.
pub fn stopping() {
    READY.store(false, Ordering::SeqCst);
    notify(&[NotifyState::Stopping]);
}

/// The program reads its configuration, until the result is dropped.
pub(crate) fn reloading() -> Reloading {
    if READY.load(Ordering::SeqCst) {
        // The time lets the manager tell this reload from one that ended before it asked.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "the service manager is not told of the reload"),
        }
    }
    Reloading(())
}

/// A reload that is under way.
#[must_use]
pub(crate) struct Reloading(());

impl Drop for Reloading {
    fn drop(&mut self) {
        // Also after a failed reload: the program serves with the configuration it had.
        if READY.load(Ordering::SeqCst) {
            notify(&[NotifyState::Ready]);
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}
