//! Name resolution and range checks.

use super::super::amount::{DurationValue, Name, Names};
use super::super::location::InvalidKey;
use super::super::model::SimulatedTarget;
use super::Checked;
use super::targets::current_name;
use headworks_core::Class;
use std::collections::HashMap;
use std::time::Duration;

/// Maximum count of anything; a larger number is taken for a mistake.
const MAX_COUNT: u64 = 1_000_000;

/// Maximum length of a name in bytes: a group may have a million members.
const LONGEST: usize = 200;

/// Assigns a number to each name.
#[derive(Default)]
pub(super) struct Interner {
    pub(super) names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Interner {
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The numbers of `count` members of a group, or of the name alone.
    pub(super) fn group(&mut self, name: &str, count: Option<u64>) -> Checked<Vec<u32>> {
        match count {
            None => Ok(vec![self.number(name)]),
            Some(0) => Err(InvalidKey::new(
                "flows",
                "must be at least 1; leave it out for one",
            )),
            Some(count) => {
                let count = check_max("flows", count)?;
                check_max("flows", count + self.names.len() as u64)?;
                Ok((1..=count).map(|n| self.number(&member(name, n))).collect())
            }
        }
    }
}

pub(super) fn member(group: &str, number: u64) -> String {
    format!("{group}-{number}")
}

/// Checks a name.
pub(super) fn check_name(key: &str, name: &str) -> Checked<()> {
    if name.is_empty() {
        return Err(InvalidKey::new(key, "is empty; write a name"));
    }
    if name.len() > LONGEST {
        let problem = format!(
            "is {} bytes long; at most {LONGEST} are possible",
            name.len()
        );
        return Err(InvalidKey::new(key, problem));
    }
    check_printable(key, name)
}

/// Rejects control characters, which a terminal would interpret.
pub(super) fn check_printable(key: &str, words: &str) -> Checked<()> {
    if let Some(character) = words.chars().find(|character| character.is_control()) {
        let problem = format!(
            "contains a control character ({}); remove it",
            character.escape_default()
        );
        return Err(InvalidKey::new(key, problem));
    }
    Ok(())
}

/// Checks that a duration is not zero.
pub(super) fn nonzero_duration(
    key: &str,
    length: Option<DurationValue>,
) -> Checked<Option<Duration>> {
    match length {
        Some(DurationValue(length)) if length.is_zero() => {
            let problem = "must not be zero; write \"5s\", or leave it out";
            Err(InvalidKey::new(key, problem))
        }
        length => Ok(length.map(|length| length.0)),
    }
}

pub(super) fn check_max(key: &str, value: u64) -> Checked<u64> {
    if value <= MAX_COUNT {
        return Ok(value);
    }
    Err(InvalidKey::new(
        key,
        format!("{value} is too many; the maximum is {MAX_COUNT}"),
    ))
}

pub(super) fn positive(key: &str, value: f64) -> Checked<f64> {
    if value.is_finite() && value > 0.0 && value <= 1e12 {
        return Ok(value);
    }
    Err(InvalidKey::new(
        key,
        format!("{value} is out of range; write a number above 0, at most 1e12"),
    ))
}

pub(super) fn check_fraction(key: &str, value: Option<f64>) -> Checked<f64> {
    match value {
        None => Ok(0.0),
        Some(value) if (0.0..=1.0).contains(&value) => Ok(value),
        Some(value) => Err(InvalidKey::new(
            key,
            format!("{value} is not a fraction; write a number from 0 to 1, such as 0.02"),
        )),
    }
}

/// Resolves the names of classes and targets.
pub(super) struct Lookup<'a> {
    pub(super) classes: &'a [String],
    pub(super) targets: &'a [SimulatedTarget],
}

impl Lookup<'_> {
    pub(super) fn class(&self, key: &str, name: &Name) -> Checked<Class> {
        let count = self.classes.len();
        let index = match name {
            Name::Number(number) => usize::try_from(*number).ok().filter(|n| *n < count),
            Name::Word(word) => self.classes.iter().position(|class| class == word),
        };
        let none = || {
            InvalidKey::new(
                key,
                format!(
                    "unknown class `{name}`; valid: 0 to {}, named {}",
                    count - 1,
                    self.classes.join(", ")
                ),
            )
        };
        index.map(|index| Class(index as u8)).ok_or_else(none)
    }

    pub(super) fn classes(&self, key: &str, names: Option<&Names>) -> Checked<Vec<Class>> {
        let Some(Names(names)) = names else {
            return Ok(vec![Class(0)]);
        };
        if let [Name::Word(all)] = names.as_slice()
            && all == "all"
        {
            return Ok((0..self.classes.len()).map(|c| Class(c as u8)).collect());
        }
        if names.is_empty() {
            return Err(InvalidKey::new(
                key,
                "is an empty list; name a class, or leave it out for 0",
            ));
        }
        let mut classes = Vec::new();
        for name in names {
            let class = self.class(key, name)?;
            if classes.contains(&class) {
                return Err(InvalidKey::new(key, format!("`{name}` is named twice")));
            }
            classes.push(class);
        }
        Ok(classes)
    }

    /// Resolves groups and single targets; all targets if no name is given.
    pub(super) fn targets(&self, key: &str, names: Option<&Names>) -> Checked<Vec<u32>> {
        let Some(Names(names)) = names else {
            return Ok((0..self.targets.len() as u32).collect());
        };
        let mut all = Vec::new();
        for name in names {
            let before = all.len();
            let wanted = name.to_string();
            let wanted = current_name(&wanted, self.targets);
            all.extend((0..self.targets.len() as u32).filter(|index| {
                let target = &self.targets[*index as usize];
                target.group == wanted || target.name == wanted
            }));
            if all.len() == before {
                return Err(InvalidKey::new(
                    key,
                    format!("unknown target `{name}`; name one of [[targets]]"),
                ));
            }
        }
        all.sort_unstable();
        all.dedup();
        if all.is_empty() {
            return Err(InvalidKey::new(
                key,
                "is an empty list; name a target, or leave it out for all",
            ));
        }
        Ok(all)
    }
}
