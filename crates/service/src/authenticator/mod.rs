//! Authentication for the admin listener.
//!
//! The [`Authenticator`] owns the token, the session key that browsers get in its place, and the
//! counters of failed attempts per address. It takes the time as an argument and does no I/O after
//! construction.
//!
//! The right token is always accepted: a guesser at the same address, for example behind the same
//! proxy, must not lock out its owner. The length of the token protects against guessing; the
//! counters only keep guessers from filling the log.

mod credential;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;

use crate::config::Secret;
use crate::error::Error;

pub(crate) use credential::is_token_parameter;
pub use credential::{Credential, SESSION_COOKIE};

/// Burst of wrong guesses per address.
const FAILURE_BURST: u32 = 10;
/// Time after which an address may make one more wrong guess.
const FAILURE_INTERVAL: Duration = Duration::from_secs(6);
/// Maximum tracked addresses; the one whose guesses expire first is evicted.
const MAX_ADDRESSES: usize = 4096;

/// Checks tokens and sessions.
#[derive(Debug)]
pub struct Authenticator {
    token: Secret,
    session: Secret,
    generated: bool,
    failures: Mutex<HashMap<IpAddr, FailedAttempts>>,
    hasher: RandomState,
}

/// The wrong guesses of one address, as a leaky bucket.
#[derive(Debug)]
struct FailedAttempts {
    /// The time at which all guesses have expired.
    expires_at: Instant,
    /// Hash of the last guess. A repeated value gains a guesser nothing, and a forgotten browser
    /// tab repeats its stale session; it must not be rate limited for that.
    last: u64,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// The credential is valid.
    Accepted,
    /// The credential is wrong.
    Rejected,
    /// The credential is wrong, and so were too many before it from this address. The client is
    /// told to wait this long, and nothing is logged.
    RateLimited(Duration),
}

impl Authenticator {
    /// Checks against `token`, or against a generated token if it is `None`.
    ///
    /// # Errors
    /// When the system provides no random numbers.
    ///
    /// ```
    /// use headworks_service::authenticator::{AuthOutcome, Authenticator};
    /// let authenticator = Authenticator::new(None).unwrap();
    /// let (now, from) = (std::time::Instant::now(), [127, 0, 0, 1].into());
    /// assert_eq!(authenticator.check(now, from, authenticator.token()), AuthOutcome::Accepted);
    /// assert_eq!(authenticator.check(now, from, "guess"), AuthOutcome::Rejected);
    /// ```
    pub fn new(token: Option<&Secret>) -> Result<Authenticator, Error> {
        Ok(Authenticator {
            token: token.cloned().map_or_else(generate_secret, Ok)?,
            session: generate_secret()?,
            generated: token.is_none(),
            failures: Mutex::default(),
            hasher: RandomState::new(),
        })
    }

    /// The token. Print it only if it was [generated](Authenticator::is_generated).
    #[must_use]
    pub fn token(&self) -> &str {
        self.token.reveal()
    }

    /// The session key for the browser cookie. Cookies are sent to every port of a host, so the
    /// cookie does not hold the token itself. The key is not valid after a restart.
    #[must_use]
    pub fn session(&self) -> &str {
        self.session.reveal()
    }

    /// Whether the token was generated at this start.
    #[must_use]
    pub fn is_generated(&self) -> bool {
        self.generated
    }

    /// Checks `given` as the token, for a client at `from`.
    pub fn check(&self, now: Instant, from: IpAddr, given: &str) -> AuthOutcome {
        self.compare(now, from, ("token", given), &self.token)
    }

    /// Checks `given` as the session key, for a client at `from`.
    pub fn check_session(&self, now: Instant, from: IpAddr, given: &str) -> AuthOutcome {
        self.compare(now, from, ("session", given), &self.session)
    }

    fn compare(
        &self,
        now: Instant,
        from: IpAddr,
        claim: (&'static str, &str),
        right: &Secret,
    ) -> AuthOutcome {
        // Constant time, so that response times do not reveal a matching prefix.
        if bool::from(claim.1.as_bytes().ct_eq(right.reveal().as_bytes())) {
            return AuthOutcome::Accepted;
        }
        let mut failures = self.failures.lock();
        // Kept as a hash: memory stays bounded however long a guess is, and no near miss of a token
        // is stored.
        let (from, hash) = (rate_limit_key(from), self.hasher.hash_one(claim));
        let known = failures.get(&from);
        if known.is_some_and(|known| known.last == hash && known.expires_at > now) {
            return AuthOutcome::Rejected;
        }
        let expires_at = known.map_or(now, |known| known.expires_at.max(now));
        let full = FAILURE_INTERVAL * (FAILURE_BURST - 1);
        let ahead = expires_at.duration_since(now);
        if ahead > full {
            return AuthOutcome::RateLimited(ahead - full);
        }
        evict(&mut failures, now);
        let expires_at = expires_at + FAILURE_INTERVAL;
        failures.insert(
            from,
            FailedAttempts {
                expires_at,
                last: hash,
            },
        );
        AuthOutcome::Rejected
    }
}

/// Generates 32 random bytes in hex.
fn generate_secret() -> Result<Secret, Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Secret::from(hex::encode(bytes).as_str()))
}

/// The key under which guesses are counted. An IPv6 client usually controls a whole /64.
fn rate_limit_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

fn evict(failures: &mut HashMap<IpAddr, FailedAttempts>, now: Instant) {
    if failures.len() < MAX_ADDRESSES {
        return;
    }
    failures.retain(|_, known| known.expires_at > now);
    if failures.len() >= MAX_ADDRESSES {
        let oldest = failures.iter().min_by_key(|(_, known)| known.expires_at);
        if let Some(address) = oldest.map(|(address, _)| *address) {
            failures.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_token_is_made_when_none_is_given() {
        let (one, other) = (
            Authenticator::new(None).unwrap(),
            Authenticator::new(None).unwrap(),
        );
        assert_eq!(one.token().len(), 64);
        assert_ne!(one.token(), other.token());
        assert_ne!(one.token(), one.session());
        assert!(!format!("{one:?}").contains(one.token()));
    }

    #[test]
    fn guessing_is_slowed_down_by_address_and_forgiven() {
        let authenticator = Authenticator::new(Some(&Secret::from("right"))).unwrap();
        let now = Instant::now();
        for guess in 0..FAILURE_BURST {
            assert_eq!(
                authenticator.check(now, HERE, &format!("guess {guess}")),
                AuthOutcome::Rejected
            );
        }
        let again = |now, from| authenticator.check(now, from, "one guess more");
        assert_eq!(again(now, HERE), AuthOutcome::RateLimited(FAILURE_INTERVAL));
        assert_eq!(again(now, [10, 0, 0, 1].into()), AuthOutcome::Rejected);
        assert_eq!(again(now + FAILURE_INTERVAL, HERE), AuthOutcome::Rejected);
    }

    #[test]
    fn a_flood_of_guesses_does_not_lock_out_the_owner() {
        let authenticator = Authenticator::new(Some(&Secret::from("right"))).unwrap();
        let now = Instant::now();
        for guess in 0..1000 {
            let answer = authenticator.check(now, HERE, &format!("guess {guess}"));
            assert_ne!(answer, AuthOutcome::Accepted);
        }
        assert_eq!(
            authenticator.check(now, HERE, "right"),
            AuthOutcome::Accepted
        );
        let session = authenticator.session().to_owned();
        assert_eq!(
            authenticator.check_session(now, HERE, &session),
            AuthOutcome::Accepted
        );
    }

    #[test]
    fn a_forgotten_tab_locks_nobody_out() {
        let authenticator = Authenticator::new(Some(&Secret::from("right"))).unwrap();
        let now = Instant::now();
        for _ in 0..1000 {
            assert_eq!(
                authenticator.check_session(now, HERE, "stale"),
                AuthOutcome::Rejected
            );
        }
        assert_eq!(
            authenticator.check(now, HERE, "right"),
            AuthOutcome::Accepted
        );
    }

    #[test]
    fn the_token_is_right_after_it_was_tried_as_a_session() {
        let authenticator = Authenticator::new(Some(&Secret::from("right"))).unwrap();
        let now = Instant::now();
        assert_eq!(
            authenticator.check_session(now, HERE, "right"),
            AuthOutcome::Rejected
        );
        assert_eq!(
            authenticator.check(now, HERE, "right"),
            AuthOutcome::Accepted
        );
    }

    #[test]
    fn memory_is_bounded() {
        let authenticator = Authenticator::new(None).unwrap();
        let now = Instant::now();
        for n in 0..u32::try_from(MAX_ADDRESSES).unwrap() + 100 {
            let from = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
            assert_eq!(
                authenticator.check(now, from, "guess"),
                AuthOutcome::Rejected
            );
        }
        assert!(authenticator.failures.lock().len() <= MAX_ADDRESSES);
    }

    #[test]
    fn one_network_is_one_guesser() {
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let other: IpAddr = "2001:db8::ffff".parse().unwrap();
        assert_eq!(rate_limit_key(one), rate_limit_key(other));
    }
}
