//! Errors in descriptions of trees and loads.

/// An invalid description of a tree or a load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// A setting without `=`.
    #[error("`{piece}` is not a setting; write key=value, joined by &")]
    NotASetting {
        /// The setting as written.
        piece: String,
    },
    /// The key does not exist.
    #[error("unknown key `{key}`; did you mean `{nearest}`?")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The valid key that is most similar.
        nearest: &'static str,
    },
    /// A key is given twice.
    #[error("duplicate key `{key}`; remove one of them")]
    Repeated {
        /// The key.
        key: String,
    },
    /// A value cannot be parsed.
    #[error("invalid value `{key}={value}`; expected {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The value as written.
        value: String,
        /// The expected form, with an example.
        expected: &'static str,
    },
    /// A number is out of range.
    #[error("{field} is {value}; it must be {expected}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The permitted range.
        expected: &'static str,
    },
}
