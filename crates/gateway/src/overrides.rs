//! Settings that were changed by hand while the gateway runs. They override the configuration until
//! the next reload.

use headworks_core::{Class, Config, Policy};
use headworks_service::panel::{Choice, PanelError, Parameter, ParameterKind};
use serde_json::Value;

use crate::wire::class_name;

const POLICIES: [(&str, Policy); 4] = [
    ("hybrid", Policy::Hybrid),
    ("strict", Policy::Strict),
    ("wfq", Policy::Wfq),
    ("fifo", Policy::Fifo),
];

/// Name of a policy, as in the configuration.
pub(crate) fn policy_name(policy: Policy) -> Option<&'static str> {
    let named = POLICIES.iter().find(|(_, known)| *known == policy);
    named.map(|(name, _)| *name)
}

/// Settings changed by hand; `None` where the configuration holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Overrides {
    policy: Option<Policy>,
    max_concurrent: Option<u32>,
    /// Pairs of class and weight.
    weights: Vec<(usize, u32)>,
}

impl Overrides {
    /// Settings that can be changed, each with its value in `config`.
    pub(crate) fn parameters(config: &Config) -> Vec<Parameter> {
        let parameter = |name: String, title: String, kind, now| Parameter {
            name,
            title,
            kind,
            required: false,
            now,
        };
        let policies = POLICIES.map(|(name, _)| Choice {
            value: name.to_owned(),
            title: name.to_owned(),
        });
        let mut all = vec![
            parameter(
                "policy".into(),
                "Policy".into(),
                ParameterKind::Choice(policies.into()),
                policy_name(config.policy).map(str::to_owned),
            ),
            parameter(
                "max_concurrent".into(),
                "Concurrent requests".into(),
                ParameterKind::Whole,
                config.limits.concurrent.map(|most| most.to_string()),
            ),
        ];
        let classes = (0..).zip(&config.classes);
        all.extend(classes.map(|(level, class): (u8, _)| {
            let name = class_name(Class(level)).unwrap_or_default();
            let title = format!("Weight of P{level} {name}");
            parameter(
                format!("weight_{level}"),
                title.trim_end().to_owned(),
                ParameterKind::Whole,
                Some(class.weight.to_string()),
            )
        }));
        all
    }

    /// Records one change.
    pub(crate) fn change(
        &mut self,
        levels: u8,
        key: &str,
        value: &Value,
    ) -> Result<(), PanelError> {
        let whole = || {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            number
                .filter(|number| *number > 0)
                .ok_or_else(|| PanelError::argument(key, "expected an integer above 0"))
        };
        match key.strip_prefix("weight_").map(str::parse::<usize>) {
            Some(Ok(level)) if level < usize::from(levels) => {
                let weight = whole()?;
                self.weights.retain(|(known, _)| *known != level);
                self.weights.push((level, weight));
            }
            _ if key == "max_concurrent" => self.max_concurrent = Some(whole()?),
            _ if key == "policy" => {
                let named = POLICIES
                    .iter()
                    .find(|(name, _)| value.as_str() == Some(*name));
                let problem = || PanelError::argument(key, "expected hybrid, strict, wfq or fifo");
                self.policy = Some(named.ok_or_else(problem)?.1);
            }
            _ => {
                let problem = "this setting cannot be changed at run time";
                return Err(PanelError::argument(key, problem));
            }
        }
        Ok(())
    }

    /// Overrides the settings of `config`.
    pub(crate) fn apply_to(&self, config: &mut Config) {
        config.policy = self.policy.unwrap_or(config.policy);
        config.limits.concurrent = self.max_concurrent.or(config.limits.concurrent);
        for (level, weight) in &self.weights {
            if let Some(class) = config.classes.get_mut(*level) {
                class.weight = *weight;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Overrides::default()
    }
}
