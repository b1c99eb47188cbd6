//! The children of a folder.

use super::node::{Purpose, derive};
use super::{Kind, Node, Side, Tree};

/// The children of a folder, folders first, computed one by one.
#[derive(Clone, Debug)]
pub struct Children<'a> {
    tree: &'a Tree,
    folder: Node,
    folders: u64,
    files: u64,
    /// The index over folders and files together.
    index: u64,
    extra: Option<Node>,
}

impl<'a> Children<'a> {
    pub(super) fn new(tree: &'a Tree, folder: Node) -> Self {
        let (folders, files) = tree.counts(&folder);
        Children {
            tree,
            folder,
            folders,
            files,
            index: 0,
            extra: None,
        }
    }

    /// The position from which [`Tree::children_from`] continues; `None` between two nodes with the
    /// same index.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.extra.is_none().then_some(self.index)
    }
}

impl Iterator for Children<'_> {
    type Item = Node;

    fn next(&mut self) -> Option<Node> {
        if let Some(node) = self.extra.take() {
            return Some(node);
        }
        while self.index < self.folders.saturating_add(self.files) {
            let index = self.index;
            self.index += 1;
            let (kind, index) = match index.checked_sub(self.folders) {
                None => (Kind::Folder, index),
                Some(index) => (Kind::File, index),
            };
            let [first, extra] = self.tree.nodes(&self.folder, kind, index);
            if first.is_some() {
                self.extra = extra;
                return first;
            }
            if extra.is_some() {
                return extra;
            }
        }
        None
    }
}

impl Tree {
    /// The children of a folder from a [mark](Children::position) on, without iterating over those
    /// before it.
    ///
    /// ```
    /// use headworks_synth::Tree;
    ///
    /// let tree = Tree::new("files=9&dirs=2&depth=1".parse()?);
    /// let root = tree.root();
    /// let mut children = tree.children(&root);
    /// let _ = children.nth(4);
    /// let mark = children.position().unwrap();
    /// assert!(children.eq(tree.children_from(&root, mark)));
    /// # Ok::<(), headworks_synth::SynthError>(())
    /// ```
    #[must_use]
    pub fn children_from(&self, folder: &Node, mark: u64) -> Children<'_> {
        let mut children = Children::new(self, *folder);
        children.index = mark;
        children
    }

    /// Every node, of either kind, with this index in its folder.
    pub(super) fn at_index(&self, folder: &Node, index: u64) -> impl Iterator<Item = Node> {
        let (folders, files) = self.counts(folder);
        let in_kind = |kind, count| match index < count {
            true => self.nodes(folder, kind, index),
            false => [None, None],
        };
        let found = [in_kind(Kind::Folder, folders), in_kind(Kind::File, files)];
        found.into_iter().flatten().flatten()
    }

    fn nodes(&self, folder: &Node, kind: Kind, index: u64) -> [Option<Node>; 2] {
        match self.spec.side {
            Side::Source => [Some(self.source_node(folder, kind, index)), None],
            Side::Destination => self.destination_nodes(folder, kind, index),
        }
    }

    /// The number of folders and files in this folder of the source.
    fn counts(&self, folder: &Node) -> (u64, u64) {
        if folder.kind() == Kind::File {
            return (0, 0);
        }
        let folders = match folder.depth() < self.spec.depth {
            true => self.spec.dirs.pick(derive(folder.key(), Purpose::Folders)),
            false => 0,
        };
        let files = self.spec.files.pick(derive(folder.key(), Purpose::Files));
        (folders, files)
    }
}
