//! What can be done to an application, and with which arguments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::PanelError;

/// Arguments by name.
pub type Args = serde_json::Map<String, Value>;

/// Something that can be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Action {
    /// Its name in addresses.
    pub name: String,
    /// What a person calls it.
    pub title: String,
    /// What it does, in a sentence.
    pub doc: String,
    /// Whether it loses or stops something: a page asks first, and the log keeps who did it.
    pub destructive: bool,
    /// What it needs to know.
    pub parameters: Vec<Parameter>,
}

/// One argument that an action takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// What a person calls it.
    pub title: String,
    /// What it may be.
    pub kind: ParameterKind,
    /// Whether it must be given.
    pub required: bool,
    /// What it is at present, for a setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// What an argument may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "of", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ParameterKind {
    /// Words.
    #[default]
    Text,
    /// A whole number.
    Whole,
    /// Any number.
    Number,
    /// Yes or no.
    Flag,
    /// One of some words.
    Choice(Vec<Choice>),
    /// A row's id in the widget of this name: a page offers the action where that row is.
    Row(String),
}

/// One word of a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// The word itself.
    pub value: String,
    /// What a person calls it.
    pub title: String,
}

/// What an action did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// In a sentence.
    pub message: String,
    /// For machines.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl Done {
    /// Done, in a sentence.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Done {
        let message = message.into();
        Done {
            message,
            details: Value::Null,
        }
    }
}

impl Action {
    /// Whether `args` fit the parameters.
    ///
    /// # Errors
    /// The first argument that is missing, unknown or of the wrong kind.
    ///
    /// ```
    /// use headworks_service::panel::{Action, Args};
    /// let pause = Action { name: "pause".into(), ..Action::default() };
    /// assert!(pause.check(&Args::new()).is_ok());
    /// ```
    pub fn check(&self, args: &Args) -> Result<(), PanelError> {
        let known = |name: &String| self.parameters.iter().any(|p| p.name == *name);
        if let Some(unknown) = args.keys().find(|name| !known(name)) {
            return Err(PanelError::argument(
                unknown,
                "this action does not take it",
            ));
        }
        for parameter in &self.parameters {
            match args.get(&parameter.name) {
                None | Some(Value::Null) if parameter.required => {
                    return Err(PanelError::argument(&parameter.name, "it is required"));
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
            ParameterKind::Whole => (
                value.is_i64() || value.is_u64(),
                "a whole number".to_owned(),
            ),
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
        argument `gate`: it is required
        argument `gate`: expected a whole number
        argument `bank`: expected one of `left`, `right`
        argument `depth`: this action does not take it
        ");
    }
}
