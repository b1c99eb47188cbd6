//! Settings that were changed by hand while the gateway runs. They override the configuration until
//! the next reload.

use headworks_core::{Class, Config, Policy};
use headworks_service::panel::{Choice, PanelError, Parameter, ParameterKind};
use serde_json::{Value, json};

use crate::wire::class_name;

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
        let policies = Policy::ALL.map(|policy| Choice {
            value: policy.name().to_owned(),
            title: policy.name().to_owned(),
        });
        let mut all = vec![
            parameter(
                "policy".into(),
                "Policy".into(),
                ParameterKind::Choice(policies.into()),
                Some(config.policy.name().to_owned()),
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
                let mut policies = Policy::ALL.into_iter();
                let named = policies.find(|policy| value.as_str() == Some(policy.name()));
                let names = || Policy::ALL.map(Policy::name).join(", ");
                let problem = || PanelError::argument(key, format!("expected one of {}", names()));
                self.policy = Some(named.ok_or_else(problem)?);
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

    /// For the other processes of a fleet.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "policy": self.policy.map(Policy::name),
            "max_concurrent": self.max_concurrent,
            "weights": self.weights,
        })
    }

    /// From another process of the fleet; `None` if it is malformed.
    pub(crate) fn from_json(value: &Value) -> Option<Overrides> {
        let whole = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let named = |name: &str| Policy::ALL.into_iter().find(|policy| policy.name() == name);
        let policy = match &value["policy"] {
            Value::Null => None,
            name => Some(named(name.as_str()?)?),
        };
        let max_concurrent = match &value["max_concurrent"] {
            Value::Null => None,
            most => Some(whole(most).filter(|most| *most > 0)?),
        };
        let mut weights = Vec::new();
        for pair in value["weights"].as_array()? {
            let weight = whole(&pair[1]).filter(|weight| *weight > 0)?;
            weights.push((usize::from(u8::try_from(whole(&pair[0])?).ok()?), weight));
        }
        Some(Overrides {
            policy,
            max_concurrent,
            weights,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Overrides::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_survive_the_way_to_another_process() {
        let mut overrides = Overrides::default();
        assert_eq!(
            Overrides::from_json(&overrides.to_json()),
            Some(overrides.clone())
        );
        for (key, value) in [
            ("policy", json!("strict")),
            ("max_concurrent", json!(7)),
            ("weight_2", json!(30)),
        ] {
            overrides.change(10, key, &value).unwrap();
        }
        assert_eq!(Overrides::from_json(&overrides.to_json()), Some(overrides));
        for garbage in [
            json!(1),
            json!({"weights": [[0, 0]]}),
            json!({"weights": [], "policy": "?"}),
        ] {
            assert_eq!(Overrides::from_json(&garbage), None, "{garbage}");
        }
    }
}
