//! `headworks migrate`: moves a tree, loses nothing and proves it.

mod arguments;
mod progress;
mod show;

pub(crate) use arguments::MigrateCommand;

use crate::report::{UsageError, note};
use anyhow::Result;
use arguments::{CopyFlags, DeleteFlag, FilterFlags, RunFlags};
use headworks_migrate::{
    CopyOptions, Delete, Error, Existing, Filters, Job, Request, Settings, StateReader,
    VerifyOptions, send_request,
};
use headworks_service::exit::Exit;
use headworks_service::shutdown::Shutdown;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Grace period for running operations after a request to stop.
const GRACE: Duration = Duration::from_secs(30);

pub(crate) fn run(command: &MigrateCommand) -> Result<Exit> {
    match dispatch(command) {
        Err(error) => match error.downcast_ref::<Error>() {
            // Errors of the request itself, as opposed to failures while it was carried out.
            Some(
                Error::Refused(_)
                | Error::BadOption(_)
                | Error::BadLocation { .. }
                | Error::OtherJob { .. }
                | Error::NoState(_)
                | Error::NotState { .. },
            ) => Err(UsageError(error.to_string()).into()),
            Some(Error::Stopped) => {
                note(&error.to_string());
                Ok(Exit::Interrupted)
            }
            _ => Err(error),
        },
        done => done,
    }
}

fn dispatch(command: &MigrateCommand) -> Result<Exit> {
    use MigrateCommand as Command;
    match command {
        Command::Plan {
            places,
            filters,
            run,
        } => {
            let places_ = (places.source.as_os_str(), places.destination.as_os_str());
            work(
                &places.state.state,
                Some(places_),
                &filters_of(filters),
                run,
                plan,
            )
        }
        Command::Copy { state, copy, run } => {
            let options = copy_options(copy)?;
            let dry = copy.dry_run;
            work(
                &state.state,
                None,
                &Filters::default(),
                run,
                async move |job, json| copy_or_look(job, &options, dry, json).await,
            )
        }
        Command::Verify { state, hash, run } => {
            let options = verify_options(*hash);
            work(
                &state.state,
                None,
                &Filters::default(),
                run,
                async move |job, json| show::verified(&job.verify(options).await?, json),
            )
        }
        Command::Run {
            places,
            filters,
            copy,
            plan_first,
            run,
        } => {
            let options = copy_options(copy)?;
            let (first, dry) = (*plan_first, copy.dry_run);
            let places_ = (places.source.as_os_str(), places.destination.as_os_str());
            work(
                &places.state.state,
                Some(places_),
                &filters_of(filters),
                run,
                async move |job, json| everything(job, &options, (first, dry), json).await,
            )
        }
        Command::Review {
            state,
            json,
            csv,
            exclude,
            include,
            prioritise,
        } => {
            let requests = [
                exclude
                    .iter()
                    .cloned()
                    .map(Request::Exclude)
                    .collect::<Vec<_>>(),
                include.iter().cloned().map(Request::Include).collect(),
                prioritise
                    .iter()
                    .cloned()
                    .map(Request::Prioritise)
                    .collect(),
            ];
            for request in requests.concat() {
                submit_request(&state.state, &request)?;
            }
            show::review(&StateReader::open(&state.state)?, *json, *csv)
        }
        Command::Status { state, json } => show::status(&StateReader::open(&state.state)?, *json),
        Command::Pause(state) => submit_request(&state.state, &Request::Pause),
        Command::Resume(state) => submit_request(&state.state, &Request::Resume),
        Command::Retry(state) => submit_request(&state.state, &Request::Retry),
        Command::Report {
            state,
            json,
            csv,
            manifest,
        } => show::report(&StateReader::open(&state.state)?, *json, *csv, *manifest),
        Command::Log(state) => show::log(&StateReader::open(&state.state)?),
        Command::Explain { path, state } => show::explain(&StateReader::open(&state.state)?, path),
    }
}

fn submit_request(state: &Path, request: &Request) -> Result<Exit> {
    match send_request(state, request)? {
        None => note("done"),
        Some(holder) => note(&format!("handed to the runner: {holder}")),
    }
    Ok(Exit::Done)
}

/// Runs a command that holds the job's lock, with progress output and graceful shutdown.
fn work(
    state: &Path,
    places: Option<(&OsStr, &OsStr)>,
    filters: &Filters,
    flags: &RunFlags,
    what: impl AsyncFnOnce(&Job, bool) -> Result<Exit>,
) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let mut settings = Settings::default();
    settings.attempts = flags.attempts.max(1);
    settings.workers = flags.workers.map(|workers| (workers, workers));
    settings.requests = flags.requests;
    if flags.max_lead < flags.lag {
        let words = "--max-lead must be at least --lag: the destination would never start";
        return Err(UsageError(words.into()).into());
    }
    (settings.lag, settings.max_lead) = (flags.lag, flags.max_lead);
    let json = flags.json;
    runtime.block_on(async move {
        let job = Job::open(state, places, filters, settings)?;
        for remark in job.notices() {
            note(&remark.to_string());
        }
        let kept = job.filters();
        if places.is_some() && *filters == Filters::default() && kept != filters {
            note(&format!("with the filters of this job: {kept}"));
        }
        let shutdown = Shutdown::new();
        shutdown.on_signals()?;
        let stop = job.stop();
        let listen = tokio::spawn(async move {
            shutdown.requested().await;
            note("stopping; what is done is kept");
            stop.cancel();
            let _ = tokio::time::timeout(GRACE, shutdown.forced()).await;
            // Exiting is safe: work that is not yet recorded in the state file is done again.
            note("stopped in the middle of a call that did not end; run it again to go on");
            std::process::exit(Exit::Interrupted.code().into());
        });
        let began = Instant::now();
        let shown = progress::show(job.progress(), json);
        let done = what(&job, json).await;
        listen.abort();
        shown.end().await;
        show::requests(&job.requests());
        job.storage_notices().iter().for_each(|notice| note(notice));
        if !json {
            note(&progress::closing_line(
                began.elapsed(),
                job.progress().sent_bytes(),
            ));
        }
        let closed = job.close();
        // The error of the command takes precedence over one on closing the job.
        let exit = done?;
        closed?;
        Ok(exit)
    })
}

async fn plan(job: &Job, json: bool) -> Result<Exit> {
    let summary = job.plan().await?;
    show::summary(&summary, json)?;
    if !job.requests().is_empty() {
        let needed = job.preflight(&CopyOptions::default()).await?;
        note(&format!(
            "a copy takes about {} requests of the destination and {} of the source",
            needed.requests, needed.reads
        ));
    }
    Ok(match summary.failed_folders {
        0 => Exit::Done,
        _ => Exit::FinishedWithFailures,
    })
}

async fn copy_or_look(job: &Job, options: &CopyOptions, dry: bool, json: bool) -> Result<Exit> {
    if dry {
        let mut deletions = show::Deletions::new(options.delete, json);
        job.deletions(options, |deletion| deletions.show(deletion))
            .await?;
        deletions.end()?;
        return show::preflight(&job.preflight(options).await?, json);
    }
    if job.state()?.meta_value("stage")? == "done" {
        note(
            "this pass is done, and nothing is copied: `headworks migrate run SRC DST` begins the next",
        );
    }
    let outcome = job.copy(options).await?;
    show::outcome(&job.state()?, &outcome, Some(&job.progress()), json)
}

async fn everything(
    job: &Job,
    options: &CopyOptions,
    (first, dry): (bool, bool),
    json: bool,
) -> Result<Exit> {
    let stage = job.state()?.meta_value("stage")?;
    // A verification that found damaged files takes up the last pass again, to copy those alone. A
    // run plans anew: other entries may differ, too.
    let is_reopened = stage == "planned" && job.needs_repair()?;
    if is_reopened || matches!(stage.as_str(), "planning" | "done") {
        let summary = match first || dry || options.delete != Delete::Keep {
            true => job.plan().await?,
            false => job.plan_with_overlap(options).await?,
        };
        show::summary(&summary, json)?;
    }
    let exit = copy_or_look(job, options, dry, json).await?;
    if dry {
        return Ok(exit);
    }
    if exit == Exit::FinishedWithFailures {
        note(
            "not verified, because not everything was copied: `headworks migrate verify` looks at what is there",
        );
        return Ok(exit);
    }
    let mut options = verify_options(false);
    options.copied_only = true;
    let verified = show::verified(&job.verify(options).await?, json)?;
    Ok(match exit {
        Exit::Done => verified,
        left_out => left_out,
    })
}

fn filters_of(flags: &FilterFlags) -> Filters {
    let mut filters = Filters::default();
    filters.include.clone_from(&flags.include);
    filters.exclude.clone_from(&flags.exclude);
    filters.min_size = flags.min_size;
    filters.max_size = flags.max_size;
    filters.min_age = flags.min_age;
    filters.max_age = flags.max_age;
    filters.specials = flags.specials;
    filters.preserve = flags.preserve.unwrap_or_default();
    filters.owners.users.extend(flags.map_owner.iter().copied());
    filters
        .owners
        .groups
        .extend(flags.map_group.iter().copied());
    filters
}

fn verify_options(hash: bool) -> VerifyOptions {
    let mut options = VerifyOptions::default();
    options.hash = hash;
    options
}

fn copy_options(flags: &CopyFlags) -> Result<CopyOptions> {
    let mut options = CopyOptions::default();
    options.transfers = flags.transfers;
    options.bwlimit = flags.bwlimit;
    options.checksum = flags.checksum;
    options.delete = match (flags.delete, flags.max_delete) {
        (None, None) => Delete::Keep,
        (Some(DeleteFlag::Quarantine), limit) => Delete::Quarantine { limit },
        (None, Some(_)) => {
            let words = "--max-delete bounds --delete=quarantine or --delete=permanent, and neither was asked for";
            return Err(UsageError(words.into()).into());
        }
        (Some(DeleteFlag::Permanent), Some(limit)) => Delete::Permanent { limit },
        (Some(DeleteFlag::Permanent), None) => {
            let words =
                "--delete=permanent needs a limit: say how many entries at most with --max-delete";
            return Err(UsageError(words.into()).into());
        }
    };
    if options.delete == Delete::Keep && (flags.delete_excluded || flags.allow_empty_source) {
        let words = "--delete-excluded and --allow-empty-source are about --delete=quarantine or --delete=permanent, and neither was asked for";
        return Err(UsageError(words.into()).into());
    }
    options.existing = match (flags.update, flags.ignore_existing, flags.immutable) {
        (true, ..) => Existing::KeepNewer,
        (_, true, _) => Existing::Keep,
        (.., true) => Existing::Immutable,
        _ => Existing::Replace,
    };
    options.delete_excluded = flags.delete_excluded;
    options.allow_empty_source = flags.allow_empty_source;
    options.ignore_free_space = flags.ignore_free_space;
    Ok(options)
}
