//! The preflight check: what a copy would need and lose, before anything is written.

use super::remove::{deletion_obstacle, each_deletion};
use super::{CopyOptions, Delete};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::queries::first_link;
use crate::side::Side;
use crate::status::Status;
use headworks_storage::{ErrorKind, Folder, Kind, Space};
use serde::Serialize;

/// The estimated needs and losses of a copy.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Preflight {
    /// Entries to copy.
    pub entries: u64,
    /// Bytes to copy.
    pub bytes: u64,
    /// Estimated number of requests to the destination.
    pub requests: u64,
    /// Estimated number of requests to the source.
    pub reads: u64,
    /// Entries that this pass removes from the destination, including those in folders.
    pub deletes: u64,
    /// Free bytes at the destination, if known.
    pub free_bytes: Option<u64>,
    /// Free entries (inodes) at the destination, if it has a limit.
    pub free_entries: Option<u64>,
    /// Reasons why the copy cannot start.
    pub obstacles: Vec<String>,
    /// Properties and entries that will be lost or left out.
    pub losses: Vec<String>,
}

impl Preflight {
    /// # Errors
    /// When an obstacle was found.
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
    // With a server-side copy nothing is read, and a file takes one request.
    let server_side = job
        .destination
        .copy_batch(&*job.source, &Folder::root(), &[])
        .is_some();
    let links = state.connection();
    state.scan(&job.compare, |pair, status| {
        tally.add(status);
        if status.needs_copy() && !options.existing.keeps(pair, status) {
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
            let without_bytes = status == Status::Different(crate::Difference::Metadata);
            // A further name of a file becomes a link to it.
            let is_link = job.compare.destination.hard_links && first_link(links, pair)?.is_some();
            if !without_bytes && !is_link {
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
    check_space(job, options, &mut preflight).await?;
    tally.add_losses(job, options, &mut preflight.losses);
    Ok(preflight)
}

/// Estimates the deletions alone.
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

async fn check_space(job: &Job, options: &CopyOptions, preflight: &mut Preflight) -> Result<()> {
    if !job.destination.capabilities().write {
        preflight
            .obstacles
            .push("the destination is read-only".into());
        return Ok(());
    }
    match job.destination.writable().await {
        Ok(()) => {}
        // The copy creates the root.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => preflight.obstacles.push(error.to_string()),
    }
    let space = match job.destination.space().await {
        // Not every storage tells the free space of a folder that does not exist yet.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        space => space.map_err(|error| Side::Destination.error(error))?,
    };
    let Some(Space { bytes, entries }) = space else {
        return Ok(());
    };
    preflight.free_bytes = Some(bytes);
    preflight.free_entries = entries;
    if options.ignore_free_space {
        return Ok(());
    }
    if bytes < preflight.bytes {
        let obstacle = format!(
            "{} bytes are to be copied but only {bytes} are free at the destination (--ignore-free-space copies all the same, for sparse files or a destination that compresses)",
            preflight.bytes
        );
        preflight.obstacles.push(obstacle);
    }
    if entries.is_some_and(|free| free < preflight.entries) {
        preflight.obstacles.push(format!(
            "{} entries are to be made, which is more than the destination has free inodes for (--ignore-free-space copies all the same)",
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
    fn add(&mut self, status: Status) {
        match status {
            Status::TypeConflict => self.type_conflicts += 1,
            Status::NameConflict => self.name_conflicts += 1,
            Status::Unsupported => self.unsupported += 1,
            Status::Unknown => self.unknown += 1,
            _ => {}
        }
    }

    fn add_losses(&self, job: &Job, options: &CopyOptions, losses: &mut Vec<String>) {
        let (source, destination) = (job.source.capabilities(), job.destination.capabilities());
        let mut add = |count: u64, loss: &str| {
            if count > 0 {
                losses.push(format!("{count} {loss}"));
            }
        };
        if options.delete == Delete::Keep {
            add(
                self.type_conflicts,
                "entries are left out because the destination has a folder in place of a file, or the reverse (--delete replaces them)",
            );
        }
        add(
            self.name_conflicts,
            "names that the destination cannot represent",
        );
        add(
            self.unsupported,
            "devices, pipes, sockets or links that the destination cannot represent, or that need --specials",
        );
        add(self.unknown, "entries in folders that could not be listed");
        if source.posix && !destination.owners {
            losses.push("owners: the destination or this user cannot set them".into());
        }
        if source.posix && !destination.posix {
            losses.push("permissions: the destination does not keep them".into());
        }
        if source.hard_links && !destination.hard_links {
            losses.push("hard links: each name becomes a file of its own".into());
        }
        if source.extended && !destination.extended {
            losses.push("extended attributes".into());
        }
        if destination.modified.is_none() {
            losses.push("modification times".into());
        }
    }
}
