//! File names, plain and awkward.
//!
//! Each name contains a word, a hyphen and the index of the node in its folder, so that the node
//! can be found from its name. Kinds are drawn for pairs of neighbours, because twins need each
//! other.

use super::node::{Difference, Purpose, derive};
use super::{Kind, Node, TreeSpec};
use crate::rng::word;

/// A kind of name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameKind {
    /// Lower-case ASCII: `plain`.
    Plain,
    /// With a leading or trailing space: `spaces`.
    Spaces,
    /// Two neighbours whose names look the same, one composed (NFC), the other decomposed (NFD):
    /// `twins`.
    Twins,
    /// Not UTF-8: `bytes`.
    Bytes,
    /// 255 bytes long: `long`.
    Long,
}

impl NameKind {
    pub(crate) const ALL: [NameKind; 5] = [
        NameKind::Plain,
        NameKind::Spaces,
        NameKind::Twins,
        NameKind::Bytes,
        NameKind::Long,
    ];

    pub(crate) const EXPECTED: &'static str =
        "plain, spaces, twins, bytes, long or all, joined by commas";

    fn word(self) -> &'static str {
        match self {
            NameKind::Plain => "plain",
            NameKind::Spaces => "spaces",
            NameKind::Twins => "twins",
            NameKind::Bytes => "bytes",
            NameKind::Long => "long",
        }
    }

    pub(crate) fn parse_list(text: &str) -> Option<Vec<NameKind>> {
        if text == "all" {
            return Some(NameKind::ALL.to_vec());
        }
        let find = |word: &str| NameKind::ALL.into_iter().find(|kind| kind.word() == word);
        text.split(',').map(find).collect()
    }

    pub(crate) fn show_list(kinds: &[NameKind]) -> String {
        let words: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
        words.join(",")
    }
}

const WORDS: [&str; 8] = [
    "notes", "report", "budget", "photos", "invoice", "archive", "draft", "backup",
];
const ENDINGS: [&str; 4] = [".txt", ".pdf", ".jpg", ".dat"];
const LONGEST: usize = 255;

pub(super) fn name(spec: &TreeSpec, node: &Node) -> Vec<u8> {
    if node.depth() == 0 {
        return Vec::new();
    }
    let (purpose, is_file) = match node.kind() {
        Kind::Folder => (Purpose::FolderName, false),
        Kind::File => (Purpose::FileName, true),
    };
    let random = word(derive(node.parent(), purpose), node.index() / 2);
    let kind = pick(&spec.names, random).unwrap_or(NameKind::Plain);
    // A word of its own, so that extra nodes never collide with names of the source.
    let stem = match node.difference() {
        Difference::Extra => "extra",
        _ => pick(&WORDS, random >> 16).unwrap_or("notes"),
    };
    let ending = match is_file {
        true => pick(&ENDINGS, random >> 32).unwrap_or(".txt"),
        false => "",
    };
    decorate(kind, stem, node.index(), ending, random >> 63 == 1)
}

fn decorate(kind: NameKind, stem: &str, index: u64, ending: &str, in_front: bool) -> Vec<u8> {
    let plain = format!("{stem}-{index}{ending}");
    match kind {
        NameKind::Plain => plain.into_bytes(),
        NameKind::Spaces if in_front => format!(" {plain}").into_bytes(),
        NameKind::Spaces => format!("{plain} ").into_bytes(),
        NameKind::Twins => {
            let accent = if index.is_multiple_of(2) {
                "\u{e9}"
            } else {
                "e\u{301}"
            };
            format!("{stem}{accent}-{}{ending}", index & !1).into_bytes()
        }
        NameKind::Bytes => {
            let mut name = format!("{stem}-{index}-").into_bytes();
            name.extend([0xff, 0xfe, 0xc3, 0x28]);
            name.extend(ending.bytes());
            name
        }
        NameKind::Long => {
            let mut name = format!("{stem}-{index}-").into_bytes();
            name.resize(LONGEST - ending.len(), b'x');
            name.extend(ending.bytes());
            name
        }
    }
}

/// The possible indices of a node with this name: the number in it or, for the second of twins, the
/// next.
pub(super) fn numbers(name: &[u8]) -> Option<impl Iterator<Item = u64>> {
    let hyphen = name.iter().position(|&b| b == b'-')?;
    let rest = &name[hyphen + 1..];
    let length = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let number: u64 = std::str::from_utf8(&rest[..length]).ok()?.parse().ok()?;
    Some([Some(number), number.checked_add(1)].into_iter().flatten())
}

fn pick<T: Copy>(from: &[T], random: u64) -> Option<T> {
    let index = (random & 0xffff).checked_rem(from.len() as u64)?;
    from.get(index as usize).copied()
}
