//! Folders and files, and their relation to the other side.

use super::{Side, Tree, TreeSpec};
use crate::rng::{mix, word};
use std::time::Duration;

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A folder, with children.
    Folder,
    /// A file, with content.
    File,
}

/// The relation of a node to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Difference {
    /// On both sides, identical.
    Same,
    /// On the source only.
    Missing,
    /// On both; the one at the destination is longer and newer.
    Size,
    /// On both, with different bytes but the same size and time; only reading finds it.
    Content,
    /// On both, with the same bytes; the one at the destination is newer.
    Modified,
    /// On the destination only.
    Extra,
}

/// A folder or a file: a small, copyable value from which everything about it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    key: u64,
    parent: u64,
    index: u64,
    size: u64,
    modified: Duration,
    depth: u32,
    kind: Kind,
    difference: Difference,
}

/// The purposes of random numbers. The values are part of the format: changing one changes every
/// tree.
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

/// The random number of `key` for a purpose.
pub(super) fn derive(key: u64, purpose: Purpose) -> u64 {
    mix(key, purpose as u64)
}

impl Node {
    pub(super) fn root(seed: u64) -> Node {
        Node {
            key: mix(seed, 0),
            parent: 0,
            index: 0,
            size: 0,
            modified: modified(mix(seed, 0)),
            depth: 0,
            kind: Kind::Folder,
            difference: Difference::Same,
        }
    }

    /// The kind of the node.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The depth below the root, which is at 0.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Bytes in a file; 0 for a folder.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The modification time, since 1970.
    #[must_use]
    pub fn modified(&self) -> Duration {
        self.modified
    }

    /// A unique number within the tree, for maps and sets; the same on both sides.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn parent(&self) -> u64 {
        self.parent
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn difference(&self) -> Difference {
        self.difference
    }
}

/// A time between September 2020 and November 2023, in nanoseconds.
fn modified(key: u64) -> Duration {
    let random = derive(key, Purpose::Modified);
    let (seconds, nanos) = (
        1_600_000_000 + random % 100_000_000,
        (random >> 32) % 1_000_000_000,
    );
    Duration::new(seconds, nanos as u32)
}

impl Tree {
    /// The relation of a node to the other side. For a source node it is what happens to it at the
    /// destination.
    #[must_use]
    pub fn difference(&self, node: &Node) -> Difference {
        match (self.spec.side, node.depth) {
            (_, 0) => Difference::Same,
            (Side::Destination, _) => node.difference,
            (Side::Source, _) => difference(&self.spec, node),
        }
    }

    /// The node at an index of a folder on the source.
    pub(super) fn source_node(&self, folder: &Node, kind: Kind, index: u64) -> Node {
        let purpose = match kind {
            Kind::Folder => Purpose::Folder,
            Kind::File => Purpose::File,
        };
        self.make(folder, kind, index, mix(derive(folder.key, purpose), index))
    }

    /// The same index on the destination: the source's node or `None`, and possibly an extra node.
    pub(super) fn destination_nodes(
        &self,
        folder: &Node,
        kind: Kind,
        index: u64,
    ) -> [Option<Node>; 2] {
        let mut node = self.source_node(folder, kind, index);
        if folder.difference == Difference::Extra {
            node.difference = Difference::Extra;
            return [Some(node), None];
        }
        let extra = self.spec.extra.includes(derive(node.key, Purpose::Extra));
        let beside = extra.then(|| self.extra_node(folder, kind, index));
        node.difference = difference(&self.spec, &node);
        if node.difference == Difference::Missing {
            return [None, beside];
        }
        if node.difference == Difference::Size {
            node.size = node
                .size
                .saturating_add(1 + derive(node.key, Purpose::Growth) % 64);
        }
        if matches!(node.difference, Difference::Size | Difference::Modified) {
            node.modified += Duration::from_secs(3600);
        }
        [Some(node), beside]
    }

    fn extra_node(&self, folder: &Node, kind: Kind, index: u64) -> Node {
        let purpose = match kind {
            Kind::Folder => Purpose::ExtraFolder,
            Kind::File => Purpose::ExtraFile,
        };
        let mut node = self.make(folder, kind, index, mix(derive(folder.key, purpose), index));
        node.difference = Difference::Extra;
        node
    }

    fn make(&self, folder: &Node, kind: Kind, index: u64, key: u64) -> Node {
        let size = match kind {
            Kind::Folder => 0,
            Kind::File => self.spec.size.pick(derive(key, Purpose::Size)),
        };
        Node {
            key,
            parent: folder.key,
            index,
            size,
            modified: modified(key),
            depth: folder.depth.saturating_add(1),
            kind,
            difference: Difference::Same,
        }
    }
}

fn difference(spec: &TreeSpec, node: &Node) -> Difference {
    if spec.missing.includes(derive(node.key, Purpose::Missing)) {
        return Difference::Missing;
    }
    let differs = spec
        .different
        .includes(derive(node.key, Purpose::Different));
    if node.kind == Kind::Folder || !differs {
        return Difference::Same;
    }
    match word(derive(node.key, Purpose::Difference), 0) % 3 {
        0 => Difference::Size,
        // An empty file has no bytes to differ in.
        1 if node.size > 0 => Difference::Content,
        _ => Difference::Modified,
    }
}
