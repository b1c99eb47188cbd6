//! The description of a tree and its compact text form.

use super::NameKind;
use crate::units::parse_number;
use crate::{Fraction, Spread, SynthError};
use std::fmt;
use std::str::FromStr;

/// One of the two trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The tree as described.
    #[default]
    Source,
    /// The same with a part missing, different or extra.
    Destination,
}

/// The parameters of a tree, written as a query string in which every key is optional.
///
/// ```
/// use headworks_synth::TreeSpec;
///
/// let spec = "depth=4&dirs=0-20&files=100&size=1k~64k&names=plain,twins&missing=2.5";
/// let spec: TreeSpec = spec.parse()?;
/// assert_eq!(spec.depth, 4);
/// assert_eq!(spec.to_string().parse(), Ok(spec));
///
/// let wrong = "depht=4".parse::<TreeSpec>().unwrap_err();
/// assert_eq!(wrong.to_string(), "unknown key `depht`; did you mean `depth`?");
/// # Ok::<(), headworks_synth::SynthError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub struct TreeSpec {
    /// The seed. `seed=7`, default 0.
    pub seed: u64,
    /// Levels of folders below the root. `depth=4`, default 3.
    pub depth: u32,
    /// Subfolders per folder; folders of the last level have none. `dirs=10`, default 10.
    pub dirs: Spread,
    /// Files per folder. `files=100`, default 10.
    pub files: Spread,
    /// Bytes per file. `size=1k-64k`, default `1k~64k`.
    pub size: Spread,
    /// The kinds of names, all equally likely. `names=plain,spaces`, default `plain`; `all` for
    /// all.
    pub names: Vec<NameKind>,
    /// Percentage of files and folders missing at the destination, a folder with everything below
    /// it. `missing=5`, default 0.
    pub missing: Fraction,
    /// Percentage of the other files that differ at the destination. `different=5`, default 0.
    pub different: Fraction,
    /// Files and folders that only the destination has, as a percentage of those of the source.
    /// `extra=5`, default 0.
    pub extra: Fraction,
    /// The side. `side=destination`, default `source`.
    pub side: Side,
}

impl Default for TreeSpec {
    fn default() -> Self {
        TreeSpec {
            seed: 0,
            depth: 3,
            dirs: Spread::Constant(10),
            files: Spread::Constant(10),
            size: Spread::Log(1 << 10, 64 << 10),
            names: vec![NameKind::Plain],
            missing: Fraction::NONE,
            different: Fraction::NONE,
            extra: Fraction::NONE,
            side: Side::Source,
        }
    }
}

const KEYS: [&str; 10] = [
    "seed",
    "depth",
    "dirs",
    "files",
    "size",
    "names",
    "missing",
    "different",
    "extra",
    "side",
];

impl TreeSpec {
    /// The mean number of folders and files of the source over all seeds. It is exact if `dirs` and
    /// `files` are constant and the numbers are not astronomical.
    #[must_use]
    pub fn expected_nodes(&self) -> (f64, f64) {
        let per_folder = self.dirs.mean();
        let folders = if self.depth <= 1024 {
            let levels = (0..self.depth).scan(1.0, |level, _| {
                *level *= per_folder;
                Some(*level)
            });
            1.0 + levels.sum::<f64>()
        } else if (per_folder - 1.0).abs() < 1e-9 {
            1.0 + f64::from(self.depth)
        } else {
            let last = crate::math::pow(per_folder, 1.0 + f64::from(self.depth));
            (last - 1.0) / (per_folder - 1.0)
        };
        (folders, folders * self.files.mean())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SynthError> {
        let bad = |expected| SynthError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let spread = || Spread::parse(value).ok_or_else(|| bad(Spread::EXPECTED));
        let share = || Fraction::parse(value).ok_or_else(|| bad(Fraction::EXPECTED));
        match key {
            "seed" => self.seed = value.parse().map_err(|_| bad("a whole number, as in 7"))?,
            "depth" => {
                let depth = parse_number(value).and_then(|n| u32::try_from(n).ok());
                self.depth = depth.ok_or_else(|| bad("a whole number of levels, as in 4"))?;
            }
            "dirs" => self.dirs = spread()?,
            "files" => self.files = spread()?,
            "size" => self.size = spread()?,
            "missing" => self.missing = share()?,
            "different" => self.different = share()?,
            "extra" => self.extra = share()?,
            "names" => {
                self.names = NameKind::parse_list(value).ok_or_else(|| bad(NameKind::EXPECTED))?;
            }
            "side" => {
                self.side = match value {
                    "source" => Side::Source,
                    "destination" => Side::Destination,
                    _ => return Err(bad("source or destination")),
                }
            }
            _ => return Err(unknown(key)),
        }
        Ok(())
    }
}

fn unknown(key: &str) -> SynthError {
    let nearest = KEYS.into_iter().min_by_key(|right| distance(key, right));
    SynthError::UnknownKey {
        key: key.to_owned(),
        nearest: nearest.unwrap_or("seed"),
    }
}

/// The Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let change = corner + usize::from(letter != *other);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

impl FromStr for TreeSpec {
    type Err = SynthError;

    fn from_str(text: &str) -> Result<Self, SynthError> {
        let mut spec = TreeSpec::default();
        let mut seen: Vec<&str> = Vec::new();
        for piece in text.split('&').filter(|piece| !piece.is_empty()) {
            let Some((key, value)) = piece.split_once('=') else {
                let piece = piece.to_owned();
                return Err(SynthError::NotASetting { piece });
            };
            if seen.contains(&key) {
                let key = key.to_owned();
                return Err(SynthError::Repeated { key });
            }
            spec.set(key, value)?;
            seen.push(key);
        }
        Ok(spec)
    }
}

impl TryFrom<String> for TreeSpec {
    type Error = SynthError;

    fn try_from(text: String) -> Result<Self, SynthError> {
        text.parse()
    }
}

impl From<TreeSpec> for String {
    fn from(spec: TreeSpec) -> String {
        spec.to_string()
    }
}

impl fmt::Display for TreeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TreeSpec {
            seed,
            depth,
            dirs,
            files,
            size,
            ..
        } = self;
        write!(
            f,
            "seed={seed}&depth={depth}&dirs={dirs}&files={files}&size={size}"
        )?;
        if self.names != [NameKind::Plain] {
            write!(f, "&names={}", NameKind::show_list(&self.names))?;
        }
        let drift = [
            ("missing", self.missing),
            ("different", self.different),
            ("extra", self.extra),
        ];
        for (key, share) in drift {
            if share != Fraction::NONE {
                write!(f, "&{key}={share}")?;
            }
        }
        match self.side {
            Side::Source => Ok(()),
            Side::Destination => write!(f, "&side=destination"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::tests::{any_share, any_spread};
    use proptest::prelude::*;

    prop_compose! {
        fn any_spec()(
            seed in any::<u64>(), depth in any::<u32>(), spreads in prop::array::uniform3(any_spread()),
            names in prop::collection::vec(prop::sample::select(NameKind::ALL.as_slice()), 1..6),
            shares in prop::array::uniform3(any_share()), destination in any::<bool>(),
        ) -> TreeSpec {
            let [dirs, files, size] = spreads;
            let [missing, different, extra] = shares;
            let side = if destination { Side::Destination } else { Side::Source };
            TreeSpec { seed, depth, dirs, files, size, names, missing, different, extra, side }
        }
    }

    proptest! {
        #[test]
        fn a_spec_survives_its_text_form(spec in any_spec()) {
            prop_assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
            let json = serde_json::to_string(&spec).unwrap();
            prop_assert_eq!(serde_json::from_str::<TreeSpec>(&json).unwrap(), spec);
        }

        #[test]
        fn no_text_panics(text in "[a-z0-9=&~%,.-]{0,40}|.{0,20}") {
            let _ = text.parse::<TreeSpec>();
        }
    }

    #[test]
    fn errors_name_the_key_and_the_way_out() {
        let error = |text: &str| text.parse::<TreeSpec>().unwrap_err().to_string();
        assert_eq!(
            error("seed"),
            "`seed` is not a setting; write key=value, joined by &"
        );
        assert_eq!(
            error("folders=3"),
            "unknown key `folders`; did you mean `files`?"
        );
        assert_eq!(
            error("seed=1&seed=2"),
            "duplicate key `seed`; remove one of them"
        );
        assert_eq!(
            error("size=64k-1k"),
            "invalid value `size=64k-1k`; expected a number (10), a range (1k-64k) or a range by doublings (1k~64k), the smaller first"
        );
        assert!(error("missing=101").contains("percent from 0 to 100"));
        assert!(error("names=odd").contains("plain, spaces, twins, bytes, long or all"));
    }

    #[test]
    fn expected_nodes_are_exact_for_constant_trees() {
        let spec: TreeSpec = "depth=3&dirs=4&files=2".parse().unwrap();
        assert_eq!(spec.expected_nodes(), (85.0, 170.0));
        let spec: TreeSpec = "depth=4294967295&dirs=1".parse().unwrap();
        assert_eq!(spec.expected_nodes().0, 4_294_967_296.0);
    }
}
