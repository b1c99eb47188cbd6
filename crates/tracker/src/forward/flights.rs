//! What is being said to forwarders right now, so that `stopped` is never said before it.

use super::Forward;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Torrent, forwarder and peer.
type Name = ([u8; 20], u16, [u8; 20]);

/// Calls under way, each with the `stopped` that must follow it.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<Name, Flight>>);

#[derive(Default)]
struct Flight {
    count: u32,
    after: Option<Forward>,
}

fn name(forward: &Forward) -> Name {
    let announce = &forward.announce;
    (announce.info_hash.0, forward.forwarder, announce.peer_id.0)
}

impl Flights {
    /// A call begins.
    pub(super) fn begin(self: &Arc<Self>, forward: &Forward) -> Aloft {
        let name = name(forward);
        self.0.lock().entry(name).or_default().count += 1;
        Aloft {
            flights: self.clone(),
            name,
            landed: false,
        }
    }

    /// Leaves `stopped` to the call under way for its peer; `false` if there is none.
    pub(super) fn follow(&self, stopped: &Forward) -> bool {
        let mut flights = self.0.lock();
        let flight = flights.get_mut(&name(stopped));
        flight.map(|flight| flight.after = Some(*stopped)).is_some()
    }
}

/// A call under way.
pub(super) struct Aloft {
    flights: Arc<Flights>,
    name: Name,
    landed: bool,
}

impl Aloft {
    /// The call is over; what must follow it.
    pub(super) fn land(mut self) -> Option<Forward> {
        self.landed = true;
        self.end()
    }

    fn end(&self) -> Option<Forward> {
        let mut flights = self.flights.0.lock();
        let flight = flights.get_mut(&self.name)?;
        flight.count -= 1;
        if flight.count > 0 {
            return None;
        }
        flights.remove(&self.name)?.after
    }
}

impl Drop for Aloft {
    fn drop(&mut self) {
        if !self.landed {
            self.end();
        }
    }
}
