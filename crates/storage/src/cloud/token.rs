//! Bearer tokens from the environment.

use crate::error::{Error, ErrorKind, Result};
use http::HeaderValue;

/// Returns the header of a token in an environment variable.
pub(crate) fn bearer(variable: &str, token: &str) -> Result<HeaderValue> {
    // A token read from a file ends with a newline.
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    // The error must not repeat the token.
    let mut value = value.map_err(|_| {
        let message = "the token contains invalid characters; set it to one line of text";
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
