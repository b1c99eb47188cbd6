//! How far it is: bars on a terminal, a line now and then otherwise, or JSON events.

use headworks_migrate::{Phase, Progress};
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Shown {
    task: JoinHandle<()>,
    end: CancellationToken,
}

impl Shown {
    pub(crate) async fn end(self) {
        self.end.cancel();
        let _ = self.task.await;
    }
}

/// Shows progress on stderr until it is ended.
pub(crate) fn show(progress: Arc<Progress>, json: bool) -> Shown {
    let end = CancellationToken::new();
    let ended = end.clone();
    let bars = (!json && std::io::stderr().is_terminal()).then(Bars::new);
    let task = tokio::spawn(async move {
        let every = match bars.is_some() {
            true => Duration::from_millis(120),
            false => Duration::from_secs(5),
        };
        let began = Instant::now();
        while ended
            .run_until_cancelled(tokio::time::sleep(every))
            .await
            .is_some()
        {
            match &bars {
                Some(bars) => bars.draw(&progress),
                None if json => eprintln!("{}", event(&progress, began)),
                None => eprintln!("{}", line(&progress)),
            }
        }
        if let Some(bars) = bars {
            bars.clear();
        }
    });
    Shown { task, end }
}

struct Bars {
    all: MultiProgress,
    bars: [ProgressBar; 2],
}

impl Bars {
    fn new() -> Bars {
        let all = MultiProgress::new();
        let style =
            ProgressStyle::with_template("{prefix:12} {bar:30} {msg}").expect("a good template");
        let bar = || all.add(ProgressBar::new(1).with_style(style.clone()));
        let bars = [bar(), bar()];
        Bars { all, bars }
    }

    fn draw(&self, progress: &Progress) {
        let phase = progress.phase();
        if phase == Phase::Plan {
            for (at, name) in ["source", "destination"].into_iter().enumerate() {
                let side = &progress.sides[at];
                self.bars[at].set_prefix(name);
                self.bars[at].set_length(side.declared.load(Relaxed).max(1));
                self.bars[at].set_position(side.ended.load(Relaxed));
                self.bars[at].set_message(side_words(progress, at));
            }
            return;
        }
        self.bars[0].set_prefix(phase.word());
        self.bars[0].set_length(progress.total.load(Relaxed).max(1));
        self.bars[0].set_position(progress.done.load(Relaxed));
        let eta = self.bars[0].eta();
        self.bars[0].set_message(format!("{}, {} s left", words(progress), eta.as_secs()));
        self.bars[1].set_prefix("");
        self.bars[1].set_message("");
    }

    fn clear(&self) {
        let _ = self.all.clear();
    }
}

fn side_words(progress: &Progress, at: usize) -> String {
    let side = &progress.sides[at];
    let mut words = format!(
        "round {}, {} folders, {} entries",
        side.round.load(Relaxed),
        side.folders.load(Relaxed),
        side.entries.load(Relaxed)
    );
    let (retried, overloads) = (side.retried.load(Relaxed), side.overloads.load(Relaxed));
    if retried > 0 {
        words += &format!(", {retried} tried again");
    }
    if overloads > 0 {
        words += &format!(", asked {overloads} times to wait");
    }
    words
}

fn words(progress: &Progress) -> String {
    let done = progress.done.load(Relaxed);
    let total = progress.total.load(Relaxed);
    let bytes = HumanBytes(progress.bytes.load(Relaxed));
    let failed = progress.failed.load(Relaxed);
    let paused = if progress.paused.load(Relaxed) {
        ", paused"
    } else {
        ""
    };
    match failed {
        0 => format!("{done} of {total}, {bytes}{paused}"),
        _ => format!("{done} of {total}, {bytes}, {failed} failed{paused}"),
    }
}

fn line(progress: &Progress) -> String {
    match progress.phase() {
        Phase::Plan => {
            let sides = [side_words(progress, 0), side_words(progress, 1)];
            format!("plan: source {}; destination {}", sides[0], sides[1])
        }
        phase => format!("{}: {}", phase.word(), words(progress)),
    }
}

fn event(progress: &Progress, began: Instant) -> String {
    let side = |at: usize| {
        let side = &progress.sides[at];
        serde_json::json!({
            "round": side.round.load(Relaxed),
            "folders": side.folders.load(Relaxed),
            "entries": side.entries.load(Relaxed),
            "retried": side.retried.load(Relaxed),
        })
    };
    let event = serde_json::json!({
        "event": "progress",
        "phase": progress.phase().word(),
        "seconds": began.elapsed().as_secs_f64(),
        "source": side(0),
        "destination": side(1),
        "done": progress.done.load(Relaxed),
        "total": progress.total.load(Relaxed),
        "bytes": progress.bytes.load(Relaxed),
        "failed": progress.failed.load(Relaxed),
        "paused": progress.paused.load(Relaxed),
    });
    event.to_string()
}
