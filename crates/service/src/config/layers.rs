//! Merges flags over environment over file, and resolves the key that each of them sets.

use super::files::{self, Content, LegacyKey};
use super::node::{Node, Table, Value, put};
use super::origin::Origin;
use super::problem::{Problem, suggest};
use super::section::{Key, SectionSpec};
use super::sources::Sources;

/// All sources merged into one tree.
#[derive(Default)]
pub(super) struct Layers {
    pub(super) tree: Table,
    pub(super) errors: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// Whether the file is a predecessor's; unknown keys are then warnings.
    pub(super) legacy: bool,
    /// Whether the file is malformed; its content is then discarded.
    pub(super) unreadable: bool,
}

const PREFIX: &str = "HEADWORKS_";

impl Layers {
    pub(super) fn read(sections: &[SectionSpec], sources: &Sources) -> Layers {
        let mut layers = Layers::default();
        layers.read_file(sections, sources);
        layers.read_env(sections, sources);
        layers.read_flags(sections, sources);
        layers.read_fallbacks(sections, sources);
        layers
    }

    fn read_file(&mut self, sections: &[SectionSpec], sources: &Sources) {
        let Some(path) = sources.path() else { return };
        let (content, problems) = match &sources.text {
            Some(text) => files::parse(path, text),
            None => files::read(path),
        };
        self.unreadable = !problems.is_empty();
        self.errors.extend(problems);
        // A half-parsed file would produce misleading follow-up errors.
        match content {
            _ if self.unreadable => {}
            Content::Sections(table) => self.merge_sections(sections, table),
            Content::Legacy(keys) => {
                self.legacy = true;
                for key in keys {
                    self.merge_legacy(sections, key);
                }
            }
        }
    }

    fn merge_sections(&mut self, sections: &[SectionSpec], table: Table) {
        for (name, node) in table {
            if sections.iter().any(|section| section.name == name) {
                self.tree.insert(name, node);
                continue;
            }
            let is_table = matches!(node.value, Value::Table(_));
            let what = if is_table {
                "unknown section"
            } else {
                "key outside a section"
            };
            let remedy = if is_table {
                suggest(&name, &names(sections))
            } else {
                suggest_section(sections, &name)
            };
            self.errors
                .push(Problem::new(node.origin, name, what).remedy(remedy));
        }
    }

    fn merge_legacy(&mut self, sections: &[SectionSpec], key: LegacyKey) {
        if let (None, Some(section), Value::Table(table)) = (
            &key.header,
            find_section(sections, &key.name),
            &key.node.value,
        ) {
            for (name, node) in table {
                let (header, name) = (Some(section.name.to_owned()), name.clone());
                self.merge_legacy(
                    sections,
                    LegacyKey {
                        header,
                        name,
                        node: node.clone(),
                    },
                );
            }
            return;
        }
        if let Some((section, name)) = find_legacy(sections, &key) {
            let before = self.tree.get(section);
            if let Some(before) = before.and_then(|node| node.at(&[name.to_owned()])) {
                let remedy = format!("the value at {} is used", key.node.origin);
                let warning = Problem::new(before.origin.clone(), key.name, "duplicate key");
                self.warnings.push(warning.remedy(remedy));
            }
            put(&mut self.tree, &[section, name], key.node);
        } else {
            let warning = Problem::new(key.node.origin, key.name, "unknown key");
            self.warnings.push(warning.remedy("ignored"));
        }
    }

    fn read_env(&mut self, sections: &[SectionSpec], sources: &Sources) {
        let alias = |name: &str| {
            let mut keys = sections.iter().flat_map(|section| section.keys);
            keys.any(|key| key.env.contains(&name))
        };
        for name in &sources.unreadable_env {
            if path_of(name).is_some() || alias(name) {
                let origin = Origin::Env(name.clone());
                let problem = Problem::new(origin, "", "the value is not valid Unicode");
                self.errors.push(problem.remedy("set it to UTF-8 text"));
            }
        }
        // Aliases first, so that `HEADWORKS_…` variables override them.
        for section in sections {
            for key in section.keys {
                let set = sources
                    .env
                    .iter()
                    .filter(|(name, _)| key.env.contains(&name.as_str()));
                for (name, value) in set {
                    let node = Node::text(Origin::Env(name.clone()), value);
                    put(&mut self.tree, &[section.name, key.name], node);
                }
            }
        }
        for (name, value) in &sources.env {
            let Some(path) = path_of(name) else {
                continue;
            };
            let origin = Origin::Env(name.clone());
            self.set_path(
                sections,
                &path.to_lowercase(),
                "__",
                Node::text(origin, value),
            );
        }
    }

    fn read_flags(&mut self, sections: &[SectionSpec], sources: &Sources) {
        for setting in &sources.flags {
            let origin = Origin::Flag(setting.flag.clone());
            self.set_path(
                sections,
                &setting.key,
                ".",
                Node::text(origin, &setting.value),
            );
        }
    }

    /// Adds the values that apply if no other source sets the key.
    fn read_fallbacks(&mut self, sections: &[SectionSpec], sources: &Sources) {
        if sources.path().is_none() {
            for (key, value) in &sources.without_file {
                self.put_if_unset(sections, key, Node::text(Origin::NoFile, value));
            }
        }
        for (key, name) in &sources.beside {
            let path = sources.directory().join(name);
            // Only a missing file is skipped. Any other failure is reported when the file is read.
            let missing = std::fs::symlink_metadata(&path)
                .is_err_and(|cause| cause.kind() == std::io::ErrorKind::NotFound);
            if let (false, Some(path)) = (missing, path.to_str()) {
                self.put_if_unset(sections, key, Node::text(Origin::Default, path));
            }
        }
    }

    fn put_if_unset(&mut self, sections: &[SectionSpec], key: &str, node: Node) {
        let steps: Vec<&str> = key.split('.').collect();
        let Some(section) = find_section(sections, steps[0]) else {
            return;
        };
        let below: Vec<String> = steps[1..].iter().map(|&step| step.to_owned()).collect();
        let written = self.tree.get(section.name);
        // A section that is not a table is reported as an error later, so it stays as written.
        let unset = written.is_none_or(|section| {
            matches!(section.value, Value::Table(_)) && section.at(&below).is_none()
        });
        if unset {
            put(&mut self.tree, &steps, node);
        }
    }

    fn set_path(&mut self, sections: &[SectionSpec], path: &str, separator: &str, node: Node) {
        let steps: Vec<&str> = path.split(separator).collect();
        match find_section(sections, steps[0]) {
            Some(_) if steps.len() > 1 && steps.iter().all(|step| !step.is_empty()) => {
                put(&mut self.tree, &steps, node);
            }
            Some(section) => {
                let problem = Problem::new(node.origin, path, "names a section without a key");
                self.errors
                    .push(problem.remedy(suggest("", &key_names(section.keys))));
            }
            None => {
                let problem = Problem::new(node.origin, steps[0], "unknown section");
                self.errors
                    .push(problem.remedy(suggest(steps[0], &names(sections))));
            }
        }
    }
}

/// Returns `TRACKER__QUEUE_SIZE` for `HEADWORKS_TRACKER__QUEUE_SIZE`.
fn path_of(variable: &str) -> Option<&str> {
    let path = variable.strip_prefix(PREFIX)?;
    path.contains("__").then_some(path)
}

fn names(sections: &[SectionSpec]) -> Vec<&'static str> {
    sections.iter().map(|section| section.name).collect()
}

fn key_names(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}

/// Suggests the section that a key outside any section belongs to.
fn suggest_section(sections: &[SectionSpec], key: &str) -> String {
    match sections.iter().find(|section| section.key(key).is_some()) {
        Some(section) => format!("put it under [{}]", section.name),
        None => format!("put it under one of [{}]", names(sections).join("], [")),
    }
}

fn find_section<'a>(sections: &'a [SectionSpec], name: &str) -> Option<&'a SectionSpec> {
    sections.iter().find(|section| section.name == name)
}

/// Resolves a predecessor's key: by alias, or by native name under a native header.
fn find_legacy(
    sections: &[SectionSpec],
    legacy: &LegacyKey,
) -> Option<(&'static str, &'static str)> {
    let own = legacy.header.as_deref().and_then(|header| {
        let section = find_section(sections, header)?;
        Some((section.name, section.key(&legacy.name)?.name))
    });
    own.or_else(|| {
        let name = legacy.name.as_str();
        sections.iter().find_map(|section| {
            let key = section.keys.iter().find(|key| key.file.contains(&name))?;
            Some((section.name, key.name))
        })
    })
}
