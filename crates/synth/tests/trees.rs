//! Trees: determinism, independence of the order of calls, the two sides, names and contents.

use headworks_synth::{Difference, Kind, Node, Tree, TreeSpec};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

fn tree(query: &str) -> Tree {
    Tree::new(query.parse::<TreeSpec>().unwrap())
}

fn small() -> impl Strategy<Value = Tree> {
    let names = prop::sample::select(vec!["plain", "all", "twins", "long,bytes"]);
    (any::<u64>(), 0..4u32, 0..4u32, 0..8u32, names, prop::array::uniform3(0..40u32)).prop_map(
        |(seed, depth, dirs, files, names, [missing, different, extra])| {
            tree(&format!(
                "seed={seed}&depth={depth}&dirs=0-{dirs}&files=0-{files}&size=0~4k&names={names}&missing={missing}&different={different}&extra={extra}"
            ))
        },
    )
}

/// All nodes by path.
fn paths(tree: &Tree) -> BTreeMap<Vec<Vec<u8>>, Node> {
    let mut all = BTreeMap::new();
    let mut open = vec![(Vec::new(), tree.root())];
    while let Some((path, node)) = open.pop() {
        for child in tree.children(&node) {
            let mut path: Vec<Vec<u8>> = path.clone();
            path.push(tree.name(&child));
            open.push((path, child));
        }
        assert!(all.insert(path, node).is_none(), "two nodes of one name");
    }
    all
}

fn contents(tree: &Tree, node: &Node) -> Vec<u8> {
    let mut bytes = vec![0; node.size() as usize + 10];
    let read = tree.read(node, 0, &mut bytes);
    bytes.truncate(read);
    bytes
}

proptest! {
    #[test]
    fn children_do_not_depend_on_the_order_of_calls(tree in small()) {
        let walked: Vec<Node> = tree.walk().collect();
        for node in walked.iter().rev() {
            let once: Vec<Node> = tree.children(node).collect();
            let again: Vec<Node> = tree.clone().children(node).collect();
            prop_assert_eq!(once, again);
        }
        prop_assert_eq!(walked.len(), paths(&tree).len());
        let totals = tree.totals();
        prop_assert_eq!(totals.folders + totals.files, walked.len() as u64);
    }

    #[test]
    fn every_node_is_found_by_its_path(tree in small()) {
        for tree in [tree.destination(), tree] {
            for (path, node) in paths(&tree) {
                let found = tree.find(path.iter().map(Vec::as_slice));
                prop_assert_eq!(found, Some(node));
            }
        }
    }

    #[test]
    fn names_are_valid_everywhere(tree in small()) {
        for node in tree.destination().walk().skip(1).chain(tree.walk().skip(1)) {
            let name = tree.name(&node);
            prop_assert!((1..=255).contains(&name.len()));
            prop_assert!(!name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..");
        }
    }

    #[test]
    fn no_name_panics(tree in small(), name in prop::collection::vec(any::<u8>(), 0..20), n in any::<u64>()) {
        let root = tree.root();
        let _ = tree.child(&root, &name);
        let _ = tree.child(&root, format!("notes-{n}").as_bytes());
    }

    #[test]
    fn the_destination_differs_exactly_as_described(source in small()) {
        let destination = source.destination();
        let (ours, theirs) = (paths(&source), paths(&destination));
        for (path, node) in &ours {
            let gone = (1..=path.len()).any(|n| source.difference(&ours[&path[..n]]) == Difference::Missing);
            let Some(other) = theirs.get(path) else {
                prop_assert!(gone);
                continue;
            };
            prop_assert!(!gone);
            let difference = source.difference(node);
            prop_assert_eq!(difference, destination.difference(other));
            prop_assert_eq!(node.key(), other.key());
            let same = contents(&source, node) == contents(&destination, other);
            prop_assert_eq!(same, !matches!(difference, Difference::Size | Difference::Content));
            prop_assert_eq!(node.size() == other.size(), difference != Difference::Size);
            prop_assert_eq!(node.modified() == other.modified(), matches!(difference, Difference::Same | Difference::Content));
        }
        for (path, node) in &theirs {
            prop_assert_eq!(ours.contains_key(path), destination.difference(node) != Difference::Extra);
        }
    }

    #[test]
    fn ranged_reads_agree(seed in any::<u64>(), offset in 0..3000u64, length in 0..3000usize) {
        let tree = tree(&format!("seed={seed}&depth=0&files=1&size=0-2k"));
        let file = tree.children(&tree.root()).next().unwrap();
        let whole = contents(&tree, &file);
        prop_assert_eq!(whole.len() as u64, file.size());
        let mut part = vec![0; length];
        let read = tree.read(&file, offset, &mut part);
        let start = (offset as usize).min(whole.len());
        let end = (start + length).min(whole.len());
        prop_assert_eq!(&part[..read], &whole[start..end]);
        prop_assert_eq!(tree.read(&file, u64::MAX, &mut part), 0);
    }
}

#[test]
fn awkward_names_occur() {
    let tree = tree("depth=0&files=400&names=all");
    let names: HashSet<Vec<u8>> = tree.children(&tree.root()).map(|n| tree.name(&n)).collect();
    assert_eq!(names.len(), 400);
    let some = |test: &dyn Fn(&[u8]) -> bool| assert!(names.iter().any(|name| test(name)));
    some(&|name| name.ends_with(b" "));
    some(&|name| name.starts_with(b" "));
    some(&|name| std::str::from_utf8(name).is_err());
    some(&|name| name.len() == 255);
    some(&|name| {
        let Ok(text) = std::str::from_utf8(name) else {
            return false;
        };
        text.contains('\u{e9}') && names.contains(text.replace('\u{e9}', "e\u{301}").as_bytes())
    });
}

#[test]
fn fractions_are_met() {
    let source = tree("seed=3&depth=0&files=100k&missing=5&different=10&extra=2.5&size=1");
    let destination = source.destination();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for node in source.children(&source.root()) {
        *counts
            .entry(format!("{:?}", source.difference(&node)))
            .or_default() += 1;
    }
    let files = 102_400.0;
    let part = |difference: &str| f64::from(counts[difference]) / files;
    assert!((part("Missing") - 0.05).abs() < 0.003, "{counts:?}");
    let different = part("Size") + part("Content") + part("Modified");
    assert!((different - 0.095).abs() < 0.004, "{counts:?}");
    let extra = destination.children(&destination.root());
    let extra = extra
        .filter(|n| destination.difference(n) == Difference::Extra)
        .count() as f64;
    assert!((extra / files - 0.025).abs() < 0.002, "{extra}");
}

/// A tree identified by its parameters must stay the same tree.
#[test]
fn trees_are_pinned() {
    let tree = tree("seed=7&depth=3&dirs=2-5&files=0-9&size=1k~64k");
    let totals = tree.totals();
    let first = tree.walk().find(|n| n.kind() == Kind::File).unwrap();
    let mut start = [0; 4];
    assert_eq!(tree.read(&first, 0, &mut start), 4);
    let pinned = (
        totals.folders,
        totals.files,
        totals.bytes,
        tree.name(&first),
        first.size(),
        start,
    );
    assert_eq!(
        pinned,
        (
            89,
            397,
            5_880_905,
            b"photos-0.dat".to_vec(),
            14_056,
            [36, 98, 14, 153]
        )
    );
}

/// Ten million nodes: a walk holds one iterator per level and nothing else.
#[test]
fn ten_million_nodes_need_no_memory() {
    let tree = tree("depth=6&dirs=10&files=8&size=100");
    let mut walk = tree.walk();
    let totals: headworks_synth::Totals = walk.by_ref().collect();
    assert_eq!((totals.folders, totals.files), (1_111_111, 8_888_888));
    assert_eq!(tree.spec().expected_nodes(), (1_111_111.0, 8_888_888.0));
}
