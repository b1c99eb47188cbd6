//! Decides whether a fault is the upstream's or the request's.
//!
//! A request that fails at two upstreams is at fault itself: neither upstream is blamed for it, and
//! it is never counted again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use headworks_core::Key;
use parking_lot::Mutex;

use crate::upstream::{Upstream, Viewpoint};

/// Number of failed bodies that are remembered.
const CAPACITY: usize = 1024;

/// Failed requests by the fingerprint of their body.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    failed: Mutex<FailedBodies>,
}

#[derive(Debug, Default)]
struct FailedBodies {
    bodies: HashMap<Key, FailedBody>,
    oldest_first: VecDeque<Key>,
}

/// A body that failed.
#[derive(Debug)]
enum FailedBody {
    /// At one upstream.
    Once {
        upstream: Arc<Upstream>,
        tenant: Arc<str>,
    },
    /// At several. The upstreams are not to blame.
    Blamed,
}

impl FailedBodies {
    fn insert(&mut self, body: Key, failed: FailedBody) {
        if self.bodies.insert(body, failed).is_none() {
            self.oldest_first.push_back(body);
        }
        if self.oldest_first.len() > CAPACITY
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.bodies.remove(&oldest);
        }
    }
}

impl Faults {
    /// Records that `upstream` failed to serve a request.
    pub(crate) fn failed(
        &self,
        upstream: &Arc<Upstream>,
        at: Viewpoint<'_>,
        body: Key,
        now: Instant,
    ) {
        let mut known = self.failed.lock();
        match known.bodies.get(&body) {
            Some(FailedBody::Blamed) => return,
            Some(FailedBody::Once {
                upstream: first,
                tenant,
            }) if first.name() != upstream.name() => {
                let at_first = Viewpoint {
                    model: at.model,
                    tenant,
                    tokens: 0,
                };
                first
                    .health
                    .forgive(at_first, body, first.settings.suspend_rule());
                known.insert(body, FailedBody::Blamed);
                return;
            }
            Some(FailedBody::Once { .. }) => {}
            None => {
                let (upstream, tenant) = (upstream.clone(), at.tenant.clone());
                known.insert(body, FailedBody::Once { upstream, tenant });
            }
        }
        drop(known);
        let rule = upstream.settings.suspend_rule();
        upstream.health.failed(at, body, rule, now);
    }
}
