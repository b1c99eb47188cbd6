//! What a comparison of two synthetic trees must find, computed from the trees alone.

use headworks_synth::{Fate, Kind, Tree};

/// What a comparison finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) same: u64,
    pub(crate) missing: u64,
    pub(crate) different: u64,
    pub(crate) extra: u64,
}

/// What there is to find, by the trees themselves.
pub(crate) fn truth(source: &Tree, destination: &Tree) -> Findings {
    let mut truth = Findings::default();
    let mut open = vec![(source.root(), false)];
    while let Some((folder, lost)) = open.pop() {
        for node in source.children(&folder) {
            let fate = source.fate(&node);
            let lost = lost || fate == Fate::Missing;
            match fate {
                _ if lost => truth.missing += 1,
                // Other bytes under the same size and time are found by reading only.
                Fate::Same | Fate::Content => truth.same += 1,
                _ => truth.different += 1,
            }
            open.extend((node.kind() == Kind::Folder).then_some((node, lost)));
        }
    }
    let mut open = vec![destination.root()];
    while let Some(folder) = open.pop() {
        for node in destination.children(&folder) {
            match destination.fate(&node) {
                Fate::Extra => truth.extra += 1,
                _ => open.push(node),
            }
        }
    }
    truth
}
