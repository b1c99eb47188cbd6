//! Whether it pays to ask for folders with all that is below them, found out at the far side
//! itself.
//!
//! Some servers find what is below a prefix at once, others go through the whole bucket for it, and
//! others do not know what they are asked. Nothing in an answer says which, so at every depth one
//! folder is asked for in both ways at the same time, while the others of that depth wait: what the
//! two answers say must agree, and what they took tells which way is taken.

use super::Asked;
use super::below::{Room, sort_out};
use super::page::Answer;
use crate::Entry;
use crate::error::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

/// How much longer than for the folder alone is waited for all that is below it, and how long in
/// any case.
const PATIENCE: u32 = 32;
const MOMENT: Duration = Duration::from_millis(100);
/// How much cheaper a folder must be: those with much below them may be dearer to list than the
/// others.
const CHEAPER: u32 = 2;

/// Whether it pays, by depth.
#[derive(Default)]
pub(super) struct Trials(Mutex<HashMap<usize, Arc<OnceCell<bool>>>>);

impl Trials {
    /// Whether it pays for a folder; and its page, if it was this one that was tried.
    pub(super) async fn of(
        &self,
        asked: &Asked,
        room: impl FnOnce() -> Option<Room>,
    ) -> Result<(bool, Option<Answer>)> {
        let depth = asked.path.iter().filter(|&&byte| byte == b'/').count();
        let trial = self.0.lock().entry(depth).or_default().clone();
        let mut page = None;
        let pays = trial.get_or_try_init(|| async {
            let (first, pays) = tried(asked, room()).await?;
            page = Some(first);
            Ok(pays)
        });
        let pays = *pays.await?;
        Ok((pays, page))
    }
}

/// Asks in both ways: the page of the folder alone, and whether the other pays.
async fn tried(asked: &Asked, room: Option<Room>) -> Result<(Answer, bool)> {
    let Some(mut room) = room else {
        return Ok((asked.first().await?, false));
    };
    let began = Instant::now();
    let mut alone = pin!(async { (asked.first().await, began.elapsed()) });
    let mut of_all = pin!(async { (asked.page_of_all(true).await, began.elapsed()) });
    let (early, (alone, cost)) = tokio::select! {
        early = &mut of_all => (Some(early), alone.await),
        alone = &mut alone => (None, alone),
    };
    let alone = alone?;
    let patience = (cost * PATIENCE).max(MOMENT);
    let late = match early {
        Some(early) => Some(early),
        None => timeout(patience, of_all).await.ok(),
    };
    let Some((Ok(mut of_all), took)) = late else {
        return Ok((alone, false));
    };
    let folders = sort_out(&mut of_all);
    if !agree(&alone, &of_all) {
        return Ok((alone, false));
    }
    let count = 1 + room.keep(&asked.path, folders);
    Ok((alone, took * CHEAPER <= cost * count))
}

/// Whether both tell the same of the folder, as far as either goes.
fn agree(alone: &Answer, of_all: &Answer) -> bool {
    let (a, b) = (&alone.items, &of_all.items);
    let same = |(a, b): (&Entry, &Entry)| (&a.name, a.kind, a.size) == (&b.name, b.kind, b.size);
    let is_prefix = a.iter().zip(b).all(same);
    let ends_first =
        |one: &Answer, other: &Answer| one.token.is_some() || one.items.len() >= other.items.len();
    is_prefix && ends_first(alone, of_all) && ends_first(of_all, alone)
}
