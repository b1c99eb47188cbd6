//! Generates a flag for every key of every section.
//!
//! `[admin] listen` becomes `--admin-listen`; the flag aliases of a key work as well.

use clap::{Arg, ArgMatches, Command};
use headworks_service::config::{Key, Schema, SectionSpec};

use crate::applications::APPLICATIONS;

/// A value given by a flag.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) flag: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Adds the flags of all sections to the command of one application. Those of the other
/// applications work, because one configuration may set all of them, but the help leaves them out.
pub(crate) fn add_for(command: Command, schema: &Schema, own: &str) -> Command {
    command.args(schema.sections().iter().flat_map(move |section| {
        let is_other = APPLICATIONS
            .iter()
            .any(|application| application.name == section.name && section.name != own);
        args(section).map(move |arg| arg.hide(is_other))
    }))
}

/// Adds the flags of all sections to `command`.
pub(crate) fn add(command: Command, schema: &Schema) -> Command {
    command.args(schema.sections().iter().flat_map(args))
}

/// Lets the flags of `own` work without the section name too.
pub(crate) fn with_short_names(mut command: Command, schema: &Schema, own: &str) -> Command {
    let own = schema
        .sections()
        .iter()
        .filter(|section| section.name == own);
    for (section, key) in own.flat_map(|own| own.keys.iter().map(move |key| (own, key))) {
        let short = key.name().replace('_', "-");
        command = command.mut_arg(id(section, key), |arg| arg.visible_alias(short));
    }
    command
}

fn args(section: &SectionSpec) -> impl Iterator<Item = Arg> {
    section.keys.iter().map(move |key| {
        let help = key.doc().collect::<Vec<_>>().join(" ");
        // The short help has the first sentence.
        let (first, _) = help.split_once(". ").unwrap_or((&help, ""));
        let mut arg = Arg::new(id(section, key))
            .long(long(section, key))
            .value_name("VALUE")
            .help(first.trim_end_matches('.').to_owned())
            .long_help(help)
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
