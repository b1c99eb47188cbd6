//! Actions of an application, and their parameters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::PanelError;

/// Arguments by parameter name.
pub type Args = serde_json::Map<String, Value>;

/// An action that an operator can trigger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Action {
    /// The name in URLs.
    pub name: String,
    /// The display name.
    pub title: String,
    /// A sentence that describes the effect.
    pub doc: String,
    /// Whether it loses or stops something. The console asks for confirmation, and the log records
    /// the client.
    pub destructive: bool,
    /// The parameters.
    pub parameters: Vec<Parameter>,
}

/// A parameter of an action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// The display name.
    pub title: String,
    /// The type of the value.
    pub kind: ParameterKind,
    /// Whether it is required.
    pub required: bool,
    /// The current value, for a setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// The type of a parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "of", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ParameterKind {
    /// A string.
    #[default]
    Text,
    /// An integer.
    Whole,
    /// Any number.
    Number,
    /// A boolean.
    Flag,
    /// One of a fixed set of values.
    Choice(Vec<Choice>),
    /// The id of a row in the widget of this name. The console offers the action on that row.
    Row(String),
}

/// One value of a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// The value.
    pub value: String,
    /// The display name.
    pub title: String,
}

/// The result of an action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActionResult {
    /// A sentence that says what was done.
    pub message: String,
    /// Details for programs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl ActionResult {
    /// A result with `message` and no details.
    #[must_use]
    pub fn new(message: impl Into<String>) -> ActionResult {
        let message = message.into();
        ActionResult {
            message,
            details: Value::Null,
        }
    }
}

impl Action {
    /// Checks `args` against the parameters.
    ///
    /// # Errors
    /// The first argument that is missing, unknown or of the wrong type.
    ///
    /// ```
    /// use headworks_service::panel::{Action, Args};
    /// let pause = Action { name: "pause".into(), ..Action::default() };
    /// assert!(pause.check(&Args::new()).is_ok());
    /// ```
    pub fn check(&self, args: &Args) -> Result<(), PanelError> {
        let known = |name: &String| self.parameters.iter().any(|p| p.name == *name);
        if let Some(unknown) = args.keys().find(|name| !known(name)) {
            return Err(PanelError::argument(unknown, "unknown argument"));
        }
        for parameter in &self.parameters {
            match args.get(&parameter.name) {
                None | Some(Value::Null) if parameter.required => {
                    return Err(PanelError::argument(&parameter.name, "required"));
                }
                None | Some(Value::Null) => {}
                Some(value) => parameter.check(value)?,
            }
        }
        Ok(())
    }
}

impl Parameter {
    fn check(&self, value: &Value) -> Result<(), PanelError> {
        let (fits, expected) = match &self.kind {
            ParameterKind::Text => (value.is_string(), "a string".to_owned()),
            ParameterKind::Row(widget) => {
                (value.is_string(), format!("the id of a row in `{widget}`"))
            }
            ParameterKind::Whole => (value.is_i64() || value.is_u64(), "an integer".to_owned()),
            ParameterKind::Number => (value.is_number(), "a number".to_owned()),
            ParameterKind::Flag => (value.is_boolean(), "true or false".to_owned()),
            ParameterKind::Choice(choices) => {
                let fits = choices
                    .iter()
                    .any(|c| Some(c.value.as_str()) == value.as_str());
                let words: Vec<_> = choices.iter().map(|c| format!("`{}`", c.value)).collect();
                (fits, format!("one of {}", words.join(", ")))
            }
        };
        if fits {
            return Ok(());
        }
        Err(PanelError::argument(
            &self.name,
            format!("expected {expected}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn open() -> Action {
        let choices = ["left", "right"].map(|value| Choice {
            value: value.into(),
            title: value.into(),
        });
        let parameter = |name: &str, kind, required| Parameter {
            name: name.into(),
            title: name.into(),
            kind,
            required,
            now: None,
        };
        Action {
            name: "open".into(),
            parameters: vec![
                parameter("gate", ParameterKind::Whole, true),
                parameter("bank", ParameterKind::Choice(choices.into()), false),
            ],
            ..Action::default()
        }
    }

    #[test]
    fn arguments_are_checked_against_parameters() {
        let refused = |args: Value| {
            let args = args.as_object().unwrap();
            open().check(args).err().map(|error| error.to_string())
        };
        assert_eq!(refused(json!({"gate": 3, "bank": "left"})), None);
        assert_eq!(refused(json!({"gate": 3, "bank": null})), None);
        let words = [
            refused(json!({})),
            refused(json!({"gate": "three"})),
            refused(json!({"gate": 3, "bank": "middle"})),
            refused(json!({"gate": 3, "depth": 9})),
        ];
        insta::assert_snapshot!(words.map(Option::unwrap).join("\n"), @r"
        argument `gate`: required
        argument `gate`: expected an integer
        argument `bank`: expected one of `left`, `right`
        argument `depth`: unknown argument
        ");
    }
}
