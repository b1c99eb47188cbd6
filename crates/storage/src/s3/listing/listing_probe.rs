//! Probes whether prefix listings are cheaper at a service.
//!
//! Some servers find the keys below a prefix quickly, others scan the whole bucket, and others do
//! not support the request. No response says which, so one folder per depth is requested in both
//! ways at the same time, while the others of that depth wait. The two responses must agree, and
//! their times decide.

use super::RemoteFolder;
use super::page::ListPage;
use super::prefix_listing::{Reservation, split_by_folder};
use crate::Entry;
use crate::error::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

/// How much longer than the plain listing the prefix listing may take, and the minimum timeout.
const MAX_SLOWDOWN: u32 = 32;
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// How much cheaper a folder must be: other folders may have more below them, and be more
/// expensive.
const MIN_SAVING: u32 = 2;

/// Results by depth.
#[derive(Default)]
pub(super) struct ListingProbes(Mutex<HashMap<usize, Arc<OnceCell<bool>>>>);

impl ListingProbes {
    /// Returns whether prefix listings are cheaper for a folder, and its page if this folder was
    /// probed.
    pub(super) async fn is_cheaper(
        &self,
        folder: &RemoteFolder,
        reserve: impl FnOnce() -> Option<Reservation>,
    ) -> Result<(bool, Option<ListPage>)> {
        let depth = folder.path.iter().filter(|&&byte| byte == b'/').count();
        let probe_cell = self.0.lock().entry(depth).or_default().clone();
        let mut page = None;
        let cheaper = probe_cell.get_or_try_init(|| async {
            let (first, cheaper) = probe(folder, reserve()).await?;
            page = Some(first);
            Ok(cheaper)
        });
        let cheaper = *cheaper.await?;
        Ok((cheaper, page))
    }
}

/// Lists a folder in both ways. Returns its plain page, and whether the prefix listing is
/// cheaper.
async fn probe(folder: &RemoteFolder, reserve: Option<Reservation>) -> Result<(ListPage, bool)> {
    let Some(mut reserve) = reserve else {
        return Ok((folder.first().await?, false));
    };
    let began = Instant::now();
    let mut alone = pin!(async { (folder.first().await, began.elapsed()) });
    let mut of_all = pin!(async { (folder.all_keys_page(true).await, began.elapsed()) });
    let (early, (alone, cost)) = tokio::select! {
        early = &mut of_all => (Some(early), alone.await),
        alone = &mut alone => (None, alone),
    };
    let alone = alone?;
    let wait = (cost * MAX_SLOWDOWN).max(MIN_TIMEOUT);
    let late = match early {
        Some(early) => Some(early),
        None => timeout(wait, of_all).await.ok(),
    };
    let Some((Ok(mut of_all), took)) = late else {
        return Ok((alone, false));
    };
    let folders = split_by_folder(&mut of_all);
    if !agree(&alone, &of_all) {
        return Ok((alone, false));
    }
    let count = 1 + reserve.keep(&folder.path, folders);
    Ok((alone, took * MIN_SAVING <= cost * count))
}

/// Returns whether both pages agree as far as either goes.
fn agree(alone: &ListPage, of_all: &ListPage) -> bool {
    let (a, b) = (&alone.items, &of_all.items);
    let same = |(a, b): (&Entry, &Entry)| (&a.name, a.kind, a.size) == (&b.name, b.kind, b.size);
    let is_prefix = a.iter().zip(b).all(same);
    let ends_first = |one: &ListPage, other: &ListPage| {
        one.token.is_some() || one.items.len() >= other.items.len()
    };
    is_prefix && ends_first(alone, of_all) && ends_first(of_all, alone)
}
