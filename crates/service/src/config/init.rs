//! The commented default configuration file.

use std::fmt::Write;

use super::schema::Schema;
use super::section::{Key, SectionSpec, lines};

impl Schema {
    /// Generates a file that sets every key to its default, with the documentation above it.
    ///
    /// ```
    /// let file = headworks_service::config::Schema::shared().init();
    /// assert!(file.contains("[admin]"));
    /// ```
    #[must_use]
    pub fn init(&self) -> String {
        let mut out = String::from(
            "# Headworks configuration.\n\
             #\n\
             # Every value below is the default; remove those you do not change. Flags override the\n\
             # environment (HEADWORKS_SECTION__KEY), which overrides this file.\n\
             # `headworks config show` prints the origin of each value.\n\
             # Paths are relative to this file.\n",
        );
        for section in self.sections() {
            write_section(&mut out, section);
        }
        out
    }
}

fn write_section(out: &mut String, section: &SectionSpec) {
    out.push('\n');
    for line in lines(section.doc) {
        comment(out, line);
    }
    let _ = writeln!(out, "[{}]", section.name);
    let defaults = (section.defaults)();
    for key in section.keys {
        out.push('\n');
        write_key(out, key, defaults.get(key.name));
    }
}

fn write_key(out: &mut String, key: &Key, default: Option<&toml::Value>) {
    for line in lines(key.doc) {
        comment(out, line);
    }
    let also: Vec<_> = key.env.iter().chain(key.flag).copied().collect();
    if !also.is_empty() {
        comment(out, &format!("Also: {}", also.join(", ")));
    }
    match (default, key.example) {
        (Some(value), None) => {
            let _ = writeln!(out, "{} = {value}", key.name);
        }
        (_, Some(example)) if example.starts_with('[') && example.contains('\n') => {
            for line in example.lines() {
                comment(out, line);
            }
        }
        (Some(value), Some(example)) => {
            comment(out, &format!("For example: {} = {example}", key.name));
            let _ = writeln!(out, "{} = {value}", key.name);
        }
        (None, Some(example)) => comment(out, &format!("{} = {example}", key.name)),
        (None, None) => comment(out, &format!("{} is not set", key.name)),
    }
}

fn comment(out: &mut String, line: &str) {
    let _ = if line.is_empty() {
        writeln!(out, "#")
    } else {
        writeln!(out, "# {line}")
    };
}
