//! Choosing where to split a range of names. A bad choice only costs time: names are guessed, and a
//! split with nothing behind it costs one request.

use std::collections::BTreeSet;

/// Characters considered after the common prefix of two names.
const DIGITS: u32 = 4;
/// More characters add no information.
const LARGEST: usize = 512;

/// The characters of names, where the names differ.
#[derive(Default)]
pub(super) struct Alphabet(BTreeSet<char>);

impl Alphabet {
    /// Learns from some names of a page, which are ordered.
    pub(super) fn learn(&mut self, names: &[&[u8]]) {
        let (Some(first), Some(last)) = (names.first(), names.last()) else {
            return;
        };
        let same = common_prefix(first, last);
        let some = names.iter().step_by(names.len() / 16 + 1).chain([last]);
        for name in some.filter_map(|name| std::str::from_utf8(name).ok()) {
            let differing = name.get(same..).unwrap_or_default().chars();
            let room = LARGEST.saturating_sub(self.0.len());
            self.0.extend(differing.filter(|c| *c != '/').take(room));
        }
    }

    /// Returns a name about halfway between two, treating names as numbers; without `high`, between
    /// `low` and the last possible name. `None` if no name lies in between.
    pub(super) fn middle(&self, low: &[u8], high: Option<&[u8]>) -> Option<Vec<u8>> {
        let low = std::str::from_utf8(low).ok()?;
        let high = high.map(std::str::from_utf8).transpose().ok()?;
        let same = high.map_or(0, |high| common_prefix(low.as_bytes(), high.as_bytes()));
        let rest = high.map(|high| high.get(same..)).unwrap_or_default();
        let near = |at: usize, rest| self.midpoint(low.get(..at)?, low.get(at..)?, rest);
        // Otherwise one that shares one more character with the first.
        let more = |letter: char| near(same + letter.len_utf8(), None);
        let next = low.get(same..)?.chars().next();
        let fits = |name: &String| &**name > low && high.is_none_or(|high| &**name < high);
        let found = near(same, rest).filter(fits);
        let found = found.or_else(|| next.and_then(more).filter(fits));
        found.map(String::into_bytes)
    }

    /// Returns the midpoint of the rests of two names after their common prefix.
    fn midpoint(&self, same: &str, low: &str, high: Option<&str>) -> Option<String> {
        let base = self.0.len() as u64 + 1;
        let least = self.number(low, false);
        let most = high.map_or(base.pow(DIGITS), |high| self.number(high, true));
        let mut number = least + most.checked_sub(least)? / 2;
        let mut digits = [0; DIGITS as usize];
        for digit in digits.iter_mut().rev() {
            (number, *digit) = (number / base, number % base);
        }
        let letter = |digit: u64| self.0.iter().nth(digit.checked_sub(1)? as usize);
        let letters = digits.into_iter().map_while(letter);
        Some(same.chars().chain(letters.copied()).collect())
    }

    /// Returns the start of a name as a number. A missing character is less than any other; an
    /// unknown one counts as the next known one, upwards or downwards.
    fn number(&self, name: &str, upwards: bool) -> u64 {
        let base = self.0.len() as u64 + 1;
        let mut letters = name.chars();
        (0..DIGITS).fold(0, |number, _| {
            let digit = letters.next().map_or(0, |letter| {
                let below = self.0.range(..letter).count() as u64;
                below + u64::from(upwards || self.0.contains(&letter))
            });
            number * base + digit
        })
    }
}

/// Returns the length of the common prefix of two names, in bytes of whole characters.
pub(super) fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let is_inside = |at: usize| one.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (0..=same).rev().find(|at| !is_inside(*at)).unwrap_or(0)
}

/// Returns the first name after all those that share the first `count` characters.
pub(super) fn first_after_prefix(name: &str, count: usize) -> Option<String> {
    let mut letters: Vec<char> = name.chars().take(count).collect();
    let last = letters.pop()?;
    letters.push(char::from_u32(u32::from(last) + 1)?);
    Some(letters.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits() -> Alphabet {
        let mut alphabet = Alphabet::default();
        alphabet.learn(&[b"key-0123", b"key-4567", b"key-9890"]);
        alphabet
    }

    #[test]
    fn the_middle_is_between_and_near_the_half() {
        let middle = |low: &str, high| digits().middle(low.as_bytes(), high);
        let name = middle("key-0000003999", Some(b"key-0001")).unwrap();
        assert!(name.starts_with(b"key-0000"), "{}", name.escape_ascii());
        assert!(matches!(name[8], b'4'..=b'6'), "{}", name.escape_ascii());
        let name = middle("2", None).unwrap();
        assert!(matches!(name[0], b'5' | b'6'), "{}", name.escape_ascii());
        // No known name continues after `-`.
        let name = digits().middle(b"key-12", Some(b"key.")).unwrap();
        assert!(name.starts_with(b"key-"), "{}", name.escape_ascii());
        assert_eq!(middle("5", Some(b"5")), None);
        assert_eq!(middle("5", Some(b"50")), None);
        assert_eq!(middle("~~", None), None);
        assert_eq!(Alphabet::default().middle(b"a", None), None);
    }

    #[test]
    fn characters_are_never_cut() {
        assert_eq!(common_prefix("aé".as_bytes(), "aè".as_bytes()), 1);
        assert_eq!(common_prefix("aé".as_bytes(), "aéb".as_bytes()), 3);
        assert_eq!(first_after_prefix("aéb", 2).as_deref(), Some("aê"));
        assert_eq!(first_after_prefix("ab", 0), None);
        let mut alphabet = Alphabet::default();
        alphabet.learn(&["日a".as_bytes(), "本b".as_bytes(), "語c".as_bytes()]);
        let middle = alphabet.middle("日".as_bytes(), None).unwrap();
        assert!(String::from_utf8(middle).is_ok());
    }
}
