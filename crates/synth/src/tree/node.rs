//! One folder or file, and what becomes of it on the other side.

use super::{Side, Tree, TreeSpec};
use crate::rng::{mix, word};
use std::time::Duration;

/// Folder or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Has children.
    Folder,
    /// Has contents.
    File,
}

/// How a node of one side stands to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// On both sides, and the same.
    Same,
    /// On the source only.
    Missing,
    /// On both; the destination's is longer, and newer.
    Size,
    /// On both with other bytes, but the same size and time: seen by reading only.
    Content,
    /// On both with the same bytes; the destination's is newer.
    Modified,
    /// On the destination only.
    Extra,
}

/// A folder or a file: small, copied freely, and enough to compute all about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    key: u64,
    parent: u64,
    place: u64,
    size: u64,
    modified: Duration,
    depth: u32,
    kind: Kind,
    fate: Fate,
}

/// What a number is drawn for. The values are part of the format: changing one changes every tree.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Folder = 1,
    File = 2,
    ExtraFolder = 3,
    ExtraFile = 4,
    Folders = 5,
    Files = 6,
    Size = 7,
    Modified = 8,
    Missing = 9,
    Different = 10,
    Difference = 11,
    Extra = 12,
    FolderName = 13,
    FileName = 14,
    Content = 15,
    OtherContent = 16,
    Growth = 17,
}

/// The number that `key` draws for a purpose.
pub(super) fn draw(key: u64, purpose: Purpose) -> u64 {
    mix(key, purpose as u64)
}

impl Node {
    pub(super) fn root(seed: u64) -> Node {
        Node {
            key: mix(seed, 0),
            parent: 0,
            place: 0,
            size: 0,
            modified: modified(mix(seed, 0)),
            depth: 0,
            kind: Kind::Folder,
            fate: Fate::Same,
        }
    }

    /// Folder or file.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many folders it is below the root, which is at 0.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Bytes in a file; 0 for a folder.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// When it was last changed, since the start of 1970.
    #[must_use]
    pub fn modified(&self) -> Duration {
        self.modified
    }

    /// A number of its own within the tree, for maps and sets; the same on both sides.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn parent(&self) -> u64 {
        self.parent
    }

    pub(super) fn place(&self) -> u64 {
        self.place
    }

    pub(super) fn fate(&self) -> Fate {
        self.fate
    }
}

/// Between September 2020 and November 2023, to the nanosecond.
fn modified(key: u64) -> Duration {
    let random = draw(key, Purpose::Modified);
    let (seconds, nanos) = (
        1_600_000_000 + random % 100_000_000,
        (random >> 32) % 1_000_000_000,
    );
    Duration::new(seconds, nanos as u32)
}

impl Tree {
    /// How a node stands to the other side. For a source node that is what the destination makes of
    /// it.
    #[must_use]
    pub fn fate(&self, node: &Node) -> Fate {
        match (self.spec.side, node.depth) {
            (_, 0) => Fate::Same,
            (Side::Destination, _) => node.fate,
            (Side::Source, _) => fate(&self.spec, node),
        }
    }

    /// The node at a place of a folder on the source.
    pub(super) fn source_node(&self, folder: &Node, kind: Kind, place: u64) -> Node {
        let purpose = match kind {
            Kind::Folder => Purpose::Folder,
            Kind::File => Purpose::File,
        };
        self.make(folder, kind, place, mix(draw(folder.key, purpose), place))
    }

    /// The same place on the destination: the source's node or nothing, and perhaps one beside it.
    pub(super) fn destination_nodes(
        &self,
        folder: &Node,
        kind: Kind,
        place: u64,
    ) -> [Option<Node>; 2] {
        let mut node = self.source_node(folder, kind, place);
        if folder.fate == Fate::Extra {
            node.fate = Fate::Extra;
            return [Some(node), None];
        }
        let extra = self.spec.extra.covers(draw(node.key, Purpose::Extra));
        let beside = extra.then(|| self.extra_node(folder, kind, place));
        node.fate = fate(&self.spec, &node);
        if node.fate == Fate::Missing {
            return [None, beside];
        }
        if node.fate == Fate::Size {
            node.size = node
                .size
                .saturating_add(1 + draw(node.key, Purpose::Growth) % 64);
        }
        if matches!(node.fate, Fate::Size | Fate::Modified) {
            node.modified += Duration::from_secs(3600);
        }
        [Some(node), beside]
    }

    fn extra_node(&self, folder: &Node, kind: Kind, place: u64) -> Node {
        let purpose = match kind {
            Kind::Folder => Purpose::ExtraFolder,
            Kind::File => Purpose::ExtraFile,
        };
        let mut node = self.make(folder, kind, place, mix(draw(folder.key, purpose), place));
        node.fate = Fate::Extra;
        node
    }

    fn make(&self, folder: &Node, kind: Kind, place: u64, key: u64) -> Node {
        let size = match kind {
            Kind::Folder => 0,
            Kind::File => self.spec.size.pick(draw(key, Purpose::Size)),
        };
        Node {
            key,
            parent: folder.key,
            place,
            size,
            modified: modified(key),
            depth: folder.depth.saturating_add(1),
            kind,
            fate: Fate::Same,
        }
    }
}

fn fate(spec: &TreeSpec, node: &Node) -> Fate {
    if spec.missing.covers(draw(node.key, Purpose::Missing)) {
        return Fate::Missing;
    }
    let differs = spec.different.covers(draw(node.key, Purpose::Different));
    if node.kind == Kind::Folder || !differs {
        return Fate::Same;
    }
    match word(draw(node.key, Purpose::Difference), 0) % 3 {
        0 => Fate::Size,
        // An empty file has no bytes to differ in.
        1 if node.size > 0 => Fate::Content,
        _ => Fate::Modified,
    }
}
