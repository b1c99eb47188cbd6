//! Tokens as users hand them over.

use crate::error::{Error, ErrorKind, Result};
use http::HeaderValue;

/// The header of a token that a variable of the environment holds.
pub(crate) fn bearer(variable: &str, token: &str) -> Result<HeaderValue> {
    // Whoever read it from a file has the end of its line, too.
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    // The error must not repeat what it could not use.
    let mut value = value.map_err(|_| {
        let message = "it has characters that no token has; set it to one line of text";
        Error::new(
            ErrorKind::Denied,
            "use the token in",
            variable.as_bytes(),
            message,
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_with_the_end_of_its_line_is_used_and_one_of_two_lines_is_refused() {
        assert_eq!(bearer("SOME_TOKEN", "abc\n").unwrap(), "Bearer abc");
        let refused = bearer("SOME_TOKEN", "secret-a\nsecret-b")
            .unwrap_err()
            .to_string();
        assert!(refused.contains("SOME_TOKEN"), "{refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
}
