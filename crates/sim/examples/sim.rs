//! Runs a scenario, or replays a trace: `sim FILE.toml|NAME [--seed N] [--json] [--html out.html] [--trace requests.csv] [--list]`.
//!
//! Exit codes: 0 all is as expected, 2 something is wrong with what was given, 4 an expectation was not met.

use headworks_sim::{Report, Scenario, replay, run, shipped_names};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Default)]
struct Wish {
    scenario: Option<String>,
    seed: Option<u64>,
    json: bool,
    html: Option<PathBuf>,
    trace: Option<PathBuf>,
    list: bool,
}

fn main() -> ExitCode {
    let wish = match wish(std::env::args().skip(1)) {
        Ok(wish) => wish,
        Err(problem) => return wrong(&problem),
    };
    if wish.list {
        for name in shipped_names() {
            let about = Scenario::shipped(name).map_or_else(String::new, |s| s.about().to_owned());
            println!("{name:<20} {about}");
        }
        return ExitCode::SUCCESS;
    }
    match report(&wish) {
        Ok(report) => show(&wish, &report),
        Err(problem) => wrong(&problem),
    }
}

fn wish(mut args: impl Iterator<Item = String>) -> Result<Wish, String> {
    let mut wish = Wish::default();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--seed" => {
                let seed = value()?;
                wish.seed = Some(
                    seed.parse()
                        .map_err(|_| format!("--seed {seed}: not a number"))?,
                );
            }
            "--json" => wish.json = true,
            "--html" => wish.html = Some(value()?.into()),
            "--trace" => wish.trace = Some(value()?.into()),
            "--list" => wish.list = true,
            _ if arg.starts_with('-') => return Err(format!("unknown option {arg}")),
            _ => wish.scenario = Some(arg),
        }
    }
    Ok(wish)
}

fn report(wish: &Wish) -> Result<Report, String> {
    let scenario = match (&wish.scenario, &wish.trace) {
        (Some(name), _) => Scenario::open(name).map_err(|error| error.to_string())?,
        (None, Some(_)) => Scenario::for_replay(),
        (None, None) => {
            return Err(
                "give a scenario file or the name of a shipped one; --list shows them".to_owned(),
            );
        }
    };
    let seed = wish.seed.unwrap_or(scenario.seed());
    match &wish.trace {
        Some(trace) => replay(trace, &scenario, seed).map_err(|error| error.to_string()),
        None => Ok(run(&scenario, seed)),
    }
}

fn show(wish: &Wish, report: &Report) -> ExitCode {
    if let Some(path) = &wish.html
        && let Err(error) = std::fs::write(path, report.to_html())
    {
        return wrong(&format!("{}: cannot be written: {error}", path.display()));
    }
    match wish.json {
        true => println!("{}", report.to_json()),
        false => print!("{}", report.to_text()),
    }
    match report.is_as_expected() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(4),
    }
}

fn wrong(problem: &str) -> ExitCode {
    eprintln!("sim: {problem}");
    ExitCode::from(2)
}
