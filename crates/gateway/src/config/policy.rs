//! A policy by name.

use headworks_core::Policy;
use serde::{Deserialize, Serialize};

/// How the next request is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PolicyName {
    /// The oldest.
    Fifo,
    /// The most urgent class, always.
    Strict,
    /// Shares by weight.
    Wfq,
    /// Class 0 always, the rest by weight.
    #[default]
    Hybrid,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Policy {
        match name {
            PolicyName::Fifo => Policy::Fifo,
            PolicyName::Strict => Policy::Strict,
            PolicyName::Wfq => Policy::Wfq,
            PolicyName::Hybrid => Policy::Hybrid,
        }
    }
}
