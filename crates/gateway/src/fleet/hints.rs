//! Which hints of the nodes the allocator has counted.
//!
//! A report stays in the exchange until the next one replaces it, and that of a dead node stays for
//! minutes. An overload in it must lower a rate once, and not in every round.

use std::collections::BTreeMap;

use headworks_fleet::NodeToken;

use super::wire::{NodeMessage, PoolHint};

/// The hints that were counted, by node.
#[derive(Debug, Default)]
pub(super) struct CountedHints {
    nodes: BTreeMap<NodeToken, Counted>,
}

#[derive(Debug)]
struct Counted {
    /// The first report of the node that this allocator has read.
    first: u64,
    /// The hints in it. An allocator before this one may have counted them, and the node may be
    /// dead: they count if it reports again.
    held: Vec<PoolHint>,
    /// The number of the last hints that were counted or held.
    since: u64,
}

impl CountedHints {
    /// The hints of a report that have not been counted.
    pub(super) fn count(&mut self, node: NodeToken, message: &NodeMessage) -> Vec<PoolHint> {
        let Some(counted) = self.nodes.get_mut(&node) else {
            let counted = Counted {
                first: message.number,
                held: message.hints.clone(),
                since: message.hints_since,
            };
            self.nodes.insert(node, counted);
            return Vec::new();
        };
        let mut found = Vec::new();
        if message.number > counted.first {
            found.append(&mut counted.held);
        }
        if !message.hints.is_empty() && message.hints_since > counted.since {
            counted.since = message.hints_since;
            found.extend_from_slice(&message.hints);
        }
        found
    }

    /// Drops nodes that have no report any more.
    pub(super) fn retain(&mut self, reports: impl Fn(&NodeToken) -> bool) {
        self.nodes.retain(|node, _| reports(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64, hints_since: u64, hints: usize) -> NodeMessage {
        let hint = PoolHint {
            pool: "one".into(),
            overloaded: true,
            rps: None,
            tokens_per_sec: None,
        };
        NodeMessage {
            number,
            hints_since,
            hints: vec![hint; hints],
            ..NodeMessage::default()
        }
    }

    #[test]
    fn hints_count_once_while_they_are_repeated() {
        let (mut hints, node) = (CountedHints::default(), NodeToken::random());
        let mut count = |report| hints.count(node, &report).len();
        assert_eq!(count(report(1, 1, 0)), 0);
        assert_eq!(count(report(2, 2, 1)), 1);
        assert_eq!(count(report(2, 2, 1)), 0, "the report of a dead node");
        assert_eq!(
            count(report(3, 2, 1)),
            0,
            "repeated: no acknowledgement yet"
        );
        assert_eq!(count(report(4, 4, 0)), 0);
        assert_eq!(count(report(5, 5, 1)), 1);
    }

    #[test]
    fn hints_that_a_new_allocator_finds_count_if_their_node_lives() {
        let (mut hints, node) = (CountedHints::default(), NodeToken::random());
        let mut count = |report| hints.count(node, &report).len();
        assert_eq!(count(report(9, 8, 1)), 0);
        assert_eq!(count(report(9, 8, 1)), 0, "it may be dead");
        assert_eq!(count(report(10, 8, 1)), 1);
        assert_eq!(count(report(11, 8, 1)), 0);
    }
}
