//! Division of an amount among claimants.
//!
//! Pure functions of numbers, without clock or state, so that an allocator that starts anew divides
//! as the one before did. The parts never add up to more than the amount. Ties are broken by place
//! in the list: callers must keep the order of claimants stable from one division to the next.

/// Weighted max-min: nobody gets more than it demands, and of what is left all get in proportion to
/// their weights (Bertsekas and Gallager, Data Networks, 6.5.2).
pub(crate) fn max_min(amount: f64, claims: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    let need = |index: usize| claims[index].1 / claims[index].0.max(f64::MIN_POSITIVE);
    // By demand for weight, so that each that is satisfied leaves its rest to those after it, and
    // one pass is enough.
    order.sort_by(|a, b| need(*a).total_cmp(&need(*b)).then(a.cmp(b)));
    let mut weights: f64 = claims.iter().map(|(weight, _)| weight).sum();
    let mut left = amount.max(0.0);
    let mut given = vec![0.0; claims.len()];
    // The least demanding for their weight are satisfied first; what they leave is the others'.
    for index in order {
        let (weight, demand) = claims[index];
        let fair = if weights > 0.0 {
            left * weight / weights
        } else {
            0.0
        };
        given[index] = demand.min(fair).max(0.0);
        left = (left - given[index]).max(0.0);
        weights -= weight;
    }
    given
}

/// Whole numbers near the `wanted` ones, that add up to at most `slots`. Those that have
/// `before` keep it where it is less than 1 away, so that slots do not move back and forth.
pub(crate) fn whole(wanted: &[f64], before: &[u64], slots: u64) -> Vec<u64> {
    let keeps = |index: usize| (wanted[index] - before[index] as f64).abs() < 1.0;
    let starves = |index: usize| wanted[index] > 0.0 && before[index] == 0;
    let all = || 0..wanted.len();
    let sum: u64 = before.iter().sum();
    let due = wanted.iter().sum::<f64>().round() as u64;
    if all().all(|index| keeps(index) && !starves(index)) && sum <= slots && sum >= due.min(slots) {
        return before.to_vec();
    }
    // Everybody who wants any has one: without it nothing starts, and no demand shows.
    let least = |wanted: &f64| (*wanted as u64).max(u64::from(*wanted > 0.0));
    let mut given: Vec<u64> = wanted.iter().map(least).collect();
    // Those that have most can spare one best.
    while given.iter().sum::<u64>() > slots {
        let most = all().max_by_key(|index| given[*index]);
        most.into_iter().for_each(|index| given[index] -= 1);
    }
    let mut left = slots.saturating_sub(given.iter().sum());
    let mut order: Vec<usize> = all().collect();
    let rest = |index: usize| wanted[index] - given[index] as f64;
    let rests: Vec<f64> = all().map(rest).collect();
    order.sort_by(|a, b| rests[*b].total_cmp(&rests[*a]).then(a.cmp(b)));
    for index in order {
        if left > 0 && rests[index] > 0.0 {
            given[index] += 1;
            left -= 1;
        }
    }
    given
}

/// One slot each for `slots` of the claimants, beginning with another one at every turn.
pub(crate) fn rotate(claims: &[bool], slots: u64, turn: u64) -> Vec<u64> {
    let claimants: Vec<usize> = (0..claims.len()).filter(|index| claims[*index]).collect();
    let mut given = vec![0; claims.len()];
    // The next turn begins where this one ended, so that everybody has a turn before anybody has
    // two.
    let first = (turn.wrapping_mul(slots.max(1)) % claimants.len().max(1) as u64) as usize;
    for offset in 0..claimants.len().min(slots as usize) {
        given[claimants[(first + offset) % claimants.len()]] = 1;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_modest_get_what_they_ask_and_the_rest_goes_by_weight() {
        let given = max_min(100.0, &[(1.0, 10.0), (1.0, 1000.0), (2.0, 1000.0)]);
        assert_eq!(given, [10.0, 30.0, 60.0]);
        assert_eq!(max_min(100.0, &[(1.0, 10.0), (5.0, 20.0)]), [10.0, 20.0]);
        assert!(max_min(5.0, &[]).is_empty());
    }

    #[test]
    fn everyone_has_a_slot_in_turn_when_there_are_too_few() {
        let mut had = [0; 5];
        for turn in 0..5 {
            let given = rotate(&[true, false, true, true, true], 2, turn);
            assert_eq!(given.iter().sum::<u64>(), 2);
            (0..5).for_each(|index| had[index] += given[index]);
        }
        assert!(
            had[1] == 0 && [0, 2, 3, 4].iter().all(|index| had[*index] >= 2),
            "{had:?}"
        );
    }

    proptest! {
        #[test]
        fn nothing_is_given_twice_or_left_while_demanded(
            amount in 0.0..1e6,
            claims in prop::collection::vec((0.1..100.0, 0.0..1e6), 0..20),
        ) {
            let given = max_min(amount, &claims);
            let (sum, demand) = (given.iter().sum::<f64>(), claims.iter().map(|c| c.1).sum::<f64>());
            prop_assert!((sum - demand.min(amount)).abs() <= 1e-6 * (1.0 + amount));
            for (given, (_, demand)) in given.iter().zip(&claims) {
                prop_assert!(*given >= 0.0 && given <= demand);
            }
        }

        #[test]
        fn whole_numbers_are_within_and_leave_nobody_out(
            parts in prop::collection::vec(0.0..10.0f64, 1..10),
            before in prop::collection::vec(0u64..4, 10),
        ) {
            let slots = parts.iter().sum::<f64>().ceil() as u64;
            let given = whole(&parts, &before[..parts.len()], slots);
            prop_assert!(given.iter().sum::<u64>() <= slots);
            for (given, wanted) in given.iter().zip(&parts) {
                prop_assert!(*wanted == 0.0 || slots < parts.len() as u64 || *given > 0);
            }
        }
    }
}
