//! The serialized form of a panel, for the console and for other clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Panel, Panels, Parameter, Snapshot};

/// The state of an application, its actions and its questions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PanelDescription {
    /// The name of the application in URLs.
    pub name: String,
    /// The current state.
    pub snapshot: Snapshot,
    /// The actions.
    pub actions: Vec<Action>,
    /// The kind of subject it explains; absent if it offers no explanations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explains: Option<String>,
    /// The settings that a what-if question may change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Parameter>,
}

/// All applications.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PanelList {
    /// The panels, in the order in which the applications started.
    pub panels: Vec<PanelDescription>,
}

impl PanelDescription {
    /// Describes `panel` in its current state.
    #[must_use]
    pub fn of(panel: &dyn Panel) -> PanelDescription {
        PanelDescription {
            name: panel.name().to_owned(),
            snapshot: panel.snapshot(),
            actions: panel.actions(),
            explains: panel.explains().map(str::to_owned),
            settings: panel.settings(),
        }
    }
}

impl PanelList {
    /// Describes all of `panels` in their current state.
    #[must_use]
    pub fn of(panels: &Panels) -> PanelList {
        let panels = panels
            .iter()
            .map(|panel| PanelDescription::of(panel.as_ref()));
        PanelList {
            panels: panels.collect(),
        }
    }
}
