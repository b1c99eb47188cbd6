//! Decides whether an error response counts against its upstream.
//!
//! A prompt can make an upstream fail. If every error response counted, one tenant could suspend an
//! upstream for all tenants. Therefore an error counts against the upstream only if other tenants
//! get errors as well, or if no other tenant is served by it. Otherwise the upstream is avoided for
//! the tenant that gets the errors and for no other.
//!
//! Connection failures and responses that break off are not judged here: they always count.

use std::sync::Arc;
use std::time::Instant;

use headworks_core::TargetId;
use headworks_pool::Health;
use parking_lot::Mutex;

use crate::config::UpstreamSettings;

/// Recent outcomes of every upstream.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// By target. The size depends on the number of upstreams only, not on the number of tenants.
    upstreams: Mutex<Vec<Record>>,
}

/// Recent outcomes of one upstream.
#[derive(Debug, Default)]
struct Record {
    /// Tenants that got a successful response.
    served: Tenants,
    /// Tenants that got an error since the last successful response.
    failed: Tenants,
    /// The tenant that was last alone in getting errors, and the number of its errors in a row.
    alone: Option<(Arc<str>, u32)>,
    /// The tenant for which this upstream is avoided, and until when.
    avoided: Option<(Arc<str>, Instant)>,
}

/// No tenant, one tenant, or several. This is all that the decision needs, and it has a fixed size.
#[derive(Debug, Default)]
enum Tenants {
    #[default]
    None,
    One(Arc<str>),
    Several,
}

impl Tenants {
    fn add(&mut self, tenant: &Arc<str>) {
        match self {
            Tenants::None => *self = Tenants::One(tenant.clone()),
            Tenants::One(known) if known != tenant => *self = Tenants::Several,
            Tenants::One(_) | Tenants::Several => {}
        }
    }

    /// Whether a tenant other than `tenant` is among them.
    fn has_other_than(&self, tenant: &Arc<str>) -> bool {
        match self {
            Tenants::None => false,
            Tenants::One(known) => known != tenant,
            Tenants::Several => true,
        }
    }
}

impl Faults {
    /// Records a successful response to `tenant`.
    pub(crate) fn answered(&self, target: TargetId, tenant: &Arc<str>) {
        let mut upstreams = self.upstreams.lock();
        let record = record(&mut upstreams, target);
        record.served.add(tenant);
        record.failed = Tenants::None;
        // A success of another tenant proves nothing about the requests of the tenant that fails
        // alone.
        record.alone.take_if(|(alone, _)| alone == tenant);
    }

    /// Records an error response to `tenant` and returns its meaning for the upstream's health.
    pub(crate) fn failed(
        &self,
        target: TargetId,
        settings: &UpstreamSettings,
        tenant: &Arc<str>,
        now: Instant,
    ) -> Health {
        let mut upstreams = self.upstreams.lock();
        let record = record(&mut upstreams, target);
        record.failed.add(tenant);
        let is_alone = !record.failed.has_other_than(tenant);
        // With one tenant only, or with several that fail, nothing speaks for the upstream.
        if !(is_alone && record.served.has_other_than(tenant)) {
            return Health::Fault;
        }
        let before = record.alone.take().filter(|(alone, _)| alone == tenant);
        let errors = before.map_or(0, |(_, errors)| errors) + 1;
        // Once the upstream is avoided, counting starts anew.
        if settings.fault_threshold > 0 && errors >= settings.fault_threshold {
            record.avoided = Some((tenant.clone(), now + settings.suspend_for));
        } else {
            record.alone = Some((tenant.clone(), errors));
        }
        Health::Unknown
    }

    /// Removes the upstreams that are avoided for `tenant`, unless the group would become empty.
    pub(crate) fn avoid(&self, group: &mut Vec<TargetId>, tenant: &Arc<str>, now: Instant) {
        if group.len() < 2 {
            return;
        }
        let upstreams = self.upstreams.lock();
        let is_wanted = |target: &TargetId| {
            let record = upstreams.get(target.index());
            let avoided = record.and_then(|record| record.avoided.as_ref());
            avoided.is_none_or(|(avoided, until)| avoided != tenant || *until <= now)
        };
        // An upstream that probably fails is better than none.
        if group.iter().any(is_wanted) {
            group.retain(is_wanted);
        }
    }
}

fn record(upstreams: &mut Vec<Record>, target: TargetId) -> &mut Record {
    if upstreams.len() <= target.index() {
        upstreams.resize_with(target.index() + 1, Record::default);
    }
    &mut upstreams[target.index()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn errors_count_against_the_upstream_unless_only_one_of_several_tenants_gets_them() {
        let (faults, target, now) = (Faults::default(), TargetId::new(0), Instant::now());
        let settings = UpstreamSettings {
            fault_threshold: 2,
            suspend_for: Duration::from_secs(5),
            ..UpstreamSettings::default()
        };
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        let failed = |tenant| faults.failed(target, &settings, tenant, now);
        assert_eq!(failed(&a), Health::Fault, "nobody was ever served");
        faults.answered(target, &a);
        assert_eq!(failed(&a), Health::Fault, "nobody else is served");
        faults.answered(target, &b);
        assert_eq!(failed(&a), Health::Unknown);
        assert_eq!(failed(&b), Health::Fault, "the second tenant");
        assert_eq!(failed(&a), Health::Fault);
    }

    #[test]
    fn an_upstream_is_avoided_for_one_tenant_and_for_a_while() {
        let (faults, now) = (Faults::default(), Instant::now());
        let targets = [TargetId::new(0), TargetId::new(1)];
        let settings = UpstreamSettings {
            fault_threshold: 2,
            suspend_for: Duration::from_secs(5),
            ..UpstreamSettings::default()
        };
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        let group = |tenant, after| {
            let mut group = targets.to_vec();
            faults.avoid(&mut group, tenant, now + Duration::from_secs(after));
            group
        };
        faults.answered(targets[0], &b);
        for _ in 0..2 {
            assert_eq!(group(&a, 0), targets);
            faults.failed(targets[0], &settings, &a, now);
            // A success of another tenant in between changes nothing for the tenant that fails.
            faults.answered(targets[0], &b);
        }
        assert_eq!(group(&a, 0), targets[1..]);
        assert_eq!(group(&b, 0), targets);
        assert_eq!(group(&a, 6), targets);
        let mut only = vec![targets[0]];
        faults.avoid(&mut only, &a, now);
        assert_eq!(only, targets[..1], "the last one is never taken away");
    }
}
