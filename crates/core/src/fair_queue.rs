//! Start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queuing", SIGCOMM 1996).
//!
//! Members share service in proportion to their weights. Every member has a start tag in virtual
//! time; the member with the smallest tag is served next, and a grant of cost *c* moves its tag on
//! by *c* ÷ weight. The virtual clock is the tag of the last grant. A member that had nothing to do
//! comes back at the clock, not where its tag stood: idleness earns no credit. A tag ahead of the
//! clock is kept: debt survives idleness.
//!
//! The engine has three uses of it: the flows of a section, the classes of a domain, and domains
//! among each other. A [`VirtualClock`] ranks its members; each member's [`Account`] lies with the
//! member, and the order of those that are ready with their owner.
//!
//! Two things go beyond the paper. Costs are estimates, so that a tag is corrected when the actual
//! cost is known ([`VirtualClock::correct`]). And the clock may have passed the place where a
//! corrected tag belongs, because others were served meanwhile: what the member loses that way
//! becomes [`Credit`], which pays for its next grants while it stays backlogged.

use crate::id::{Cost, Flow};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cmp::Ordering;

/// A point in virtual time: cost ÷ weight, in units of 2⁻⁴⁸.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VirtualTime(u128);

impl VirtualTime {
    pub(crate) const ZERO: VirtualTime = VirtualTime(0);
}

/// A weight, kept as the virtual time that a cost of 1 takes: multiplying is cheaper than dividing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InverseWeight(u64);

impl InverseWeight {
    pub(crate) fn of(weight: u32) -> Self {
        InverseWeight((1 << 48) / u64::from(weight.max(1)))
    }

    /// A weight that may be a fraction, as that of the part of a flow that a node serves. Below
    /// 1/4096 it counts as that.
    pub(crate) fn of_fraction(weight: f64) -> Self {
        let inverse = (1u64 << 48) as f64 / weight.max(1.0 / 4096.0);
        InverseWeight((inverse as u64).max(1))
    }

    /// The inverse of the product of both weights, at least one unit.
    pub(crate) fn times(self, other: Self) -> Self {
        let product = (u128::from(self.0) * u128::from(other.0)) >> 48;
        InverseWeight(u64::try_from(product).unwrap_or(u64::MAX).max(1))
    }

    /// Converts a span of virtual time under this weight into that of the same cost under another.
    fn convert(self, span: u128, to: Self) -> u128 {
        let (own, other) = (u128::from(self.0), u128::from(to.0));
        // In two parts, because the product of a span and a weight does not fit into 128 bits.
        let whole = (span / own).saturating_mul(other);
        whole.saturating_add((span % own) * other / own)
    }

    /// The virtual time that a charge takes. A job that costs nothing still takes a turn.
    #[inline]
    fn span(self, cost: Cost) -> u128 {
        u128::from(cost.0.max(1)) * u128::from(self.0)
    }
}

/// The order of members: start tag, then a tie-breaker that the owner chooses (the age of its
/// head).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) tag: VirtualTime,
    pub(crate) tie: u64,
}

impl Ord for Rank {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.tag.cmp(&other.tag).then(self.tie.cmp(&other.tie))
    }
}

// Heaps compare ranks more often than anything else; the derived comparison goes through `cmp` and
// takes three times as many instructions.
impl PartialOrd for Rank {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.tag < other.tag || (self.tag == other.tag && self.tie < other.tie)
    }

    #[inline]
    fn le(&self, other: &Self) -> bool {
        self.tag < other.tag || (self.tag == other.tag && self.tie <= other.tie)
    }
}

/// The excess charge that a backlogged member could not get back through its tag, because the clock
/// had passed the place where the tag belonged.
///
/// Without it, estimates that are too high would cost a backlogged member part of its share
/// whenever several of its jobs run at once. It is never more than what was charged for jobs in
/// flight at once, and is forfeited when the member has no backlog.
#[derive(Debug, Default)]
struct Credit {
    span: u128,
    in_flight: u64,
    /// The most that was in flight at once since the member is backlogged.
    peak: u64,
}

impl Credit {
    /// Returns the rest of a charge after the credit has paid for its part.
    #[inline]
    fn pay(&mut self, charge: u128) -> u128 {
        if self.span == 0 {
            return charge;
        }
        let paid = charge.min(self.span);
        // Credit is spent on the next grants, not saved up: it is owed for service that others had
        // meanwhile.
        self.span -= paid;
        charge - paid
    }
}

/// A member's side of a fair queue.
#[derive(Debug)]
pub(crate) struct Account {
    tag: VirtualTime,
    weight: InverseWeight,
    credit: Credit,
}

impl Account {
    pub(crate) fn new(tag: VirtualTime, weight: InverseWeight) -> Self {
        Account {
            tag,
            weight,
            credit: Credit::default(),
        }
    }

    /// Sets the weight without looking at the tag, for a member whose weight is that of the job at
    /// hand. Any other member is [reweighed](VirtualClock::reweigh).
    pub(crate) fn set_inverse_weight(&mut self, weight: InverseWeight) {
        self.weight = weight;
    }

    pub(crate) fn inverse_weight(&self) -> InverseWeight {
        self.weight
    }

    pub(crate) fn tag(&self) -> VirtualTime {
        self.tag
    }

    /// A job of that cost left the member's hands: granted, and not back yet.
    #[inline]
    pub(crate) fn enter(&mut self, cost: Cost) {
        let credit = &mut self.credit;
        credit.in_flight = credit.in_flight.saturating_add(cost.0);
        credit.peak = credit.peak.max(credit.in_flight);
    }

    /// A granted job of that cost ended.
    #[inline]
    pub(crate) fn leave(&mut self, cost: Cost) {
        self.credit.in_flight = self.credit.in_flight.saturating_sub(cost.0);
    }

    /// Nothing waits any more: credit is only for the backlogged.
    #[inline]
    pub(crate) fn forfeit_credit(&mut self) {
        self.credit.span = 0;
        self.credit.peak = self.credit.in_flight;
    }
}

/// The virtual clock of a set of members.
#[derive(Debug, Default)]
pub(crate) struct VirtualClock(VirtualTime);

impl VirtualClock {
    /// A member's place in the order. Never behind the clock: a member that was idle or blocked has
    /// no credit.
    #[inline]
    pub(crate) fn rank(&self, account: &Account, tie: u64) -> Rank {
        Rank {
            tag: account.tag.max(self.0),
            tie,
        }
    }

    /// Charges a member for a grant. A grant out of turn (an aged job's) does not move the clock:
    /// the others would lose what they are entitled to.
    #[inline]
    pub(crate) fn charge(&mut self, account: &mut Account, cost: Cost, in_turn: bool) {
        // The start tag of the grant: max(clock, finish tag of the one before), as in the paper.
        let start = account.tag.max(self.0);
        let span = account.credit.pay(account.weight.span(cost));
        account.tag = VirtualTime(start.0.saturating_add(span));
        if in_turn {
            self.0 = start;
        }
    }

    /// Corrects a charge by what the job cost in the end; `None` takes it back whole. The tag never
    /// falls behind the clock: what a backlogged member loses by that becomes credit. A member that
    /// the clock had passed already was idle or blocked, and is due nothing.
    pub(crate) fn correct(
        &self,
        account: &mut Account,
        charged: Cost,
        actual: Option<Cost>,
        backlogged: bool,
    ) {
        let less = account.weight.span(charged);
        let more = actual.map_or(0, |cost| account.weight.span(cost));
        let tag = account.tag.0;
        if more >= less {
            let span = account.credit.pay(more - less);
            account.tag = VirtualTime(tag.saturating_add(span)).max(self.0);
            return;
        }
        let surplus = less - more;
        if backlogged && tag >= self.0.0 {
            // As much of the surplus as the tag cannot take, because it would fall behind the
            // clock.
            let lost = surplus.saturating_sub(tag - self.0.0);
            // Bounded by what was in flight: only those jobs were overcharged while others passed.
            let most = account.weight.span(Cost(account.credit.peak));
            account.credit.span = account.credit.span.saturating_add(lost).min(most);
        }
        account.tag = VirtualTime(tag.saturating_sub(surplus)).max(self.0);
    }

    /// Gives a member another weight. It is ahead of the clock, or has credit, by the same cost as
    /// before: kept as virtual time, the debt of one job under a small weight would be that of
    /// thousands under a large one.
    pub(crate) fn reweigh(&self, account: &mut Account, weight: InverseWeight) {
        let before = std::mem::replace(&mut account.weight, weight);
        if before == weight {
            return;
        }
        // A tag at or behind the clock is no debt: the member starts at the clock under any weight.
        if let Some(debt) = self.debt(account.tag) {
            let debt = before.convert(debt, weight);
            account.tag = VirtualTime(self.0.0.saturating_add(debt));
        }
        account.credit.span = before.convert(account.credit.span, weight);
    }

    /// How far a tag is ahead of the clock, if it is: what its owner has had more than its share.
    pub(crate) fn debt(&self, tag: VirtualTime) -> Option<u128> {
        tag.0.checked_sub(self.0.0).filter(|debt| *debt > 0)
    }
}

/// How many jobs a competitor of weight `theirs` is served while one of weight `ours` is served
/// `turns`.
pub(crate) fn fair_part(turns: u64, theirs: u64, ours: u64) -> u64 {
    let part = u128::from(turns) * u128::from(theirs) / u128::from(ours.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// The tags of flows that have no jobs but are in debt. A flow is then 40 bytes instead of several
/// hundred.
#[derive(Debug)]
pub(crate) struct IdleTags {
    tags: HashMap<Flow, VirtualTime, FixedState>,
    prune_at: usize,
}

impl IdleTags {
    /// More debts than this are not remembered: the smallest are forgiven first. Without it, ever
    /// new flows in a class that is never without backlog would fill memory.
    const MOST: usize = 1 << 16;

    pub(crate) fn new(hasher: FixedState) -> Self {
        IdleTags {
            tags: HashMap::with_hasher(hasher),
            prune_at: 1024,
        }
    }

    /// Remembers the tag of a flow that is about to be forgotten.
    pub(crate) fn remember(&mut self, clock: &VirtualClock, flow: Flow, tag: VirtualTime) {
        if clock.debt(tag).is_none() {
            return;
        }
        if self.tags.len() >= self.prune_at {
            self.prune(clock);
        }
        self.tags.insert(flow, tag);
    }

    /// The tag of a flow that is back; it is no longer idle.
    pub(crate) fn recall(&mut self, flow: Flow) -> VirtualTime {
        self.tags.remove(&flow).unwrap_or(VirtualTime::ZERO)
    }

    fn prune(&mut self, clock: &VirtualClock) {
        // The clock has passed the others: they would start at the clock, remembered or not.
        self.tags.retain(|_, tag| clock.debt(*tag).is_some());
        if self.tags.len() >= Self::MOST {
            let mut tags: Vec<VirtualTime> = self.tags.values().copied().collect();
            let (_, median, _) = tags.select_nth_unstable(Self::MOST / 2);
            // All equal debts go together: which of them stay must not depend on the order of a
            // hash table.
            let median = *median;
            self.tags.retain(|_, tag| *tag > median);
        }
        self.tags.shrink_to(self.tags.len() * 2);
        self.prune_at = (2 * self.tags.len()).clamp(1024, Self::MOST);
    }

    pub(crate) fn len(&self) -> usize {
        self.tags.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(weight: u32) -> Account {
        Account::new(VirtualTime::ZERO, InverseWeight::of(weight))
    }

    /// Serves the members in turn, each always backlogged, and says how much each was charged.
    fn serve(weights: &[u32], costs: &[u64], grants: usize) -> Vec<u64> {
        let mut clock = VirtualClock::default();
        let mut accounts: Vec<Account> = (weights.iter())
            .map(|weight| Account::new(VirtualTime::ZERO, InverseWeight::of(*weight)))
            .collect();
        let mut served = vec![0; weights.len()];
        for _ in 0..grants {
            let rank = |index: &usize| clock.rank(&accounts[*index], *index as u64);
            let first = (0..accounts.len()).min_by_key(rank);
            let index = first.expect("all are ready");
            clock.charge(&mut accounts[index], Cost(costs[index]), true);
            served[index] += costs[index];
        }
        served
    }

    #[test]
    fn members_share_cost_by_weight() {
        let served = serve(&[1, 2, 3, 4], &[7, 5, 11, 1], 100_000);
        let all: u64 = served.iter().sum();
        for (weight, served) in [1, 2, 3, 4].into_iter().zip(served) {
            let share = served as f64 / all as f64;
            assert!(
                (share - f64::from(weight) / 10.0).abs() < 0.001,
                "{weight}: {share}"
            );
        }
    }

    #[test]
    fn an_idle_member_comes_back_without_credit_and_with_its_debt() {
        let mut clock = VirtualClock::default();
        let (mut busy, mut idle) = (account(1), account(1));
        for _ in 0..10 {
            clock.charge(&mut busy, Cost(1), true);
        }
        assert_eq!(clock.rank(&idle, 0).tag, clock.0);
        assert!(clock.rank(&busy, 0).tag > clock.0);
        assert_eq!(clock.debt(idle.tag()), None);
        assert!(clock.debt(busy.tag()).is_some());
        let before = clock.0;
        clock.charge(&mut idle, Cost(1), true);
        assert_eq!(clock.0, before, "time does not go back for it");
        assert!(idle.tag() > before, "it pays from now on");
    }

    #[test]
    fn another_weight_keeps_the_debt_in_cost() {
        let mut clock = VirtualClock::default();
        let mut account = account(1);
        clock.charge(&mut account, Cost(7), true);
        clock.reweigh(&mut account, InverseWeight::of(1000));
        let seven = InverseWeight::of(1000).span(Cost(7));
        assert_eq!(clock.debt(account.tag()), Some(seven));
        clock.reweigh(&mut account, InverseWeight::of_fraction(0.5));
        let half = InverseWeight::of_fraction(0.5).span(Cost(7));
        let off = clock.debt(account.tag()).expect("in debt").abs_diff(half);
        assert!(off < half >> 30, "{off} of {half}");
    }

    #[test]
    fn a_surplus_that_the_clock_has_passed_is_credited_to_the_backlogged() {
        let mut clock = VirtualClock::default();
        let mut account = account(1);
        for _ in 0..2 {
            account.enter(Cost(100));
            clock.charge(&mut account, Cost(100), true);
        }
        // The clock is at the start of the second grant: of 180 that are due back, 100 fit behind
        // the tag.
        let before = account.tag();
        clock.correct(&mut account, Cost(200), Some(Cost(20)), true);
        assert_eq!(account.tag(), clock.0);
        clock.charge(&mut account, Cost(80), true);
        assert_eq!(account.tag(), clock.0, "paid by credit");
        clock.charge(&mut account, Cost(1), true);
        assert!(account.tag() > clock.0 && account.tag() < before);
    }

    #[test]
    fn credit_is_forfeited_without_a_backlog() {
        let mut clock = VirtualClock::default();
        let mut account = account(1);
        account.enter(Cost(100));
        clock.charge(&mut account, Cost(100), true);
        clock.charge(&mut account, Cost(1), true);
        clock.correct(&mut account, Cost(100), Some(Cost(1)), true);
        account.forfeit_credit();
        clock.charge(&mut account, Cost(1), true);
        assert!(account.tag() > clock.0, "it pays itself");
    }

    #[test]
    fn debts_are_forgiven_smallest_first_when_there_are_too_many() {
        let clock = VirtualClock::default();
        let mut idle = IdleTags::new(FixedState::default());
        for flow in 0..4 * IdleTags::MOST as u64 {
            idle.remember(&clock, Flow(flow), VirtualTime(u128::from(flow) + 1));
        }
        assert!(idle.len() <= IdleTags::MOST);
        let last = 4 * IdleTags::MOST as u64 - 1;
        assert_eq!(idle.recall(Flow(last)), VirtualTime(u128::from(last) + 1));
        assert_eq!(idle.recall(Flow(0)), VirtualTime::ZERO);
    }
}
