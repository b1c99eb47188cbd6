//! Glob patterns that are secrets. The time of a comparison depends on lengths alone, so nobody can
//! find out a pattern letter by letter.

use subtle::{Choice, ConstantTimeEq};

/// Whether `text` as a whole matches `pattern`, in which `*` matches any text, also none.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let text = text.as_bytes();
    let Some((head, rest)) = pattern.split_once('*') else {
        return text.ct_eq(pattern.as_bytes()).into();
    };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    let (head, tail) = (head.as_bytes(), tail.as_bytes());
    let Some(inner) = text.len().checked_sub(tail.len()) else {
        return false;
    };
    let Some(mut left) = text.get(head.len()..inner) else {
        return false;
    };
    let mut matches = text[..head.len()].ct_eq(head) & text[inner..].ct_eq(tail);
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        // The leftmost match leaves the most text for the parts that follow. The search goes on
        // behind it, and the parts that follow are compared also if this one is missing.
        let mut found = None;
        for (at, window) in left.windows(part.len()).enumerate() {
            let is_same = bool::from(window.ct_eq(part.as_bytes()));
            found = found.or(is_same.then_some(at));
        }
        matches &= Choice::from(u8::from(found.is_some()));
        left = found.map_or(left, |at| &left[at + part.len()..]);
    }
    matches.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_matches_like_any_pattern(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &text), crate::pattern::matches(&pattern, &text));
        }
    }
}
