//! The command line of `headworks migrate`.

use clap::{Args, Subcommand, ValueEnum};
use headworks_migrate::Preserve;
use headworks_service::config::{parse_seconds, parse_size};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// List both trees and compare them. Changes neither side.
    Plan {
        #[command(flatten)]
        places: Places,
        #[command(flatten)]
        filters: FilterFlags,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Show the plan, or adjust it.
    Review {
        #[command(flatten)]
        state: StateFlag,
        /// Every entry and its status, as JSON lines.
        #[arg(long, conflicts_with = "csv")]
        json: bool,
        /// Every entry and its status, as CSV.
        #[arg(long)]
        csv: bool,
        /// Leave out entries that match: a name at any depth, or a path with slashes.
        #[arg(long, value_name = "PATTERN")]
        exclude: Vec<String>,
        /// Take in again entries that `--exclude` left out.
        #[arg(long, value_name = "PATTERN")]
        include: Vec<String>,
        /// Copy matching entries first.
        #[arg(long, value_name = "PATTERN")]
        prioritise: Vec<String>,
    },
    /// Copy entries that are missing or different. Can be interrupted at any point and run again.
    Copy {
        #[command(flatten)]
        state: StateFlag,
        #[command(flatten)]
        copy: CopyFlags,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Check everything at the destination again.
    Verify {
        #[command(flatten)]
        state: StateFlag,
        /// Read every file and compare hashes: with the recorded one, or with that of the source.
        #[arg(long)]
        hash: bool,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Plan, copy and verify. Run again, it resumes; after that it copies what has changed since.
    Run {
        #[command(flatten)]
        places: Places,
        #[command(flatten)]
        filters: FilterFlags,
        #[command(flatten)]
        copy: CopyFlags,
        /// Finish the plan before anything is written. By default, copying begins while a long plan
        /// is still being made.
        #[arg(long)]
        plan_first: bool,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Show the state of the job.
    Status {
        #[command(flatten)]
        state: StateFlag,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Pause a job, even if another process runs it.
    Pause(StateFlag),
    /// Resume a paused job.
    Resume(StateFlag),
    /// Retry the failures.
    Retry(StateFlag),
    /// Report the outcome for every entry.
    Report {
        #[command(flatten)]
        state: StateFlag,
        /// Print JSON.
        #[arg(long, conflicts_with_all = ["manifest", "csv"])]
        json: bool,
        /// Print the failures as CSV.
        #[arg(long, conflicts_with = "manifest")]
        csv: bool,
        /// Print the known hashes, to be checked with `sha256sum -c` in the root of the
        /// destination.
        #[arg(long)]
        manifest: bool,
    },
    /// Show the event log, oldest first.
    Log(StateFlag),
    /// Show everything known about one path.
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
    /// The same; it need not exist yet.
    #[arg(value_name = "DST")]
    pub(crate) destination: OsString,
    #[command(flatten)]
    pub(crate) state: StateFlag,
}

/// Filters, stored with the job when it is created.
#[derive(Debug, Args)]
pub(crate) struct FilterFlags {
    /// Leave out entries that match: a name at any depth, or a path with slashes. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Only files that match. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) include: Vec<String>,
    /// Leave out smaller files, such as 10k.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) min_size: Option<u64>,
    /// Leave out larger files, such as 2G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: Option<u64>,
    /// Leave out files modified more recently, such as 2h or 7d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) min_age: Option<Duration>,
    /// Leave out files modified longer ago.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) max_age: Option<Duration>,
    /// Copy devices, pipes and sockets too.
    #[arg(long)]
    pub(crate) specials: bool,
    /// Attributes to copy into a directory and to compare: some of mode, owner, times, xattrs, acls
    /// and links, separated by commas. By default all that the destination keeps.
    #[arg(long, value_name = "LIST", value_parser = preserve)]
    pub(crate) preserve: Option<Preserve>,
    /// Give the files of a user to another one, by their numbers: `1000:2000`. May be repeated.
    #[arg(long, value_name = "FROM:TO", value_parser = id_pair)]
    pub(crate) map_owner: Vec<(u32, u32)>,
    /// The same for groups.
    #[arg(long, value_name = "FROM:TO", value_parser = id_pair)]
    pub(crate) map_group: Vec<(u32, u32)>,
}

#[derive(Debug, Args)]
pub(crate) struct CopyFlags {
    /// Bandwidth limit in bytes per second, such as 20M.
    #[arg(long, value_name = "SIZE", value_parser = some)]
    pub(crate) bwlimit: Option<u64>,
    /// Maximum concurrent transfers.
    #[arg(long, value_name = "N", value_parser = at_once)]
    pub(crate) transfers: Option<usize>,
    /// Read all bytes and record their hashes, instead of letting the kernel copy.
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Keep files at the destination that are newer than the source's.
    #[arg(long, conflicts_with_all = ["ignore_existing", "immutable"])]
    pub(crate) update: bool,
    /// Keep files that exist at the destination, whatever they contain.
    #[arg(long, conflicts_with = "immutable")]
    pub(crate) ignore_existing: bool,
    /// Keep files that exist at the destination, and report those that differ as failures.
    #[arg(long)]
    pub(crate) immutable: bool,
    /// How to handle entries that exist only at the destination, or that are in the way.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) delete: Option<DeleteFlag>,
    /// With `--delete`: maximum number of entries, including those in folders. If more would be
    /// deleted, nothing is.
    #[arg(long, value_name = "N")]
    pub(crate) max_delete: Option<u64>,
    /// With `--delete`: delete entries that filters exclude as well.
    #[arg(long)]
    pub(crate) delete_excluded: bool,
    /// With `--delete`: delete even if the source has no entries.
    #[arg(long)]
    pub(crate) allow_empty_source: bool,
    /// Copy even if the files are larger than the free space: for sparse files, or a destination
    /// that compresses.
    #[arg(long)]
    pub(crate) ignore_free_space: bool,
    /// Show what copying would need, lose and do, without doing it.
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
    /// Workers per side.
    #[arg(long, value_name = "N", value_parser = at_once)]
    pub(crate) workers: Option<usize>,
    /// Maximum listings per second and side.
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) requests: Option<f64>,
    /// Maximum attempts for transient failures.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) attempts: u32,
    /// Rounds that the source must be ahead before the destination lists a round.
    #[arg(long, value_name = "ROUNDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) lag: u32,
    /// Rounds that the source may be ahead while the destination has work; at least --lag.
    #[arg(long, value_name = "ROUNDS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_lead: u32,
    /// Print events as JSON lines.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a concurrency limit. It is bounded, because each unit takes memory.
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

fn id_pair(text: &str) -> Result<(u32, u32), String> {
    let pair = text.split_once(':');
    let pair = pair.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    pair.ok_or_else(|| "expected two numbers, such as 1000:2000".to_owned())
}

fn preserve(text: &str) -> Result<Preserve, String> {
    text.parse()
        .map_err(|error: headworks_migrate::Error| error.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    let problem = "expected a size, as in 500, 10k, 20M, 2GiB or 1GB";
    parse_size(text).ok_or_else(|| problem.to_owned())
}

/// Parses a size above zero: with a limit of zero a copy would never end.
fn some(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("expected more than 0; without --bwlimit there is no limit".into()),
        size => Ok(size),
    }
}

fn age(text: &str) -> Result<Duration, String> {
    let problem = "expected a time, as in 90s, 10m, 2h, 7d or 3w";
    parse_seconds(text).ok_or_else(|| problem.to_owned())
}
