//! What `headworks migrate` can be told.

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Walk both trees and compare them. Changes nothing at either side.
    Plan {
        #[command(flatten)]
        places: Places,
        #[command(flatten)]
        filters: FilterFlags,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Show what would happen, or change it.
    Review {
        #[command(flatten)]
        state: StateFlag,
        /// Every entry and its status, as JSON lines.
        #[arg(long, conflicts_with = "csv")]
        json: bool,
        /// Every entry and its status, as CSV.
        #[arg(long)]
        csv: bool,
        /// Leave out what matches: a name at any depth, or a path with slashes.
        #[arg(long, value_name = "PATTERN")]
        exclude: Vec<String>,
        /// Take in again what `--exclude` left out.
        #[arg(long, value_name = "PATTERN")]
        include: Vec<String>,
        /// Copy what matches first.
        #[arg(long, value_name = "PATTERN")]
        prioritise: Vec<String>,
    },
    /// Copy what is missing or different. Can be cut off anywhere and run again.
    Copy {
        #[command(flatten)]
        state: StateFlag,
        #[command(flatten)]
        copy: CopyFlags,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Look at everything at the destination again.
    Verify {
        #[command(flatten)]
        state: StateFlag,
        /// Read every file, and compare hashes: the recorded one, or the source's.
        #[arg(long)]
        hash: bool,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Plan, copy and verify. Run again it resumes; after that it copies what changed since.
    Run {
        #[command(flatten)]
        places: Places,
        #[command(flatten)]
        filters: FilterFlags,
        #[command(flatten)]
        copy: CopyFlags,
        /// Finish the plan before anything is written. Without it, copying begins while a long plan
        /// goes on.
        #[arg(long)]
        plan_first: bool,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Where the job stands.
    Status {
        #[command(flatten)]
        state: StateFlag,
        /// For machines.
        #[arg(long)]
        json: bool,
    },
    /// Hold a job, also one that another process runs.
    Pause(StateFlag),
    /// Let a held job go on.
    Resume(StateFlag),
    /// Try again what failed.
    Retry(StateFlag),
    /// What became of everything.
    Report {
        #[command(flatten)]
        state: StateFlag,
        /// For machines.
        #[arg(long, conflicts_with_all = ["manifest", "csv"])]
        json: bool,
        /// The failures as CSV.
        #[arg(long, conflicts_with = "manifest")]
        csv: bool,
        /// The known hashes, to be checked with `sha256sum -c` in the destination's root.
        #[arg(long)]
        manifest: bool,
    },
    /// What happened, oldest first.
    Log(StateFlag),
    /// Everything known about one path.
    Explain {
        /// The path below the root.
        path: OsString,
        #[command(flatten)]
        state: StateFlag,
    },
}

#[derive(Debug, Args)]
pub(crate) struct StateFlag {
    /// The state file.
    #[arg(long, value_name = "FILE")]
    pub(crate) state: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Places {
    /// A path, or a URL that begins with `s3://`, `azblob://`, `gs://`, `sftp://`, `webdavs://` or
    /// `synth://`.
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// The same; need not exist yet.
    #[arg(value_name = "DST")]
    pub(crate) destination: OsString,
    #[command(flatten)]
    pub(crate) state: StateFlag,
}

/// Kept with the job when it is made.
#[derive(Debug, Args)]
pub(crate) struct FilterFlags {
    /// Leave out what matches: a name at any depth, or a path with slashes. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Only files that match. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) include: Vec<String>,
    /// Leave out smaller files, as in 10k.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) min_size: Option<u64>,
    /// Leave out larger files, as in 2G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: Option<u64>,
    /// Leave out files modified more recently, as in 2h or 7d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) min_age: Option<Duration>,
    /// Leave out files modified longer ago.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) max_age: Option<Duration>,
    /// Copy devices, pipes and sockets too.
    #[arg(long)]
    pub(crate) specials: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CopyFlags {
    /// Bytes a second at most, as in 20M.
    #[arg(long, value_name = "SIZE", value_parser = some)]
    pub(crate) bwlimit: Option<u64>,
    /// Transfers at once.
    #[arg(long, value_name = "N", value_parser = at_once)]
    pub(crate) transfers: Option<usize>,
    /// Let all bytes pass through us and record their hashes, instead of having the kernel copy.
    #[arg(long)]
    pub(crate) checksum: bool,
    /// What becomes of what is at the destination only, or stands in the way.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) delete: Option<DeleteFlag>,
    /// With `--delete`: how many entries at most, those in folders among them. If it would be more,
    /// nothing goes.
    #[arg(long, value_name = "N")]
    pub(crate) max_delete: Option<u64>,
    /// With `--delete`: what filters exclude goes as well.
    #[arg(long)]
    pub(crate) delete_excluded: bool,
    /// With `--delete`: also if the source has no entries.
    #[arg(long)]
    pub(crate) allow_empty_source: bool,
    /// Say what copying would need, lose and do; do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DeleteFlag {
    /// Moved to `.headworks-quarantine` at the destination.
    Quarantine,
    /// Removed for good; needs --max-delete.
    Permanent,
}

#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    /// Workers a side.
    #[arg(long, value_name = "N", value_parser = at_once)]
    pub(crate) workers: Option<usize>,
    /// Listings a second and side at most.
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) requests: Option<f64>,
    /// Attempts in total for what fails for the moment.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) attempts: u32,
    /// Events as JSON lines instead of words.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How many of something at once: each takes memory.
fn at_once(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=1024).contains(number));
    number.ok_or_else(|| "expected a whole number from 1 to 1024".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected a number above 0".to_owned())
}

fn number(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let last = text.chars().next_back()?;
    let unit = units
        .iter()
        .find(|(letter, _)| letter.eq_ignore_ascii_case(&last));
    match unit {
        Some((_, factor)) => text[..text.len() - 1]
            .parse::<u64>()
            .ok()?
            .checked_mul(*factor),
        None => text.parse().ok(),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let units = [
        ('k', 1 << 10),
        ('m', 1 << 20),
        ('g', 1 << 30),
        ('t', 1 << 40),
    ];
    number(text, &units).ok_or_else(|| "write a number of bytes, as in 500, 10k, 20M or 2G".into())
}

/// With nothing at all a second, nothing would ever end.
fn some(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("expected more than 0; without --bwlimit there is no limit".into()),
        size => Ok(size),
    }
}

fn age(text: &str) -> Result<Duration, String> {
    let units = [
        ('s', 1),
        ('m', 60),
        ('h', 3600),
        ('d', 86_400),
        ('w', 604_800),
    ];
    let seconds = number(text, &units).map(Duration::from_secs);
    seconds.ok_or_else(|| "write a time, as in 90s, 10m, 2h, 7d or 3w".into())
}
