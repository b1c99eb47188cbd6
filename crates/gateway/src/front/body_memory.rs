//! Memory of request bodies: a bound for all of them together, and for each tenant.
//!
//! A body is charged as it grows, and returned when its last copy is dropped. A tenant may hold as
//! much as it leaves free (Choudhury and Hahne, "Dynamic Queue Length Thresholds", 1998): one alone
//! gets half of the memory, two get a third each, and some is always left for the next one.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use headworks_h1::BodyBudget;
use parking_lot::Mutex;

/// Memory of all request bodies.
#[derive(Debug, Default)]
pub(crate) struct BodyMemory {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    tenants: HashMap<Arc<str>, u64>,
}

/// The memory that was refused to a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The tenant has its part already.
    Tenant,
    /// Others hold the memory.
    Total,
}

impl BodyMemory {
    /// The charge of a body that has not arrived yet. The bodies of all tenants together may have
    /// `most` bytes.
    pub(crate) fn charge(self: &Arc<Self>, tenant: &Arc<str>, most: u64) -> BodyCharge {
        BodyCharge {
            memory: self.clone(),
            tenant: tenant.clone(),
            most,
            bytes: 0,
            shortage: None,
        }
    }

    /// Bytes held by the bodies of all tenants.
    #[cfg(test)]
    fn total(&self) -> u64 {
        self.held.lock().total
    }
}

/// The memory that one body takes. Dropping it returns the memory.
#[derive(Debug)]
pub(crate) struct BodyCharge {
    memory: Arc<BodyMemory>,
    tenant: Arc<str>,
    most: u64,
    bytes: u64,
    /// Why it could not grow.
    pub(crate) shortage: Option<Shortage>,
}

impl BodyBudget for BodyCharge {
    fn grow(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let mut held = self.memory.held.lock();
        let own = held.tenants.get(&self.tenant).copied().unwrap_or(0);
        let free = self.most.saturating_sub(held.total).saturating_sub(bytes);
        if own + bytes > free {
            // The bytes of this body itself say nothing about the tenant's other bodies.
            self.shortage = Some(match own - self.bytes {
                0 => Shortage::Total,
                _ => Shortage::Tenant,
            });
            return false;
        }
        held.total += bytes;
        match held.tenants.get_mut(&self.tenant) {
            Some(own) => *own += bytes,
            None => drop(held.tenants.insert(self.tenant.clone(), bytes)),
        }
        self.bytes += bytes;
        true
    }
}

impl BodyCharge {
    /// Binds the charge to the body: it is returned with the last copy.
    pub(crate) fn bind(self, body: Bytes) -> Bytes {
        match self.bytes {
            0 => body,
            _ => Bytes::from_owner(ChargedBody {
                body,
                _charge: self,
            }),
        }
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.memory.held.lock();
        held.total -= self.bytes;
        if let Some(own) = held.tenants.get_mut(&self.tenant) {
            *own -= self.bytes;
            if *own == 0 {
                held.tenants.remove(&self.tenant);
            }
        }
    }
}

struct ChargedBody {
    body: Bytes,
    _charge: BodyCharge,
}

impl AsRef<[u8]> for ChargedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_gets_half_and_leaves_room_for_others() {
        let memory = Arc::new(BodyMemory::default());
        let tenants: [Arc<str>; 4] = ["a", "b", "c", "d"].map(Into::into);
        let held = tenants.each_ref().map(|tenant| {
            let mut charges = Vec::new();
            loop {
                let mut charge = memory.charge(tenant, 100);
                if !charge.grow(1) {
                    assert_eq!(charge.shortage, Some(Shortage::Tenant));
                    return charges;
                }
                charges.push(charge);
            }
        });
        assert_eq!(held.each_ref().map(Vec::len), [50, 25, 12, 6]);
        assert_eq!(memory.total(), 93);
        let mut large = memory.charge(&"e".into(), 100);
        assert!(!large.grow(5) && large.shortage == Some(Shortage::Total));
        assert!(large.grow(3), "the newcomer has some");
        drop((held, large));
        assert_eq!(memory.total(), 0);
        assert!(memory.held.lock().tenants.is_empty());
    }

    #[test]
    fn a_charge_is_returned_with_the_last_copy_of_the_body() {
        let memory = Arc::new(BodyMemory::default());
        let mut charge = memory.charge(&"a".into(), 100);
        assert!(charge.grow(2) && charge.grow(3));
        let body = charge.bind(Bytes::from_static(b"12345"));
        let copy = body.slice(1..3);
        drop(body);
        assert_eq!(memory.total(), 5);
        drop(copy);
        assert_eq!(memory.total(), 0);
    }
}
