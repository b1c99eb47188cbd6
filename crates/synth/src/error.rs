//! What can be wrong with a description.

/// A description that makes no tree and no load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// A piece of a query without `=`.
    #[error("`{piece}` is not a setting; write key=value, joined by &")]
    NotASetting {
        /// The piece as it was written.
        piece: String,
    },
    /// A key that does not exist.
    #[error("unknown key `{key}`; did you mean `{nearest}`?")]
    UnknownKey {
        /// The key as it was written.
        key: String,
        /// The right key that looks most like it.
        nearest: &'static str,
    },
    /// A key that was given before.
    #[error("`{key}` is given twice; leave one of them out")]
    Repeated {
        /// The key.
        key: String,
    },
    /// A value that cannot be read.
    #[error("`{key}={value}` cannot be read; write {expected}")]
    BadValue {
        /// The key it was given for.
        key: String,
        /// The value as it was written.
        value: String,
        /// What would have been right, with an example.
        expected: &'static str,
    },
    /// Numbers that make no load.
    #[error("{field} is {value}; it must be {expected}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
}
