//! What happened so far, in numbers. Each thread counts for itself; whoever reads adds up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident;)*) => {
        /// One thread's counters.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $($(#[doc = $doc])+ pub(crate) $name: Count,)*
        }

        /// All threads' counters.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Totals {
            $($(#[doc = $doc])+ pub(crate) $name: u64,)*
        }

        impl Totals {
            pub(crate) fn of(all: &[Arc<Counters>]) -> Totals {
                Totals { $($name: all.iter().map(|one| one.$name.get()).sum(),)* }
            }
        }
    };
}

counters! {
    /// Announces over HTTP.
    http_announces;
    /// Scrapes over HTTP.
    http_scrapes;
    /// Requests over HTTP that made no sense.
    http_bad;
    /// Connects over UDP.
    udp_connects;
    /// Announces over UDP.
    udp_announces;
    /// Scrapes over UDP.
    udp_scrapes;
    /// Packets that were no request, or had no good connection id.
    udp_bad;
    /// Answers that the system did not take.
    udp_unsent;
    /// Connections taken.
    connections;
    /// Connections closed because there were too many, or for being silent.
    connections_dropped;
    /// Announces that were refused because the queue was too full.
    rate_limited;
    /// Forwards that found the queue full.
    dropped_full;
    /// Of those, the ones for which another of the same announce had found it full just before.
    untried;
    /// Announces that went to fewer forwarders because the queue was full.
    throttled;
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
