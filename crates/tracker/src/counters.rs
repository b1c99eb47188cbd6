//! Event counters. Each thread has its own set; readers add them up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident;)*) => {
        /// The counters of one thread, aligned so that two threads never share a cache line.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $($(#[doc = $doc])+ pub(crate) $name: Count,)*
        }

        /// The sums over all threads.
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
    /// Invalid requests over HTTP.
    http_bad;
    /// Connects over UDP.
    udp_connects;
    /// Announces over UDP.
    udp_announces;
    /// Scrapes over UDP.
    udp_scrapes;
    /// Packets that were not a request or had no valid connection id.
    udp_bad;
    /// Responses that the socket did not accept.
    udp_unsent;
    /// Connections accepted.
    connections;
    /// Connections closed because there were too many or because they were idle.
    connections_dropped;
    /// Failures to accept a connection, because the system had no descriptor left.
    accept_failures;
    /// Lists of forwarders that were fetched.
    lists_fetched;
    /// Lists of forwarders that could not be fetched.
    lists_failed;
    /// Pages for operators that were built.
    pages_built;
    /// First announces rejected by the rate limit.
    rate_limited;
    /// Forwards that found the queue full.
    dropped_full;
    /// Of those, the forwards dropped without a try, because another one had just found the queue
    /// full.
    untried;
    /// Forwarders left out because of the maximum per announce, which is lower while the queue is
    /// filling up.
    throttled;
    /// Announces of peers that were not stored because of a limit.
    not_stored;
}

/// A counter.
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
