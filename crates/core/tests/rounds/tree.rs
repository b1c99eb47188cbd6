//! Random trees, and the dice they are grown with.

use headworks_core::Side;

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

pub(crate) struct Tree {
    pub(crate) children: Vec<Vec<usize>>,
    /// The root is its own.
    pub(crate) parent: Vec<usize>,
    pub(crate) depth: Vec<u32>,
    pub(crate) on_both: Vec<bool>,
}

impl Tree {
    pub(crate) fn grow(dice: &mut Dice, levels: u32, empty_destination: bool) -> Tree {
        let (mut children, mut depth, mut on_both) = (vec![vec![]], vec![0], vec![true]);
        let mut parents = vec![0];
        let mut level = vec![0];
        for d in 1..=levels {
            let mut next = Vec::new();
            for &parent in &level {
                for _ in 0..dice.roll(4) {
                    let node: usize = children.len();
                    children.push(vec![]);
                    depth.push(d);
                    parents.push(parent);
                    on_both.push(on_both[parent] && !empty_destination && dice.roll(5) > 0);
                    children[parent].push(node);
                    next.push(node);
                }
            }
            next.truncate(12);
            level = next;
        }
        Tree {
            children,
            parent: parents,
            depth,
            on_both,
        }
    }

    /// A tree of that many nodes in which `thin` of ten are children of the node before them: with
    /// 10 a chain, with 0 broad and shallow. Parents come before their children.
    pub(crate) fn deep(dice: &mut Dice, nodes: u64, thin: u64) -> Tree {
        let mut tree = Tree {
            children: vec![vec![]],
            parent: vec![0],
            depth: vec![0],
            on_both: vec![true],
        };
        for node in 1..nodes.max(1) as usize {
            let parent = match dice.roll(10) < thin {
                true => node - 1,
                false => dice.roll(node as u64) as usize,
            };
            tree.children.push(vec![]);
            tree.children[parent].push(node);
            tree.parent.push(parent);
            tree.depth.push(tree.depth[parent] + 1);
            tree.on_both.push(true);
        }
        tree
    }

    pub(crate) fn children(&self, node: usize, side: Side) -> Vec<usize> {
        let found = self.children[node].iter().copied();
        found
            .filter(|&n| side == Side::Leader || self.on_both[n])
            .collect()
    }
}
