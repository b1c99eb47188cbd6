//! A program that is measured, and the commands of the programs.

use super::buckets;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Seconds spent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) wall: f64,
    pub(super) cpu: f64,
}

/// One program, with the settings that it may run with.
pub(super) struct Contender {
    pub(super) name: String,
    settings: Vec<Program>,
    pub(super) spent: Vec<Spent>,
}

impl Contender {
    pub(super) fn new(name: &str, settings: Vec<Program>) -> Contender {
        Contender {
            name: name.to_owned(),
            settings,
            spent: Vec::new(),
        }
    }

    /// Runs once. The first turn tries every setting and keeps the best.
    pub(super) fn run_once(&mut self, fresh: &impl Fn(), written: &Path) {
        let mut runs: Vec<(Spent, Program)> = Vec::new();
        for program in self.settings.drain(..) {
            fresh();
            program.prepare();
            sync(written);
            let spent = program.timed(written);
            runs.push((spent, program));
        }
        let best = runs
            .into_iter()
            .min_by(|(a, _), (b, _)| a.wall.total_cmp(&b.wall));
        if let Some((spent, program)) = best {
            self.spent.push(spent);
            self.settings.push(program);
        }
    }
}

/// A command line, and a command that must run before it.
pub(super) struct Program {
    before: Option<Vec<PathBuf>>,
    args: Vec<PathBuf>,
}

impl Program {
    pub(super) fn new(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Program {
        let args = args.into_iter().map(|arg| PathBuf::from(arg.as_ref()));
        Program {
            before: None,
            args: args.collect(),
        }
    }

    fn prepare(&self) {
        if let Some(before) = &self.before {
            start(before);
        }
    }

    pub(super) fn run(&self) {
        start(&self.args);
    }

    fn timed(&self, written: &Path) -> Spent {
        let (began, cpu) = (Instant::now(), children_cpu());
        self.run();
        sync(written);
        Spent {
            wall: began.elapsed().as_secs_f64(),
            cpu: children_cpu() - cpu,
        }
    }
}

fn start(args: &[PathBuf]) {
    let mut command = Command::new(&args[0]);
    command
        .args(&args[1..])
        .envs(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name, buckets::KEY)))
        .envs([("AWS_REGION", "us-east-1"), ("NO_PROXY", "127.0.0.1")])
        .stdout(Stdio::null());
    let status = command.stderr(Stdio::null()).status();
    let status = status.unwrap_or_else(|e| panic!("{} cannot be started: {e}", args[0].display()));
    assert!(status.success(), "{args:?} ended with {status}");
}

/// Makes everything on the filesystem of a path durable.
pub(super) fn sync(path: &Path) {
    let status = Command::new("sync").arg("-f").arg(path).status();
    assert!(status.is_ok_and(|status| status.success()), "sync -f works");
}

/// Returns the CPU time of all child processes that were waited for, in seconds.
fn children_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may contain spaces.
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: f64 = fields
        .skip(13)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// Returns a command that runs this program as `migrate --role ROLE`. Before a copy it makes a
/// plan, which is not timed.
pub(super) fn headworks(role: &str, from: &Path, to: &Path, state: &Path) -> Program {
    let this = std::env::current_exe().expect("this program is a file");
    let args = |role: &str| {
        let args = [
            "migrate".as_ref(),
            "--role".as_ref(),
            role.as_ref(),
            from,
            to,
            state,
        ];
        let args = args.map(Path::to_owned);
        std::iter::once(this.clone())
            .chain(args)
            .collect::<Vec<_>>()
    };
    Program {
        before: (role == "copy").then(|| args("plan")),
        args: args(role),
    }
}

pub(super) fn cp(from: &Path, to: &Path) -> Program {
    Program::new(["cp".as_ref(), "-a".as_ref(), from, to])
}

/// Appends a slash, with which rsync copies the contents of a folder.
fn inside(folder: &Path) -> PathBuf {
    folder.join("")
}

pub(super) fn rsync(flags: &[&str], from: &Path, to: &Path) -> Program {
    let args = std::iter::once("rsync").chain(flags.iter().copied());
    let args = args.map(PathBuf::from).chain([inside(from), inside(to)]);
    Program::new(args)
}

pub(super) fn rclone_check(rclone: &Path, checkers: usize, from: &Path, to: &Path) -> Program {
    let checkers = format!("--checkers={checkers}");
    let flags = ["check", "--size-only", "--config=/dev/null", &checkers].map(Path::new);
    Program::new([&[rclone][..], &flags, &[from, to]].concat())
}

pub(super) fn rclone_copy(rclone: &Path, transfers: usize, from: &Path, to: &Path) -> Program {
    let transfers = format!("--transfers={transfers}");
    let flags = ["copy", "--metadata", "--config=/dev/null", &transfers].map(Path::new);
    Program::new([&[rclone][..], &flags, &[from, to]].concat())
}
