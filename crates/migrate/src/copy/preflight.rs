//! What copying would need and lose, before anything is written.

use super::remove::{deletion_obstacle, each_deletion};
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

pub(super) async fn estimate(job: &Job, options: &CopyOptions) -> Result<Preflight> {
    let mut preflight = Preflight::default();
    let mut tally = Tally::default();
    let state = job.state()?;
    // Then nothing is read, and a file takes one request.
    let server_side = job
        .destination
        .copy_batch(&*job.source, &Folder::root(), &[])
        .is_some();
    state.scan(&job.compare, |pair, status| {
        tally.add(pair.entry.kind, status);
        if status.needs_copy() {
            preflight.entries += 1;
            if pair.entry.kind == Kind::File {
                preflight.reads += match server_side {
                    true => 0,
                    false => job.source.requests_to_read(pair.entry.size),
                };
            }
            preflight.requests += match pair.entry.kind {
                Kind::Folder if !job.compare.destination.folders => 0,
                Kind::Folder => 2,
                _ if server_side => 1,
                _ => job.destination.requests_to_write(pair.entry.size),
            };
            if !matches!(
                status,
                Status::Different(crate::Difference::Metadata | crate::Difference::Link)
            ) {
                preflight.bytes += pair.entry.size;
            }
        }
        Ok(())
    })?;
    let Preflight {
        deletes, obstacles, ..
    } = deletions(job, options).await?;
    preflight.deletes = deletes;
    preflight.obstacles.extend(obstacles);
    check_space(job, &mut preflight).await?;
    tally.add_losses(job, options, &mut preflight.losses);
    Ok(preflight)
}

/// The part of it that is about deletions.
pub(super) async fn deletions(job: &Job, options: &CopyOptions) -> Result<Preflight> {
    let mut preflight = Preflight::default();
    if options.delete == Delete::Keep {
        return Ok(preflight);
    }
    let state = job.state()?;
    preflight.deletes = each_deletion(job, options, |_| Ok(())).await?;
    preflight
        .obstacles
        .extend(deletion_obstacle(&state, options, preflight.deletes)?);
    Ok(preflight)
}

async fn check_space(job: &Job, preflight: &mut Preflight) -> Result<()> {
    if !job.destination.capabilities().write {
        preflight
            .obstacles
            .push("this storage can only be read".into());
        return Ok(());
    }
    match job.destination.writable().await {
        Ok(()) => {}
        // It will be made.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => preflight.obstacles.push(error.to_string()),
    }
    let space = job.destination.space().await;
    let space = space.map_err(|error| Error::Storage {
        side: "destination",
        error,
    })?;
    let Some(Space { bytes, entries }) = space else {
        return Ok(());
    };
    preflight.free_bytes = Some(bytes);
    preflight.free_entries = entries;
    if bytes < preflight.bytes {
        let obstacle = format!(
            "{} bytes are to be copied and {bytes} are free",
            preflight.bytes
        );
        preflight.obstacles.push(obstacle);
    }
    if entries.is_some_and(|free| free < preflight.entries) {
        preflight.obstacles.push(format!(
            "{} entries are to be made and there is no room for so many",
            preflight.entries
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

    fn add_losses(&self, job: &Job, options: &CopyOptions, losses: &mut Vec<String>) {
        let (here, there) = (job.source.capabilities(), job.destination.capabilities());
        let mut add = |count: u64, obstacle: &str| {
            if count > 0 {
                losses.push(format!("{count} {obstacle}"));
            }
        };
        if options.delete == Delete::Keep {
            add(
                self.type_conflicts,
                "entries stay out because a folder stands where a file should, or the reverse (--delete clears the way)",
            );
        }
        add(
            self.name_conflicts,
            "names that the destination cannot have",
        );
        add(
            self.unsupported,
            "devices, pipes, sockets or links that the destination cannot have, or was not asked to (--specials)",
        );
        add(
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
