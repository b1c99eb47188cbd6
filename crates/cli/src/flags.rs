//! Generates a flag for every key of every section.
//!
//! `[admin] listen` becomes `--admin-listen`; the flag aliases of a key work as well.

use clap::{Arg, ArgMatches, Command};
use headworks_service::config::{Key, Schema, SectionSpec};

/// A value given by a flag.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) flag: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Adds the flags of all sections to `command`.
pub(crate) fn add(command: Command, schema: &Schema) -> Command {
    command.args(schema.sections().iter().flat_map(args))
}

/// Adds the flags of all sections; those of `own` also work without the section name.
pub(crate) fn add_with_short_names(command: Command, schema: &Schema, own: &str) -> Command {
    let args = schema.sections().iter().flat_map(move |section| {
        args(section)
            .zip(section.keys)
            .map(move |(arg, key)| match section.name == own {
                true => arg.visible_alias(key.name().replace('_', "-")),
                false => arg,
            })
    });
    command.args(args)
}

fn args(section: &SectionSpec) -> impl Iterator<Item = Arg> {
    section.keys.iter().map(move |key| {
        let mut arg = Arg::new(id(section, key))
            .long(long(section, key))
            .value_name("VALUE")
            .help(key.doc().next().unwrap_or_default())
            .long_help(key.doc().collect::<Vec<_>>().join(" "))
            .help_heading(format!("Configuration [{}]", section.name));
        for alias in key.flags() {
            arg = match alias.strip_prefix("--") {
                Some(name) => arg.visible_alias(name),
                None => arg.visible_short_aliases(alias.trim_start_matches('-').chars()),
            };
        }
        arg
    })
}

/// Collects the values of the flags of the innermost subcommand.
pub(crate) fn collect_settings(matches: &ArgMatches, schema: &Schema) -> Vec<Setting> {
    if let Some((_, inner)) = matches.subcommand() {
        return collect_settings(inner, schema);
    }
    let keys = schema.sections().iter();
    let keys = keys.flat_map(|section| section.keys.iter().map(move |key| (section, key)));
    let setting = |(section, key)| {
        let value = matches.try_get_one::<String>(&id(section, key)).ok()??;
        Some(Setting {
            flag: format!("--{}", long(section, key)),
            key: id(section, key),
            value: value.clone(),
        })
    };
    keys.filter_map(setting).collect()
}

fn id(section: &SectionSpec, key: &Key) -> String {
    format!("{}.{}", section.name, key.name())
}

fn long(section: &SectionSpec, key: &Key) -> String {
    format!("{}-{}", section.name, key.name()).replace('_', "-")
}
