//! The parts of an object on their way: several at once, in memory that is bounded over all
//! uploads.

use super::SegmentedBytes;
use crate::error::Result;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Parts of one file under way at once.
const MAX_IN_FLIGHT: usize = 4;

/// The size of the parts of a file: the least, doubled until there are no more than the far side
/// takes.
pub(crate) fn part_size(size: u64, least: u64, most_parts: u64) -> u64 {
    let mut part = least;
    while size.div_ceil(part) > most_parts {
        part *= 2;
    }
    part
}

/// A part that is ready to be sent, and its room in memory.
pub(crate) struct Part {
    pub(crate) number: u32,
    pub(crate) bytes: SegmentedBytes,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// What is being filled and what is under way; `T` is what is known of a part that arrived.
pub(crate) struct PartPipeline<T> {
    size: u64,
    /// What the next part is called.
    number: u32,
    bytes: SegmentedBytes,
    memory: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    running: JoinSet<Result<(u32, T)>>,
    /// The numbers of those.
    in_flight: BTreeSet<u32>,
}

impl<T: Send + 'static> PartPipeline<T> {
    /// Parts of a file of `whole` bytes. Those that are there, whole and in a row, need not be
    /// taken again; the last one is.
    pub(crate) fn begin(
        whole: u64,
        size: u64,
        is_there: impl Fn(u32) -> bool,
        memory: Arc<Semaphore>,
    ) -> PartPipeline<T> {
        let last = whole.div_ceil(size) as u32;
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

    /// Where the next byte goes.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.number - 1) * self.size + self.bytes.len()
    }

    /// How many parts were taken.
    pub(crate) fn last(&self) -> u32 {
        self.number - 1
    }

    /// Takes bytes up to the end of a part; hands it back when it is full.
    pub(crate) async fn fill(&mut self, bytes: &mut Bytes) -> Option<Part> {
        if self.permit.is_none() {
            let permit = self.memory.clone().acquire_owned().await;
            self.permit = Some(permit.expect("it is never closed"));
        }
        let wanted = self.size - self.bytes.len();
        let taken = usize::try_from(wanted)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        self.bytes.push(bytes.split_to(taken));
        (self.bytes.len() == self.size).then(|| self.finish_part())
    }

    /// What is left of the last part.
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

    /// Has a part sent, when there is room on the way.
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

    /// Waits until all that was sent up to `end` arrived.
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

    /// Waits until all that was sent arrived.
    pub(crate) async fn wait_all(&mut self, uploaded: &mut BTreeMap<u32, T>) -> Result<()> {
        while !self.running.is_empty() {
            self.join(uploaded).await?;
        }
        Ok(())
    }

    /// Ends what is under way.
    pub(crate) async fn shutdown(&mut self) {
        self.running.shutdown().await;
    }
}
