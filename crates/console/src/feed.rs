//! The live feed: one snapshot per second, shared by all open pages.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::{Stream, StreamExt, stream};
use headworks_service::panel::{PanelDescription, PanelList, Panels};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::history::{History, Points, SeriesHistory};

/// Sampling interval.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The newest points of the series of every panel.
type AllPoints = BTreeMap<String, Points>;

/// Takes the snapshots and owns the history.
pub(crate) struct Feed {
    panels: Panels,
    stop: CancellationToken,
    history: Mutex<History>,
    /// The newest points, for pages that have just been opened.
    points: Mutex<AllPoints>,
    /// The newest snapshot in JSON; not updated while no page is open.
    newest: watch::Sender<Arc<str>>,
}

/// One snapshot of all panels.
#[derive(Serialize)]
struct FeedSnapshot<'a> {
    /// Unix time in seconds.
    time: f64,
    panels: &'a [PanelDescription],
    points: &'a AllPoints,
}

impl Feed {
    pub(crate) fn new(panels: Panels, stop: CancellationToken) -> Feed {
        Feed {
            panels,
            stop,
            history: Mutex::default(),
            points: Mutex::default(),
            newest: watch::Sender::new("".into()),
        }
    }

    /// Takes snapshots until shutdown.
    pub(crate) async fn sample(self: Arc<Feed>) {
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        // After a stall, sampling continues at its normal pace instead of catching up in a burst.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.take_snapshot();
        }
    }

    fn take_snapshot(&self) {
        let time = now();
        let list = PanelList::of(&self.panels);
        let points = {
            let mut history = self.history.lock();
            let mut record =
                |panel: &PanelDescription| (panel.name.clone(), history.record(time, panel));
            list.panels.iter().map(&mut record).collect()
        };
        // Serializing is skipped while no page is open.
        if self.newest.receiver_count() > 0 {
            self.newest
                .send_replace(to_json(time, &list.panels, &points));
        }
        *self.points.lock() = points;
    }

    pub(crate) fn series(&self, panel: &str, widget: &str, span: usize) -> Option<SeriesHistory> {
        let history = self.history.lock();
        history.series(now(), panel, widget, span)
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

fn to_json(time: f64, panels: &[PanelDescription], points: &AllPoints) -> Arc<str> {
    let picture = FeedSnapshot {
        time,
        panels,
        points,
    };
    let json = serde_json::to_string(&picture).expect("names and numbers are always JSON");
    json.into()
}

/// Streams a snapshot at once and then every new one. Ends at shutdown, so that open pages do not
/// delay it.
pub(crate) async fn stream(
    State(feed): State<Arc<Feed>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut newest = feed.newest.subscribe();
    // The current snapshot is sent separately, as the first event.
    newest.mark_unchanged();
    let panels = PanelList::of(&feed.panels).panels;
    let first = {
        let points = feed.points.lock();
        to_json(now(), &panels, &points)
    };
    let rest = stream::unfold(newest, |mut newest| async move {
        newest.changed().await.ok()?;
        let picture = Arc::clone(&newest.borrow_and_update());
        Some((picture, newest))
    });
    let pictures = stream::iter([first]).chain(rest);
    let stop = feed.stop.clone();
    let pictures = pictures.take_until(stop.cancelled_owned());
    Sse::new(pictures.map(|picture| Ok(Event::default().data(picture))))
}
