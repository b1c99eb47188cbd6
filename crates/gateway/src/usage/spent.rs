//! Tokens of a tenant in one period: how many are known to the store, and how many are not yet.

/// Tokens of a tenant in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// Tokens of all nodes, as the store answered last.
    known: u64,
    /// Tokens of this node in the batch that is on its way.
    sent: u64,
    /// Tokens of this node that are in no batch yet.
    recent: u64,
}

impl Spent {
    pub(super) fn known(tokens: u64) -> Spent {
        Spent {
            known: tokens,
            ..Spent::default()
        }
    }

    pub(super) fn add(&mut self, tokens: u64) {
        self.recent += tokens;
    }

    /// A batch takes what is in none yet.
    pub(super) fn send(&mut self) {
        self.sent += std::mem::take(&mut self.recent);
    }

    /// The store answered to the batch, with a total or without.
    pub(super) fn confirm(&mut self, total: Option<u64>) {
        let sent = std::mem::take(&mut self.sent);
        self.known = total.unwrap_or(self.known + sent);
    }

    pub(super) fn total(self) -> u64 {
        self.known + self.sent + self.recent
    }

    /// Whether this node used up its slice of the rest that was known last.
    pub(super) fn exceeds_slice(self, limit: u64, nodes: u32) -> bool {
        let rest = limit.saturating_sub(self.known);
        self.sent + self.recent >= rest / u64::from(nodes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_once_on_their_way_to_the_store() {
        let mut spent = Spent::known(100);
        spent.add(5);
        spent.send();
        spent.add(7);
        assert_eq!(spent.total(), 112);
        // The store knows the batch, and 30 tokens of other nodes.
        spent.confirm(Some(135));
        assert_eq!(spent.total(), 142);
        spent.send();
        spent.confirm(None);
        assert_eq!(spent, Spent::known(142));
    }

    #[test]
    fn a_slice_is_the_rest_divided_by_the_nodes() {
        let mut spent = Spent::known(100);
        spent.add(24);
        assert!(!spent.exceeds_slice(200, 4));
        spent.send();
        spent.add(1);
        assert!(spent.exceeds_slice(200, 4));
        assert!(!spent.exceeds_slice(200, 1));
        assert!(Spent::known(200).exceeds_slice(200, 1));
    }
}
