//! Command output: text for people, JSON and CSV for programs.

use crate::report::{data, note};
use anyhow::Result;
use headworks_migrate::{
    Count, Delete, Deletion, EntryReport, FailedEntry, LostAttributes, Outcome, Preflight,
    Progress, Requests, StateReader, Status, Summary, Verification, display,
};
use headworks_service::exit::Exit;
use indicatif::HumanBytes;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const SHOWN: usize = 10;

fn row(word: &str, count: Count) -> String {
    format!(
        "{word:<22}{:>12}  {}\n",
        count.entries,
        HumanBytes(count.bytes)
    )
}

pub(crate) fn summary(summary: &Summary, json: bool) -> Result<()> {
    if json {
        return data(&format!("{}\n", serde_json::to_string(summary)?));
    }
    let mut text = String::new();
    for status in Status::ALL {
        let count = summary.of(status);
        if count.entries > 0 {
            text += &row(status.word(), count);
        }
    }
    text += &row("source in all", summary.source);
    if summary.copied.entries > 0 {
        text += &row("copied already", summary.copied);
    }
    if summary.failed_folders > 0 {
        text += &format!(
            "{} folders could not be listed; `headworks migrate report` names them\n",
            summary.failed_folders
        );
    }
    data(&text)
}

/// Prints the number of requests per side, for storages that bill by request.
pub(crate) fn requests(sides: &[(&'static str, Requests)]) {
    for (side, counts) in sides {
        let counts: Vec<String> = counts
            .iter()
            .map(|(kind, n)| format!("{kind} {n}"))
            .collect();
        note(&format!("requests of the {side}: {}", counts.join(", ")));
    }
}

/// The deletions that a dry run would make, one line each.
pub(crate) struct Deletions {
    verb: &'static str,
    json: bool,
    entries: u64,
    failed: Option<anyhow::Error>,
}

impl Deletions {
    pub(crate) fn new(delete: Delete, json: bool) -> Deletions {
        let verb = match delete {
            Delete::Quarantine { .. } => "move to quarantine",
            _ => "delete",
        };
        Deletions {
            verb,
            json,
            entries: 0,
            failed: None,
        }
    }

    pub(crate) fn show(&mut self, deletion: &Deletion) -> headworks_migrate::Result<()> {
        let path = display(&deletion.path).to_string();
        let (verb, entries) = (self.verb, deletion.entries);
        self.entries += entries;
        let line = match self.json {
            true => {
                serde_json::json!({"would": verb, "path": path, "entries": entries}).to_string()
            }
            false => format!("would {verb}: {path} ({entries} entries)"),
        };
        if self.failed.is_none() {
            self.failed = data(&format!("{line}\n")).err();
        }
        Ok(())
    }

    pub(crate) fn end(self) -> Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.entries > 0 && !self.json {
            true => data(&format!("would {} {} entries\n", self.verb, self.entries)),
            false => Ok(()),
        }
    }
}

pub(crate) fn preflight(found: &Preflight, json: bool) -> Result<Exit> {
    let exit = match found.obstacles.is_empty() {
        true => Exit::Done,
        false => Exit::Failed,
    };
    if json {
        data(&format!("{}\n", serde_json::to_string(found)?))?;
        return Ok(exit);
    }
    let mut text = format!(
        "would copy {} entries, {}, in about {} calls\n",
        found.entries,
        HumanBytes(found.bytes),
        found.requests
    );
    if let Some(free) = found.free_bytes {
        text += &format!("free at the destination: {}\n", HumanBytes(free));
    }
    for obstacle in &found.obstacles {
        text += &format!("cannot: {obstacle}\n");
    }
    for loss in &found.losses {
        text += &format!("lost or left out: {loss}\n");
    }
    data(&text)?;
    Ok(exit)
}

/// A line of the review as a machine wants it; names that are no UTF-8 are escaped.
fn machine(line: &EntryReport, json: bool) -> String {
    let path = display(&line.path).to_string();
    let (kind, status) = (
        format!("{:?}", line.kind).to_lowercase(),
        line.status.word(),
    );
    let class = line.class.word();
    match json {
        true => format!(
            "{}\n",
            serde_json::json!({"path": path, "kind": kind, "size": line.size, "status": status, "class": class})
        ),
        false => format!("{},{kind},{},{status},{class}\n", field(&path), line.size),
    }
}

fn field(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

pub(crate) fn review(state: &StateReader, json: bool, csv: bool) -> Result<Exit> {
    if json || csv {
        if csv {
            data("path,kind,size,status,class\n")?;
        }
        let mut out = Ok(());
        state.entries(|line| {
            if out.is_ok() {
                out = data(&machine(line, json));
            }
            Ok(())
        })?;
        return out.map(|()| Exit::Done);
    }
    let mut statuses: BTreeMap<Status, Count> = BTreeMap::new();
    let mut folders: BTreeMap<Vec<u8>, Count> = BTreeMap::new();
    let mut biggest: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut conflicts: Vec<String> = Vec::new();
    state.entries(|line| {
        add(statuses.entry(line.status).or_default(), line.size);
        if line.status.needs_copy() {
            let cut = line.path.iter().position(|&b| b == b'/').unwrap_or(0);
            add(
                folders.entry(line.path[..cut].to_vec()).or_default(),
                line.size,
            );
            biggest.push((line.size, line.path.clone()));
            biggest.sort_by(|a, b| b.cmp(a));
            biggest.truncate(SHOWN);
        }
        let conflict = matches!(line.status, Status::TypeConflict | Status::NameConflict);
        if conflict && conflicts.len() < SHOWN {
            conflicts.push(format!("  {}  {}\n", line.status, display(&line.path)));
        }
        Ok(())
    })?;
    let mut text = String::new();
    for (status, count) in &statuses {
        text += &row(status.word(), *count);
    }
    let mut by_bytes: Vec<_> = folders.into_iter().collect();
    by_bytes.sort_by_key(|(_, count)| std::cmp::Reverse(count.bytes));
    heading(
        &mut text,
        "to copy, by folder:",
        by_bytes.iter().take(SHOWN).map(|(folder, count)| {
            let name = if folder.is_empty() {
                ".".into()
            } else {
                display(folder).to_string()
            };
            format!("  {}", row(&name, *count))
        }),
    );
    heading(
        &mut text,
        "to copy, biggest:",
        biggest.iter().map(|(size, path)| {
            format!(
                "  {:>12}  {}\n",
                HumanBytes(*size).to_string(),
                display(path)
            )
        }),
    );
    heading(&mut text, "conflicts:", conflicts.into_iter());
    data(&text)?;
    Ok(Exit::Done)
}

fn add(count: &mut Count, bytes: u64) {
    count.entries += 1;
    count.bytes += bytes;
}

fn heading(text: &mut String, words: &str, lines: impl Iterator<Item = String>) {
    let lines: String = lines.collect();
    if !lines.is_empty() {
        text.push_str(&format!("{words}\n{lines}"));
    }
}

pub(crate) fn status(state: &StateReader, json: bool) -> Result<Exit> {
    let holder = headworks_migrate::lock_holder(state.path());
    let folders = state.folders()?;
    let facts = ["source", "destination", "stage", "pass"].map(|key| state.meta_value(key));
    let [source, destination, stage, pass] = facts;
    let (source, destination, stage, pass) = (source?, destination?, stage?, pass?);
    let paused = state.meta_value("paused")? == "1";
    let live = holder.as_ref().and_then(|_| state.live());
    if json {
        let value = serde_json::json!({
            "source": source, "destination": destination, "stage": stage, "pass": pass, "paused": paused,
            "runner": holder, "live": live,
            "source_folders": {"pending": folders[0], "successful": folders[1], "failed": folders[2]},
            "destination_folders": {"pending": folders[3], "successful": folders[4], "failed": folders[5]},
        });
        data(&format!("{value}\n"))?;
        return Ok(Exit::Done);
    }
    let mut text = format!("{source} -> {destination}\nstage: {stage}, pass {pass}");
    text += if paused { ", paused\n" } else { "\n" };
    text += &format!("runner: {}\n", holder.unwrap_or("none".into()));
    text += &format!(
        "source folders: {} listed, {} pending, {} failed\n",
        folders[1], folders[0], folders[2]
    );
    text += &format!(
        "destination folders: {} done, {} pending, {} failed\n",
        folders[4], folders[3], folders[5]
    );
    if let Some(live) = live {
        text += &format!("{}\n", super::progress::line(&live));
    }
    data(&text)?;
    Ok(Exit::Done)
}

fn exit_of(outcome: &Outcome) -> Exit {
    match (outcome.has_failures(), outcome.has_differences()) {
        (true, _) => Exit::FinishedWithFailures,
        (false, true) => Exit::DifferencesFound,
        (false, false) => Exit::Done,
    }
}

pub(crate) fn outcome(
    state: &StateReader,
    outcome: &Outcome,
    progress: Option<&Progress>,
    json: bool,
) -> Result<Exit> {
    let mut failures: Vec<FailedEntry> = Vec::new();
    let mut more = 0;
    state.failures(|failed| {
        match failures.len() < 1000 {
            true => failures.push(failed.clone()),
            false => more += 1,
        }
        Ok(())
    })?;
    let mut losses: Vec<LostAttributes> = Vec::new();
    state.losses(|lost| {
        if losses.len() < 1000 {
            losses.push(lost.clone());
        }
        Ok(())
    })?;
    if json {
        let value = serde_json::json!({
            "losses": losses,
            "outcome": outcome, "adds_up": outcome.adds_up(), "failures": failures, "more_failures": more,
            "resume_cost": progress.and_then(Progress::resume_cost),
            "sent_bytes": progress.map(Progress::sent_bytes),
        });
        data(&format!("{value}\n"))?;
        return Ok(exit_of(outcome));
    }
    let mut text = String::new();
    for (class, count) in &outcome.classes {
        text += &row(class.word(), *count);
    }
    text += &row("source in all", outcome.source);
    if outcome.not_on_src > 0 {
        text += &format!(
            "{} entries are at the destination only\n",
            outcome.not_on_src
        );
    }
    if outcome.quarantined > 0 {
        text += &format!(
            "{} entries of the destination were moved to .headworks-quarantine/pass-{}\n",
            outcome.quarantined,
            state.meta_value("pass")?
        );
    }
    if outcome.deleted > 0 {
        text += &format!(
            "{} entries of the destination were deleted\n",
            outcome.deleted
        );
    }
    if outcome.incomplete > 0 {
        text += &format!(
            "{} entries were copied without some of their attributes, which the destination refused to keep\n",
            outcome.incomplete
        );
    }
    for lost in losses.iter().take(SHOWN) {
        text += &format!("copied, lost: `{}`: {}\n", lost.path, lost.lost);
    }
    if outcome.has_differences() {
        text += "what could not be there is named by `headworks migrate review --csv`\n";
    }
    if !outcome.adds_up() {
        text += "the classes do not add up to what is on the source: please report this\n";
    }
    for failed in failures.iter().take(SHOWN) {
        text += &format!(
            "failed: {} ({} attempts)\n  next: {}\n",
            failed.message(),
            failed.attempts,
            failed.next_step()
        );
    }
    let left = failures.len().saturating_sub(SHOWN) + more;
    if left > 0 {
        text += &format!("and {left} more failures; `headworks migrate report --csv` has all\n");
    }
    if let Some(cost) = progress.and_then(Progress::resume_cost) {
        text += &format!("{cost}\n");
    }
    data(&text)?;
    Ok(exit_of(outcome))
}

pub(crate) fn report(state: &StateReader, json: bool, csv: bool, manifest: bool) -> Result<Exit> {
    if manifest {
        state.manifest(|line| {
            use std::io::Write;
            let _ = std::io::stdout().write_all(line);
            Ok(())
        })?;
        return Ok(Exit::Done);
    }
    let result = state.outcome()?;
    if csv {
        data("path,phase,kind,attempts,cause,next\n")?;
        state.failures(|failed| {
            let cells = [
                &failed.path,
                &failed.phase,
                &failed.kind,
                &failed.attempts.to_string(),
                &failed.cause,
            ];
            let cells = cells.map(|cell| field(cell)).join(",");
            let _ = data(&format!("{cells},{}\n", field(failed.next_step())));
            Ok(())
        })?;
        state.losses(|lost| {
            let (path, lost) = (field(&lost.path), field(&lost.lost));
            let next = "the destination refused these attributes; everything else was copied";
            let _ = data(&format!("{path},copy,LostAttributes,1,{lost},{next}\n"));
            Ok(())
        })?;
        return Ok(exit_of(&result));
    }
    outcome(state, &result, None, json)
}

pub(crate) fn verified(verified: &Verification, json: bool) -> Result<Exit> {
    let exit = match verified.is_complete() {
        true => Exit::Done,
        false => Exit::DifferencesFound,
    };
    if json {
        data(&format!("{}\n", serde_json::to_string(verified)?))?;
        return Ok(exit);
    }
    let mut text = match verified.copied_only {
        true if verified.entries == 0 => "nothing changed, nothing to verify\n".to_owned(),
        true => format!(
            "verified the {} entries that this pass copied\n",
            verified.entries
        ),
        false => format!(
            "verified {} entries, {} of them by hash; {} were left out knowingly\n",
            verified.entries, verified.hashed, verified.left_out
        ),
    };
    if verified.unsupported > 0 {
        text += &format!(
            "the destination cannot hold {} of those: `headworks migrate review --csv` names them\n",
            verified.unsupported
        );
    }
    if verified.unlisted > 0 {
        text += &format!(
            "{} folders of the source could not be listed: what is in them was not verified\n",
            verified.unlisted
        );
    }
    for (reason, count) in &verified.differences {
        text += &format!("{reason}: {count}\n");
    }
    for (path, reason) in verified.examples.iter().take(SHOWN) {
        text += &format!("  {path}: {reason}\n");
    }
    if !verified.is_clean() {
        text += "`headworks migrate run SRC DST` again copies what is missing or different\n";
    }
    data(&text)?;
    Ok(exit)
}

pub(crate) fn log(state: &StateReader) -> Result<Exit> {
    for (at, text) in state.log(1000)? {
        data(&format!("{}  {text}\n", headworks_migrate::clock(at)))?;
    }
    Ok(Exit::Done)
}

pub(crate) fn explain(state: &StateReader, path: &OsStr) -> Result<Exit> {
    let told = state.explain(path.as_bytes())?;
    for line in told.lines {
        data(&format!("{line}\n"))?;
    }
    Ok(match told.known {
        true => Exit::Done,
        false => Exit::Failed,
    })
}
