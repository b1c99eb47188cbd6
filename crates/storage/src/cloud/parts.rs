//! The parts of an upload in flight: several at once, in memory that is bounded over all uploads.

use super::SegmentedBytes;
use crate::error::Result;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Concurrent parts per file.
const MAX_IN_FLIGHT: usize = 4;

/// Returns the part size of a file: the minimum, doubled until there are at most `most_parts`.
pub(crate) fn part_size(size: u64, least: u64, most_parts: u64) -> u64 {
    let mut part = least;
    while size.div_ceil(part) > most_parts {
        part *= 2;
    }
    part
}

/// A part to be sent, with its memory permit.
pub(crate) struct Part {
    pub(crate) number: u32,
    pub(crate) bytes: SegmentedBytes,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// The part being filled and those in flight. `T` describes an uploaded part.
pub(crate) struct PartPipeline<T> {
    size: u64,
    /// The number of the next part.
    number: u32,
    bytes: SegmentedBytes,
    memory: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    running: JoinSet<Result<(u32, T)>>,
    /// The numbers of the parts in flight.
    in_flight: BTreeSet<u32>,
}

impl<T: Send + 'static> PartPipeline<T> {
    /// Starts the upload of a file of `total` bytes. Leading parts that are uploaded need not be
    /// sent again, except the last part of the file.
    pub(crate) fn begin(
        total: u64,
        size: u64,
        is_there: impl Fn(u32) -> bool,
        memory: Arc<Semaphore>,
    ) -> PartPipeline<T> {
        let last = total.div_ceil(size) as u32;
        let number = (1..last).find(|number| !is_there(*number)).unwrap_or(last);
        PartPipeline {
            size,
            number,
            bytes: SegmentedBytes::default(),
            memory,
            permit: None,
            running: JoinSet::new(),
            in_flight: BTreeSet::new(),
        }
    }

    /// Returns the offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.number - 1) * self.size + self.bytes.len()
    }

    /// Returns the number of the last part.
    pub(crate) fn last(&self) -> u32 {
        self.number - 1
    }

    /// Adds bytes up to the end of a part, and returns it when it is full.
    pub(crate) async fn fill(&mut self, bytes: &mut Bytes) -> Option<Part> {
        if self.permit.is_none() {
            let permit = self.memory.clone().acquire_owned().await;
            self.permit = Some(permit.expect("the semaphore is never closed"));
        }
        let wanted = self.size - self.bytes.len();
        let taken = usize::try_from(wanted)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        self.bytes.push(bytes.split_to(taken));
        (self.bytes.len() == self.size).then(|| self.finish_part())
    }

    /// Returns the incomplete last part, if there is one.
    pub(crate) fn take_rest(&mut self) -> Option<Part> {
        (self.bytes.len() > 0).then(|| self.finish_part())
    }

    fn finish_part(&mut self) -> Part {
        self.number += 1;
        Part {
            number: self.number - 1,
            bytes: std::mem::take(&mut self.bytes),
            permit: self.permit.take(),
        }
    }

    /// Starts sending a part, when the number of parts in flight allows.
    pub(crate) async fn send(
        &mut self,
        number: u32,
        uploaded: &mut BTreeMap<u32, T>,
        sending: impl Future<Output = Result<(u32, T)>> + Send + 'static,
    ) -> Result<()> {
        while self.running.len() >= MAX_IN_FLIGHT {
            self.join(uploaded).await?;
        }
        self.in_flight.insert(number);
        self.running.spawn(sending);
        Ok(())
    }

    async fn join(&mut self, uploaded: &mut BTreeMap<u32, T>) -> Result<()> {
        match self.running.join_next().await {
            None => Ok(()),
            Some(Ok(sent)) => {
                let (number, sent) = sent?;
                self.in_flight.remove(&number);
                uploaded.insert(number, sent);
                Ok(())
            }
            Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
        }
    }

    /// Waits until everything up to `end` is uploaded.
    pub(crate) async fn wait_up_to(
        &mut self,
        end: u64,
        uploaded: &mut BTreeMap<u32, T>,
    ) -> Result<()> {
        let last = end.div_ceil(self.size);
        let is_before = |number: &u32| u64::from(*number) <= last;
        while self.in_flight.first().is_some_and(is_before) {
            self.join(uploaded).await?;
        }
        Ok(())
    }

    /// Waits until everything is uploaded.
    pub(crate) async fn wait_all(&mut self, uploaded: &mut BTreeMap<u32, T>) -> Result<()> {
        while !self.running.is_empty() {
            self.join(uploaded).await?;
        }
        Ok(())
    }

    /// Cancels the parts in flight.
    pub(crate) async fn shutdown(&mut self) {
        self.running.shutdown().await;
    }
}
