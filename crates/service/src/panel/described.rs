//! A panel as it goes over the wire: to the page, and to whoever else asks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Panel, Panels, Parameter, Snapshot};

/// What an application shows of itself, and what it can be asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Described {
    /// The application's name in addresses.
    pub name: String,
    /// Its state now.
    pub snapshot: Snapshot,
    /// What can be done.
    pub actions: Vec<Action>,
    /// What kind of thing it explains; nothing if it explains nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explains: Option<String>,
    /// The settings that a what-if question may change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Parameter>,
}

/// Every application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PanelList {
    /// In the order in which they started.
    pub panels: Vec<Described>,
}

impl Described {
    /// `panel` as it is now.
    #[must_use]
    pub fn of(panel: &dyn Panel) -> Described {
        Described {
            name: panel.name().to_owned(),
            snapshot: panel.snapshot(),
            actions: panel.actions(),
            explains: panel.explains().map(str::to_owned),
            settings: panel.settings(),
        }
    }
}

impl PanelList {
    /// All of `panels` as they are now.
    #[must_use]
    pub fn of(panels: &Panels) -> PanelList {
        let panels = panels.iter().map(|panel| Described::of(panel.as_ref()));
        PanelList {
            panels: panels.collect(),
        }
    }
}
