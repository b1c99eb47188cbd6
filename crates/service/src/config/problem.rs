//! Configuration problems: messages that name the place, the key and the remedy.

use std::fmt;

use super::origin::Origin;

/// One error or warning about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The origin of the value.
    pub origin: Origin,
    /// The dotted key; empty if the problem concerns the file as a whole.
    pub key: String,
    /// The problem.
    pub text: String,
    /// The remedy.
    pub remedy: Option<String>,
}

/// Longer numbers are truncated.
const MAX_DIGITS: usize = 40;

/// Truncates very long numbers in a text, so that messages stay readable.
///
/// ```
/// let text = format!("found {}, which is too large", "9".repeat(300));
/// let shorter = headworks_service::config::truncate_numbers(&text);
/// assert_eq!(shorter, "found 99999999999999999999…, which is too large");
/// ```
#[must_use]
pub fn truncate_numbers(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[start..];
        let length = number.find(|c: char| !c.is_ascii_digit());
        let length = length.unwrap_or(number.len());
        short.push_str(&rest[..start]);
        if length > MAX_DIGITS {
            short.push_str(&number[..MAX_DIGITS / 2]);
            short.push('…');
        } else {
            short.push_str(&number[..length]);
        }
        rest = &number[length..];
    }
    short + rest
}

impl Problem {
    pub(crate) fn new(origin: Origin, key: impl Into<String>, text: impl Into<String>) -> Problem {
        Problem {
            origin,
            key: truncate_numbers(&key.into()),
            text: truncate_numbers(&text.into()),
            remedy: None,
        }
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Problem {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin != Origin::Default || !self.key.is_empty() {
            write!(f, "{}: ", self.origin)?;
        }
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        f.write_str(&self.text)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// All problems of a configuration, in the order of the file.
///
/// Never empty when it is returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn sorted(mut problems: Vec<Problem>) -> Problems {
        problems.sort_by_key(|problem| problem.origin.rank());
        Problems(problems)
    }

    /// The problems in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// The number of problems.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no problems.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// The candidate closest to `wrong`, if one is close enough to suggest.
pub(crate) fn nearest<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let near_enough = (wrong.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|right| (strsim::damerau_levenshtein(wrong, right), right))
        .filter(|(distance, _)| *distance <= near_enough)
        .min()
        .map(|(_, right)| right)
}

/// Returns "did you mean `x`?", or lists all candidates if none is close.
pub(crate) fn suggest(wrong: &str, candidates: &[&str]) -> String {
    if let Some(right) = nearest(wrong, candidates.iter().copied()) {
        return format!("did you mean `{right}`?");
    }
    if candidates.is_empty() {
        return "no keys are allowed here; remove it".to_owned();
    }
    let mut all: Vec<_> = candidates.iter().map(|c| format!("`{c}`")).collect();
    all.sort();
    format!("valid names: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_prefers_the_smallest_distance_and_refuses_the_far() {
        let keys = ["queue_size", "queue_sizes", "listen"];
        assert_eq!(nearest("queue_szie", keys), Some("queue_size"));
        assert_eq!(nearest("lisen", keys), Some("listen"));
        assert_eq!(nearest("completely_other", keys), None);
    }
}
