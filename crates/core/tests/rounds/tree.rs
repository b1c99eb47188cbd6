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
    pub(crate) depth: Vec<u32>,
    pub(crate) on_both: Vec<bool>,
}

impl Tree {
    pub(crate) fn grow(dice: &mut Dice, levels: u32, empty_destination: bool) -> Tree {
        let (mut children, mut depth, mut on_both) = (vec![vec![]], vec![0], vec![true]);
        let mut level = vec![0];
        for d in 1..=levels {
            let mut next = Vec::new();
            for &parent in &level {
                for _ in 0..dice.roll(4) {
                    let node: usize = children.len();
                    children.push(vec![]);
                    depth.push(d);
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
            depth,
            on_both,
        }
    }

    pub(crate) fn children(&self, node: usize, side: Side) -> Vec<usize> {
        let found = self.children[node].iter().copied();
        found
            .filter(|&n| side == Side::Leader || self.on_both[n])
            .collect()
    }
}
