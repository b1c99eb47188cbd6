//! Glob patterns in which `*` matches any text, also none.

/// Whether `text` as a whole matches `pattern`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        // The leftmost match leaves the most text for the parts that follow, so no backtracking is
        // needed.
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Whether any of `patterns` matches. An empty list matches everything.
pub(crate) fn any(patterns: &[String], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, text))
}

/// Whether some text matches one of `ones` and one of `others`.
pub(crate) fn overlap(ones: &[String], others: &[String]) -> bool {
    let either_is_all = ones.is_empty() || others.is_empty();
    either_is_all
        || ones.iter().any(|one| {
            others
                .iter()
                .any(|other| intersect(one.as_bytes(), other.as_bytes()))
        })
}

/// Whether some text matches both patterns.
fn intersect(one: &[u8], other: &[u8]) -> bool {
    // `row[j]` says whether the rest of `one` and the rest of `other` from `j` on have a text in
    // common. Rows are computed from the end of `one` to its start.
    let mut row: Vec<bool> = (0..=other.len())
        .map(|from| other[from..].iter().all(|byte| *byte == b'*'))
        .collect();
    for byte in one.iter().rev() {
        let below = row.clone();
        for from in (0..=other.len()).rev() {
            let next = other.get(from);
            row[from] = match (byte, next) {
                (b'*', Some(_)) => below[from] || row[from + 1],
                (b'*', None) => below[from],
                (_, Some(b'*')) => row[from + 1] || below[from],
                (byte, Some(next)) => byte == next && below[from + 1],
                (_, None) => false,
            };
        }
    }
    row[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_with_a_text_in_common_overlap() {
        for (one, other, common) in [
            ("gpt-*", "gpt-4o", true),
            ("gpt-*", "*-mini", true),
            ("gpt-*", "claude-*", false),
            ("a*c", "ab*", true),
            ("a*c", "*b", false),
            ("*", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*b*", "*b*a", true),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                assert_eq!(
                    intersect(one.as_bytes(), other.as_bytes()),
                    common,
                    "{one} and {other}"
                );
            }
        }
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, fits) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-*", "gpt-4o-mini", true),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*mini", "gpt-4o-mini", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} on {text}");
        }
    }
}
