//! How full a queue is, held against named thresholds.
//!
//! Pure arithmetic without state: the owner of the queue calls it with its two numbers, and decides
//! what to do about a threshold that is reached. A queue without places is full.

/// Percentages of fill at which something is done about it.
///
/// ```
/// use headworks_core::Thresholds;
///
/// let thresholds = Thresholds::default();
/// let pressure = thresholds.at(650, 1000);
/// assert_eq!(pressure.fill(), 65);
/// assert!(pressure.scales() && pressure.throttles() && !pressure.limits());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thresholds {
    /// From here on workers are added. Default 60.
    pub scale: u8,
    /// From here on each arrival is given less. Default 60.
    pub throttle: u8,
    /// From here on arrivals are held to a rate; 0 turns it off. Default 80.
    pub limit: u8,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            scale: 60,
            throttle: 60,
            limit: 80,
        }
    }
}

impl Thresholds {
    /// The pressure of a queue in which `waiting` of `bound` places are taken.
    ///
    /// A queue without places is full: whatever it is for, there is no room.
    #[must_use]
    pub fn at(self, waiting: usize, bound: usize) -> Pressure {
        // Rounding down keeps comparisons with whole percentages exact.
        let fill = (waiting as u128 * 100)
            .checked_div(bound as u128)
            .unwrap_or(100);
        Pressure {
            fill: u32::try_from(fill).unwrap_or(u32::MAX),
            thresholds: self,
        }
    }
}

/// A queue's fill at one moment, and which thresholds it has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    fill: u32,
    thresholds: Thresholds,
}

impl Pressure {
    /// Percent of the places taken, rounded down. Above 100 after the bound was made smaller.
    #[must_use]
    pub fn fill(self) -> u32 {
        self.fill
    }

    /// Whether workers should be added.
    #[must_use]
    pub fn scales(self) -> bool {
        self.fill >= u32::from(self.thresholds.scale)
    }

    /// Whether each arrival should be given less.
    #[must_use]
    pub fn throttles(self) -> bool {
        self.fill >= u32::from(self.thresholds.throttle)
    }

    /// Whether arrivals should be held to a rate; never when the threshold is 0.
    #[must_use]
    pub fn limits(self) -> bool {
        self.thresholds.limit > 0 && self.fill >= u32::from(self.thresholds.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thresholds_are_reached_exactly() {
        let t = Thresholds::default();
        assert!(!t.at(599, 1000).throttles());
        assert!(t.at(600, 1000).throttles());
        assert!(!t.at(799, 1000).limits());
        assert!(t.at(800, 1000).limits());
    }

    #[test]
    fn a_limit_of_zero_is_off() {
        let t = Thresholds {
            limit: 0,
            ..Thresholds::default()
        };
        assert!(!t.at(0, 10).limits());
        assert!(!t.at(10, 10).limits());
    }

    #[test]
    fn no_places_is_full() {
        assert_eq!(Thresholds::default().at(0, 0).fill(), 100);
    }

    proptest! {
        #[test]
        fn agrees_with_exact_arithmetic(waiting in any::<usize>(), bound in 1..usize::MAX, throttle in any::<u8>()) {
            let t = Thresholds { throttle, ..Thresholds::default() };
            let exact = waiting as u128 * 100 >= u128::from(throttle) * bound as u128;
            prop_assert_eq!(t.at(waiting, bound).throttles(), exact);
        }
    }
}
