//! The parts of an object on their way: several at once, in memory that is bounded over all
//! uploads.

use super::Pieces;
use crate::error::Result;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Parts of one file under way at once.
const AT_ONCE: usize = 4;

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
    pub(crate) piece: Pieces,
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// What is being filled and what is under way; `T` is what is known of a part that arrived.
pub(crate) struct Parts<T> {
    size: u64,
    /// What the next part is called.
    number: u32,
    piece: Pieces,
    memory: Arc<Semaphore>,
    room: Option<OwnedSemaphorePermit>,
    running: JoinSet<Result<(u32, T)>>,
    /// The numbers of those.
    under_way: BTreeSet<u32>,
}

impl<T: Send + 'static> Parts<T> {
    /// Parts of a file of `whole` bytes. Those that are there, whole and in a row, need not be
    /// taken again; the last one is.
    pub(crate) fn begin(
        whole: u64,
        size: u64,
        is_there: impl Fn(u32) -> bool,
        memory: Arc<Semaphore>,
    ) -> Parts<T> {
        let last = whole.div_ceil(size) as u32;
        let number = (1..last).find(|number| !is_there(*number)).unwrap_or(last);
        Parts {
            size,
            number,
            piece: Pieces::default(),
            memory,
            room: None,
            running: JoinSet::new(),
            under_way: BTreeSet::new(),
        }
    }

    /// Where the next byte goes.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.number - 1) * self.size + self.piece.len()
    }

    /// How many parts were taken.
    pub(crate) fn last(&self) -> u32 {
        self.number - 1
    }

    /// Takes bytes up to the end of a part; hands it back when it is full.
    pub(crate) async fn fill(&mut self, bytes: &mut Bytes) -> Option<Part> {
        if self.room.is_none() {
            let room = self.memory.clone().acquire_owned().await;
            self.room = Some(room.expect("it is never closed"));
        }
        let wanted = self.size - self.piece.len();
        let taken = usize::try_from(wanted)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        self.piece.push(bytes.split_to(taken));
        (self.piece.len() == self.size).then(|| self.next())
    }

    /// What is left of the last part.
    pub(crate) fn rest(&mut self) -> Option<Part> {
        (self.piece.len() > 0).then(|| self.next())
    }

    fn next(&mut self) -> Part {
        self.number += 1;
        Part {
            number: self.number - 1,
            piece: std::mem::take(&mut self.piece),
            room: self.room.take(),
        }
    }

    /// Has a part sent, when there is room on the way.
    pub(crate) async fn send(
        &mut self,
        number: u32,
        there: &mut BTreeMap<u32, T>,
        sending: impl Future<Output = Result<(u32, T)>> + Send + 'static,
    ) -> Result<()> {
        while self.running.len() >= AT_ONCE {
            self.join(there).await?;
        }
        self.under_way.insert(number);
        self.running.spawn(sending);
        Ok(())
    }

    async fn join(&mut self, there: &mut BTreeMap<u32, T>) -> Result<()> {
        match self.running.join_next().await {
            None => Ok(()),
            Some(Ok(sent)) => {
                let (number, sent) = sent?;
                self.under_way.remove(&number);
                there.insert(number, sent);
                Ok(())
            }
            Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
        }
    }

    /// Waits until all that was sent up to `end` arrived.
    pub(crate) async fn settle_to(&mut self, end: u64, there: &mut BTreeMap<u32, T>) -> Result<()> {
        let last = end.div_ceil(self.size);
        let is_before = |number: &u32| u64::from(*number) <= last;
        while self.under_way.first().is_some_and(is_before) {
            self.join(there).await?;
        }
        Ok(())
    }

    /// Waits until all that was sent arrived.
    pub(crate) async fn settle(&mut self, there: &mut BTreeMap<u32, T>) -> Result<()> {
        while !self.running.is_empty() {
            self.join(there).await?;
        }
        Ok(())
    }

    /// Ends what is under way.
    pub(crate) async fn shutdown(&mut self) {
        self.running.shutdown().await;
    }
}
