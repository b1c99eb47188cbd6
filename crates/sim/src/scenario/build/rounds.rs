//! Builds two coordinated round queues.

use super::super::amount::{Name, Names};
use super::super::file::RoundsFile;
use super::super::location::InvalidKey;
use super::super::model::RoundsSpec;
use super::Checked;
use super::names::{Interner, Lookup};
use headworks_core::{Class, Coordinator};
use std::time::Duration;

pub(super) fn rounds_of(
    file: &RoundsFile,
    lookup: &Lookup<'_>,
    names: &mut Interner,
) -> Checked<RoundsSpec> {
    let (lag, max_lead) = (file.lag.unwrap_or(3), file.max_lead.unwrap_or(4));
    Coordinator::new(lag, max_lead)
        .map_err(|error| InvalidKey::new("max_lead", error.to_string()))?;
    let (folders, files) = file.tree.expected_nodes();
    if !(folders + files).is_finite() || folders + files > 1e9 {
        let problem = format!(
            "has about {:.1e} nodes; at most 1e9 can be simulated, so make depth or dirs smaller",
            folders + files
        );
        return Err(InvalidKey::new("tree", problem));
    }
    let inside = file.tree.dirs.mean() + file.tree.files.mean();
    if inside > 1e6 {
        let problem = format!(
            "has about {inside:.1e} entries in a folder; at most 1e6 can be simulated, so make dirs or files smaller"
        );
        return Err(InvalidKey::new("tree", problem));
    }
    let class = match &file.class {
        Some(name) => lookup.class("class", name)?,
        None => Class(0),
    };
    let side = |key: &str, target: &str| {
        let wanted = Names(vec![Name::Word(target.to_owned())]);
        lookup.targets(key, Some(&wanted))
    };
    Ok(RoundsSpec {
        tree: file.tree.clone(),
        class,
        lag,
        max_lead,
        retry_budget: file
            .retry_budget
            .map_or(Duration::from_secs(60), |length| length.0),
        passes: file.passes.unwrap_or(3).max(1),
        in_flight: file.in_flight.unwrap_or(64).max(1),
        sides: [
            (side("leader", &file.leader)?, names.number("leader")),
            (side("follower", &file.follower)?, names.number("follower")),
        ],
    })
}
