//! Where a long stretch of names is cut in two. Nothing depends on a good cut but time: names are
//! guessed here, and a cut behind which nothing comes costs a request.

use std::collections::BTreeSet;

/// Characters of a name that are looked at behind what two names have in common.
const DIGITS: u32 = 4;
/// More characters than these tell nothing new.
const LARGEST: usize = 512;

/// The characters of which names are made, where they differ.
#[derive(Default)]
pub(super) struct Alphabet(BTreeSet<char>);

impl Alphabet {
    /// Learns from some of the names of a page, which are in order.
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

    /// A name about half way between two, taking names for numbers; without the second, between the
    /// first and the last there can be. `None` if none in between is found.
    pub(super) fn middle(&self, low: &[u8], high: Option<&[u8]>) -> Option<Vec<u8>> {
        let low = std::str::from_utf8(low).ok()?;
        let high = high.map(std::str::from_utf8).transpose().ok()?;
        let same = high.map_or(0, |high| common_prefix(low.as_bytes(), high.as_bytes()));
        let rest = high.map(|high| high.get(same..)).unwrap_or_default();
        let near = |at: usize, rest| self.midpoint(low.get(..at)?, low.get(at..)?, rest);
        // Where there is none, one with as much in common with the first, and one character more.
        let more = |letter: char| near(same + letter.len_utf8(), None);
        let next = low.get(same..)?.chars().next();
        let fits = |name: &String| &**name > low && high.is_none_or(|high| &**name < high);
        let found = near(same, rest).filter(fits);
        let found = found.or_else(|| next.and_then(more).filter(fits));
        found.map(String::into_bytes)
    }

    /// What is half way between the rests of two names, behind what they have in common.
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

    /// The beginning of a name as a number; no character counts as less than any, and one that is
    /// not known as the next that is, upwards or downwards.
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

/// How many bytes two names have in common at the beginning, in whole characters.
pub(super) fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let is_inside = |at: usize| one.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (0..=same).rev().find(|at| !is_inside(*at)).unwrap_or(0)
}

/// The least name behind all those that begin with the first `count` characters of one.
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
        // What follows on `-` is known to no name.
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
