//! A tree of any size that is never stored.
//!
//! A [`Node`] carries a key. The keys of its children are derived from it, and everything else
//! about a node is derived from its own key. The children of a folder are therefore computed on
//! demand, in any order and any number of times, and a walk needs memory only for its depth.
//!
//! A tree has two sides. The destination is the source with a known part missing, different or
//! extra, decided per node. [`Tree::difference`] returns the kind, so that the expected result of a
//! comparison can be computed independently.

mod children;
mod content;
mod names;
mod node;
mod spec;
mod walk;

pub use children::Children;
pub use names::NameKind;
pub use node::{Difference, Kind, Node};
pub use spec::{Side, TreeSpec};
pub use walk::{Totals, Walk};

/// A synthetic tree.
///
/// ```
/// use headworks_synth::{Kind, Tree, TreeSpec};
///
/// let spec: TreeSpec = "seed=7&depth=2&dirs=3&files=5&size=1k-64k&missing=10".parse()?;
/// let source = Tree::new(spec);
/// let root = source.root();
/// assert_eq!(source.children(&root).count(), 8);
///
/// let totals = source.totals();
/// assert_eq!((totals.folders, totals.files), (1 + 3 + 9, 13 * 5));
///
/// let file = source.walk().find(|node| node.kind() == Kind::File).unwrap();
/// let mut tail = [0; 16];
/// assert_eq!(source.read(&file, file.size() - 4, &mut tail), 4);
///
/// let destination = source.destination();
/// assert!(destination.totals().files < totals.files);
/// # Ok::<(), headworks_synth::SynthError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    spec: TreeSpec,
}

impl Tree {
    /// The tree of a description, on the side that it names.
    #[must_use]
    pub fn new(spec: TreeSpec) -> Self {
        Tree { spec }
    }

    /// The destination side of the same description.
    #[must_use]
    pub fn destination(&self) -> Tree {
        let mut spec = self.spec.clone();
        spec.side = Side::Destination;
        Tree { spec }
    }

    /// The description.
    #[must_use]
    pub fn spec(&self) -> &TreeSpec {
        &self.spec
    }

    /// The root folder, which exists on both sides.
    #[must_use]
    pub fn root(&self) -> Node {
        Node::root(self.spec.seed)
    }

    /// The children of a folder, folders first; empty for a file.
    #[must_use]
    pub fn children(&self, folder: &Node) -> Children<'_> {
        Children::new(self, *folder)
    }

    /// The child of that name, found without iterating over the others.
    #[must_use]
    pub fn child(&self, folder: &Node, name: &[u8]) -> Option<Node> {
        let numbers = names::numbers(name)?;
        let mut candidates = numbers.flat_map(|n| self.at_index(folder, n));
        candidates.find(|node| self.name(node) == name)
    }

    /// The node at a path of names below the root.
    #[must_use]
    pub fn find<'a>(&self, path: impl IntoIterator<Item = &'a [u8]>) -> Option<Node> {
        let mut names = path.into_iter();
        names.try_fold(self.root(), |folder, name| self.child(&folder, name))
    }

    /// The name of a node in its folder: 1 to 255 bytes without `/` and NUL. The name of the root
    /// is empty.
    #[must_use]
    pub fn name(&self, node: &Node) -> Vec<u8> {
        names::name(&self.spec, node)
    }

    /// All nodes in pre-order. Needs memory only for the depth.
    #[must_use]
    pub fn walk(&self) -> Walk<'_> {
        Walk::new(self)
    }

    /// Counts everything by walking the tree. The root counts as a folder.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.walk().collect()
    }
}
