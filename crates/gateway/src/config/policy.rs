//! Scheduling policies by name.

use headworks_core::Policy;
use serde::{Deserialize, Serialize};

/// Policy that selects the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PolicyName {
    /// The oldest request first.
    Fifo,
    /// The most urgent class first, always.
    Strict,
    /// Classes share by weight.
    Wfq,
    /// Class 0 first, always; the others share by weight.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_a_name_in_configurations() {
        for policy in Policy::ALL {
            let name = serde_json::Value::from(policy.name());
            let named: PolicyName = serde_json::from_value(name).unwrap();
            assert_eq!(Policy::from(named), policy);
        }
    }
}
