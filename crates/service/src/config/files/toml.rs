//! TOML, with all syntax errors reported at once.

use std::path::PathBuf;
use std::sync::Arc;

use ::toml::de::{DeTable, DeValue, Error};

use crate::config::node::{Node, Table, Value};
use crate::config::origin::Origin;
use crate::config::problem::Problem;

/// Converts byte offsets to origins.
struct Lines<'a> {
    starts: Vec<usize>,
    origin: &'a dyn Fn(usize) -> Origin,
    problems: Vec<Problem>,
}

impl<'a> Lines<'a> {
    fn new(text: &str, origin: &'a dyn Fn(usize) -> Origin) -> Lines<'a> {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0)
            .chain(newlines.map(|(at, _)| at + 1))
            .collect();
        Lines {
            starts,
            origin,
            problems: Vec::new(),
        }
    }

    fn at(&self, offset: usize) -> Origin {
        (self.origin)(self.starts.partition_point(|start| *start <= offset))
    }

    fn table(&mut self, table: &DeTable<'_>) -> Table {
        let mut out = Table::new();
        for (key, value) in table {
            // The line of a list of tables is that of its first header.
            let origin = self.at(key.span().start);
            let value = self.value(value.get_ref(), &origin);
            out.insert(key.get_ref().to_string(), Node::new(origin, value));
        }
        out
    }

    fn value(&mut self, value: &DeValue<'_>, origin: &Origin) -> Value {
        match value {
            DeValue::String(text) => Value::Str(text.to_string()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(moment) => Value::Str(moment.to_string()),
            DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
                Ok(number) => Value::Int(number),
                Err(_) => self.out_of_range(origin),
            },
            DeValue::Float(n) => match n.as_str().parse() {
                Ok(number) => Value::Float(number),
                Err(_) => self.out_of_range(origin),
            },
            DeValue::Array(list) => {
                let mut out = Vec::with_capacity(list.len());
                for item in list {
                    let origin = self.at(item.span().start);
                    let value = self.value(item.get_ref(), &origin);
                    out.push(Node::new(origin, value));
                }
                Value::List(out)
            }
            DeValue::Table(table) => Value::Table(self.table(table)),
        }
    }

    fn out_of_range(&mut self, origin: &Origin) -> Value {
        let problem = Problem::new(origin.clone(), "", "number out of range");
        self.problems.push(problem.remedy("write a smaller one"));
        Value::Int(0)
    }

    /// Reports the message only: a snippet of the line could contain a secret.
    fn syntax(&mut self, error: &Error, text: &str, table: &DeTable<'_>) {
        let span = error.span().unwrap_or(0..0);
        let at = span.start;
        if let Some(key) = error
            .message()
            .starts_with("duplicate key")
            .then(|| text.get(span))
        {
            return self.duplicate(key.unwrap_or_default(), at, text, table);
        }
        let text = format!("not valid TOML: {}", error.message().replace('\n', ", "));
        self.problems.push(Problem::new(self.at(at), "", text));
    }
}

impl Lines<'_> {
    fn duplicate(&mut self, key: &str, at: usize, text: &str, table: &DeTable<'_>) {
        let key = key.trim_matches(['"', '\'']);
        let problem = Problem::new(self.at(at), key, "duplicate key");
        let first = first_of(key, at, text, table).map(|first| self.at(first));
        self.problems.push(match first {
            Some(first) => problem.remedy(format!("first defined at {first}; remove one of them")),
            None => problem.remedy("remove one of them"),
        });
    }
}

/// Finds the first occurrence of the key or header that is repeated at `at`. For a header it is the
/// same header, for a key the outermost key of that name under the same header.
fn first_of(key: &str, at: usize, text: &str, table: &DeTable<'_>) -> Option<usize> {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let again = header(text[line..].lines().next()?);
    if again.is_some() {
        let mut earlier = text[..line].split_inclusive('\n');
        let count = earlier.position(|line| header(line) == again)?;
        return Some(text.split_inclusive('\n').take(count).map(str::len).sum());
    }
    let section = text[..line].rfind("\n[").map_or(0, |end| end + 1);
    let mut found = Vec::new();
    collect(key, table, 0, &mut found);
    let under = found
        .into_iter()
        .filter(|(_, start)| (section..at).contains(start));
    let outermost = under.max_by_key(|(depth, start)| (std::cmp::Reverse(*depth), *start));
    outermost.map(|(_, start)| start)
}

/// The text between the brackets of a table header.
fn header(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    Some(name.trim())
}

/// Collects every key called `name`, with its depth and offset.
fn collect(name: &str, table: &DeTable<'_>, depth: usize, found: &mut Vec<(usize, usize)>) {
    for (key, value) in table {
        if key.get_ref() == name {
            found.push((depth, key.span().start));
        }
        if let DeValue::Table(inner) = value.get_ref() {
            collect(name, inner, depth + 1, found);
        }
        if let DeValue::Array(list) = value.get_ref() {
            let tables = list.iter().filter_map(|item| item.get_ref().as_table());
            tables.for_each(|inner| collect(name, inner, depth + 1, found));
        }
    }
}

pub(super) fn parse(path: &Arc<PathBuf>, text: &str) -> (Table, Vec<Problem>) {
    let origin = |line| Origin::line(path, line);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut lines = Lines::new(text, &origin);
    let nodes = lines.table(table.get_ref());
    for error in &errors {
        lines.syntax(error, text, table.get_ref());
    }
    (nodes, lines.problems)
}

/// Parses a TOML value from untyped text, such as an environment variable.
pub(in crate::config) fn value(text: &str, origin: &Origin) -> Option<Value> {
    let value = DeValue::parse(text).ok()?;
    let origin_of = |_| origin.clone();
    let mut lines = Lines::new(text, &origin_of);
    let value = lines.value(value.get_ref(), origin);
    lines.problems.is_empty().then_some(value)
}
