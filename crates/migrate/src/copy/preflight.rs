//! What copying would need and lose, before anything is written.

use super::remove::{each_deletion, obstacle};
use super::{CopyOptions, Delete};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::status::Status;
use headworks_storage::{ErrorKind, Folder, Kind, Space};
use serde::Serialize;

/// What copying would need, lose and do.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Preflight {
    /// Entries to bring there.
    pub entries: u64,
    /// Bytes to bring there.
    pub bytes: u64,
    /// About how many calls the destination will get.
    pub requests: u64,
    /// About how many calls the source will get.
    pub reads: u64,
    /// Entries at the destination that go in this pass, those in folders among them.
    pub deletes: u64,
    /// Free bytes there, if known.
    pub free_bytes: Option<u64>,
    /// Free entries there, if there is a limit.
    pub free_entries: Option<u64>,
    /// Why it cannot work.
    pub obstacles: Vec<String>,
    /// What will be lost or left out, although it works.
    pub losses: Vec<String>,
}

impl Preflight {
    /// # Errors
    /// When there is an obstacle.
    pub(super) fn check(&self) -> Result<()> {
        match self.obstacles.is_empty() {
            true => Ok(()),
            false => Err(Error::Preflight(self.obstacles.join("; "))),
        }
    }
}

pub(super) async fn look(job: &Job, options: &CopyOptions) -> Result<Preflight> {
    let mut found = Preflight::default();
    let mut tally = Tally::default();
    let state = job.state()?;
    // Then nothing is read, and a file takes one request.
    let alone = job
        .destination
        .copy_batch(&*job.source, &Folder::root(), &[])
        .is_some();
    state.scan(&job.compare, |pair, status| {
        tally.add(pair.entry.kind, status);
        if status.is_work() {
            found.entries += 1;
            if pair.entry.kind == Kind::File {
                found.reads += match alone {
                    true => 0,
                    false => job.source.requests_to_read(pair.entry.size),
                };
            }
            found.requests += match pair.entry.kind {
                Kind::Folder if !job.compare.destination.folders => 0,
                Kind::Folder => 2,
                _ if alone => 1,
                _ => job.destination.requests_to_write(pair.entry.size),
            };
            if !matches!(
                status,
                Status::Different(crate::Difference::Metadata | crate::Difference::Link)
            ) {
                found.bytes += pair.entry.size;
            }
        }
        Ok(())
    })?;
    let Preflight {
        deletes, obstacles, ..
    } = deletions(job, options).await?;
    found.deletes = deletes;
    found.obstacles.extend(obstacles);
    space(job, &mut found).await?;
    tally.tell(job, options, &mut found.losses);
    Ok(found)
}

/// The part of it that is about deletions.
pub(super) async fn deletions(job: &Job, options: &CopyOptions) -> Result<Preflight> {
    let mut found = Preflight::default();
    if options.delete == Delete::Keep {
        return Ok(found);
    }
    let state = job.state()?;
    found.deletes = each_deletion(job, options, |_| Ok(())).await?;
    found
        .obstacles
        .extend(obstacle(&state, options, found.deletes)?);
    Ok(found)
}

async fn space(job: &Job, found: &mut Preflight) -> Result<()> {
    if !job.destination.capabilities().write {
        found.obstacles.push("this storage can only be read".into());
        return Ok(());
    }
    match job.destination.writable().await {
        Ok(()) => {}
        // It will be made.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => found.obstacles.push(error.to_string()),
    }
    let space = job.destination.space().await;
    let space = space.map_err(|error| Error::Storage {
        side: "destination",
        error,
    })?;
    let Some(Space { bytes, entries }) = space else {
        return Ok(());
    };
    found.free_bytes = Some(bytes);
    found.free_entries = entries;
    if bytes < found.bytes {
        let words = format!(
            "{} bytes are to be copied and {bytes} are free",
            found.bytes
        );
        found.obstacles.push(words);
    }
    if entries.is_some_and(|free| free < found.entries) {
        found.obstacles.push(format!(
            "{} entries are to be made and there is no room for so many",
            found.entries
        ));
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    type_conflicts: u64,
    name_conflicts: u64,
    unsupported: u64,
    unknown: u64,
}

impl Tally {
    fn add(&mut self, _kind: Kind, status: Status) {
        match status {
            Status::TypeConflict => self.type_conflicts += 1,
            Status::NameConflict => self.name_conflicts += 1,
            Status::Unsupported => self.unsupported += 1,
            Status::Unknown => self.unknown += 1,
            _ => {}
        }
    }

    fn tell(&self, job: &Job, options: &CopyOptions, losses: &mut Vec<String>) {
        let (here, there) = (job.source.capabilities(), job.destination.capabilities());
        let mut tell = |count: u64, words: &str| {
            if count > 0 {
                losses.push(format!("{count} {words}"));
            }
        };
        if options.delete == Delete::Keep {
            tell(
                self.type_conflicts,
                "entries stay out because a folder stands where a file should, or the reverse (--delete clears the way)",
            );
        }
        tell(
            self.name_conflicts,
            "names that the destination cannot have",
        );
        tell(
            self.unsupported,
            "devices, pipes, sockets or links that the destination cannot have, or was not asked to (--specials)",
        );
        tell(
            self.unknown,
            "entries at or below folders that could not be listed",
        );
        if here.posix && !there.owners {
            losses.push("owners: the destination, or this user, cannot set them".into());
        }
        if here.extended && !there.extended {
            losses.push("extended attributes".into());
        }
        if there.modified.is_none() {
            losses.push("modification times".into());
        }
    }
}
