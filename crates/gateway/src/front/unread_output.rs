//! Output of a response whose length nobody knows: its client left, and the upstream gave no
//! report.
//!
//! The usual length of the tenant's responses is not enough: after a few short ones, it would be
//! cheap to ask for a long one and to leave. Therefore the time counts as well.

use std::time::Instant;

/// Tokens per second and choice that an upstream is assumed to generate. Hosted models are about
/// this fast.
const SPEED: f64 = 100.0;
/// No model writes more for one request.
const MOST: u64 = 1 << 22;

/// Bounds of the length of a response before it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnreadOutput {
    expected: u64,
    most: u64,
    choices: u64,
    /// When the upstream was called.
    called: Instant,
}

impl UnreadOutput {
    /// `expected` tokens and at most `most`, for all choices together.
    pub(crate) fn new((expected, most): (u64, u64), choices: u64, called: Instant) -> UnreadOutput {
        UnreadOutput {
            expected,
            most: most.min(MOST),
            choices,
            called,
        }
    }

    /// Output of a response that stops when its client leaves, as a stream does.
    pub(crate) fn until(&self, now: Instant) -> u64 {
        let seconds = now.saturating_duration_since(self.called).as_secs_f64();
        let each = (seconds * SPEED) as u64;
        each.saturating_mul(self.choices).min(self.most)
    }

    /// Output of a response whose client left before it began.
    pub(crate) fn for_leaver(&self, is_stream: bool) -> u64 {
        let now = Instant::now();
        match is_stream {
            true => self.until(now),
            false => self.whole(now),
        }
    }

    /// Output of a response that may be generated to its end although nobody reads it.
    pub(crate) fn whole(&self, now: Instant) -> u64 {
        self.until(now).max(self.expected).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_counts_up_to_the_limit_of_the_request() {
        let called = Instant::now();
        let after = |millis| called + Duration::from_millis(millis);
        let unread = UnreadOutput::new((500, 1000), 2, called);
        assert_eq!((unread.until(called), unread.whole(called)), (0, 500));
        assert_eq!(unread.until(after(1500)), 300);
        assert_eq!(unread.whole(after(4000)), 800);
        assert_eq!(unread.whole(after(60_000)), 1000);
        let short = UnreadOutput::new((500, 3), 1, called);
        assert_eq!(short.whole(called), 3);
        let absurd = UnreadOutput::new((u64::MAX, u64::MAX), u64::MAX, called);
        assert_eq!(absurd.whole(after(60_000)), MOST);
    }
}
