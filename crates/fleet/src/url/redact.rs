//! Hides passwords in URLs that were not parsed.

/// Returns `url` with every password replaced by `***`. It works on any text, also on URLs that
/// the parser rejects: an error or `config show` must not print what a user mistyped.
///
/// ```
/// use headworks_fleet::redact;
/// assert_eq!(redact("postgres://u:secret@h/db"), "postgres://u:***@h/db");
/// assert_eq!(redact("postgres://h/db?password=secret&job=a"), "postgres://h/db?password=***&job=a");
/// ```
#[must_use]
pub fn redact(url: &str) -> String {
    let (before_query, query) = match url.split_once('?') {
        Some((before, query)) => (before, Some(query)),
        None => (url, None),
    };
    // A password may contain `@`, `/` and `?` that were not encoded. The user information
    // therefore ends at the last `@`, wherever that is.
    if url.rfind('@').is_some_and(|at| at > before_query.len()) {
        return hide_user_information(url);
    }
    let mut shown = hide_user_information(before_query);
    if let Some(query) = query {
        shown.push('?');
        shown.push_str(&hide_parameters(query));
    }
    shown
}

fn hide_user_information(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let Some(end) = text.rfind('@').filter(|at| *at >= start) else {
        return text.to_owned();
    };
    match text[start..end].find(':') {
        Some(colon) => format!("{}:***{}", &text[..start + colon], &text[end..]),
        None => text.to_owned(),
    }
}

fn hide_parameters(query: &str) -> String {
    let parts: Vec<String> = query
        .split('&')
        .map(|part| match part.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}=***"),
            _ => part.to_owned(),
        })
        .collect();
    parts.join("&")
}

/// Returns whether a parameter's value is a secret. Encoded names count, too.
pub(super) fn is_secret(name: &str) -> bool {
    let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "secret", "sslpassword"].contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn passwords_are_hidden_wherever_they_are() {
        for (url, shown) in [
            ("postgres://u:p@h/d", "postgres://u:***@h/d"),
            ("postgres://u:p@x?@h/d", "postgres://u:***@h/d"),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("redis://:p@h", "redis://:***@h"),
            ("u:p@h", "u:***@h"),
            (
                "postgres://h/d?PassWord=p&x=1",
                "postgres://h/d?PassWord=***&x=1",
            ),
            (
                "postgres://h/d?pass%77ord=p",
                "postgres://h/d?pass%77ord=***",
            ),
            ("nothing", "nothing"),
        ] {
            assert_eq!(redact(url), shown);
        }
    }

    proptest! {
        #[test]
        fn no_password_survives(user in "[a-z]{0,5}", password in "[A-Z@:/?&=%]{1,12}SECRET") {
            let shown = redact(&format!("postgres://{user}:{password}@host/db?job=x"));
            prop_assert!(!shown.contains("SECRET"), "{shown}");
        }
    }
}
