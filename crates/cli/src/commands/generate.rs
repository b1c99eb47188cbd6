//! `headworks generate`: completions and the manual page, generated from the command line
//! definition.

use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::Shell;
use headworks_service::exit::Exit;

use crate::arguments::{Arguments, Common};
use crate::commands::reject_config_flags;
use crate::report;

#[derive(Debug, Args)]
pub(crate) struct GenerateCommand {
    /// The file to generate.
    what: Artifact,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Artifact {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
    /// The manual page, in roff.
    Man,
}

pub(crate) fn run(command: &GenerateCommand, common: &Common) -> Result<Exit> {
    reject_config_flags(common, "generate")?;
    let text = match command.what {
        Artifact::Bash => completions(Shell::Bash),
        Artifact::Elvish => completions(Shell::Elvish),
        Artifact::Fish => completions(Shell::Fish),
        Artifact::Powershell => completions(Shell::PowerShell),
        Artifact::Zsh => completions(Shell::Zsh),
        Artifact::Man => manual()?,
    };
    report::data(&String::from_utf8(text)?)?;
    Ok(Exit::Done)
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::with_flags(), "headworks", &mut text);
    text
}

/// The manual page of the program followed by those of its commands, as one file to install.
fn manual() -> Result<Vec<u8>> {
    let mut program = Arguments::with_flags();
    program.build();
    let mut text = Vec::new();
    clap_mangen::Man::new(program.clone()).render(&mut text)?;
    for command in program
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        let title = format!(".SH \"HEADWORKS {}\"\n", command.get_name().to_uppercase());
        text.extend(title.into_bytes());
        let page = clap_mangen::Man::new(command.clone());
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
    }
    Ok(text)
}
