//! Iteration over a whole tree.

use super::{Children, Kind, Node, Tree};

/// All nodes in pre-order, the root first. Holds one iterator per level and no list of nodes.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    tree: &'a Tree,
    root: Option<Node>,
    levels: Vec<Children<'a>>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        Walk {
            tree,
            root: Some(tree.root()),
            levels: Vec::new(),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Node;

    fn next(&mut self) -> Option<Node> {
        let node = match self.root.take() {
            Some(root) => root,
            None => loop {
                match self.levels.last_mut()?.next() {
                    Some(node) => break node,
                    None => self.levels.pop(),
                };
            },
        };
        if node.kind() == Kind::Folder {
            self.levels.push(self.tree.children(&node));
        }
        Some(node)
    }
}

/// Totals of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Folders, including the root.
    pub folders: u64,
    /// Files.
    pub files: u64,
    /// Bytes in the files.
    pub bytes: u64,
}

impl FromIterator<Node> for Totals {
    fn from_iter<I: IntoIterator<Item = Node>>(nodes: I) -> Self {
        let mut totals = Totals::default();
        for node in nodes {
            match node.kind() {
                Kind::Folder => totals.folders += 1,
                Kind::File => totals.files += 1,
            }
            totals.bytes = totals.bytes.saturating_add(node.size());
        }
        totals
    }
}
