//! Progress output: bars on a terminal, a line from time to time otherwise, or JSON events.

use crate::report::{note, set_bars};
use headworks_migrate::{Progress, ProgressSnapshot, RateMeter, Round, SideSnapshot};
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PLAN: &str = "plan";

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

/// Shows progress on stderr until [`Shown::end`] is called.
pub(crate) fn show(progress: Arc<Progress>, json: bool) -> Shown {
    let end = CancellationToken::new();
    let ended = end.clone();
    let bars = (!json && std::io::stderr().is_terminal()).then(Bars::new);
    let task = tokio::spawn(async move {
        let every = match (&bars, json) {
            (Some(_), _) => Duration::from_millis(120),
            (None, true) => Duration::from_secs(1),
            (None, false) => Duration::from_secs(5),
        };
        let began = Instant::now();
        let mut meter = RateMeter::default();
        while ended
            .run_until_cancelled(tokio::time::sleep(every))
            .await
            .is_some()
        {
            let live = meter.snapshot(&progress);
            match &bars {
                Some(bars) => bars.draw(&live),
                None if json => note(&event(&live, began).to_string()),
                None => note(&line(&live)),
            }
        }
        if let Some(bars) = bars {
            bars.clear();
        }
    });
    Shown { task, end }
}

/// Two bars: the two sides of a plan with their rounds, or a phase by items and by bytes.
struct Bars {
    all: MultiProgress,
    bars: [ProgressBar; 2],
}

impl Bars {
    fn new() -> Bars {
        let all = MultiProgress::new();
        // A wide message is cut at the edge of the terminal: the rest of one that wraps would stay
        // on the screen.
        let style = ProgressStyle::with_template("{prefix:12} {bar:20} {wide_msg}");
        let style = style.expect("a good template");
        let bar = || all.add(ProgressBar::new(1).with_style(style.clone()));
        let bars = [bar(), bar()];
        set_bars(Some(all.clone()));
        Bars { all, bars }
    }

    fn draw(&self, live: &ProgressSnapshot) {
        let [one, two] = &self.bars;
        if live.phase == PLAN {
            for (at, (bar, name)) in [(one, "source"), (two, "destination")]
                .into_iter()
                .enumerate()
            {
                let side = &live.sides[at];
                let round = current(side);
                put(bar, name, (round.ended, round.declared), side_words(side));
            }
            return;
        }
        put(one, &live.phase, (live.done, live.total), items(live));
        match live.total_bytes {
            0 => put(two, "", (0, 1), pace_words(live)),
            total => put(two, "", (live.bytes, total), pace_words(live)),
        }
    }

    fn clear(&self) {
        set_bars(None);
        let _ = self.all.clear();
    }
}

fn put(bar: &ProgressBar, name: &str, (done, total): (u64, u64), words: String) {
    bar.set_prefix(name.to_owned());
    bar.set_length(total.max(1));
    bar.set_position(done);
    bar.set_message(words);
}

fn current(side: &SideSnapshot) -> Round {
    side.rounds
        .get(side.round as usize)
        .copied()
        .unwrap_or_default()
}

fn side_words(side: &SideSnapshot) -> String {
    let round = current(side);
    let mut words = format!(
        "round {}: {} of {}; {} folders, {} entries",
        side.round, round.ended, round.declared, side.folders, side.entries
    );
    if side.listings.0 > 0 {
        let (limit, running) = side.listings;
        words += &format!(", {running} of {limit} listings at a time");
    }
    if side.retried > 0 {
        words += &format!(", {} tried again", side.retried);
    }
    if side.overloads > 0 {
        words += &format!(", asked {} times to wait", side.overloads);
    }
    if let Some(waits) = side.activity.waits_for() {
        words += &format!("; {waits}");
    }
    words
}

fn items(live: &ProgressSnapshot) -> String {
    let failed = match live.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let transfers = match live.transfers {
        (0, _) => String::new(),
        (limit, running) => format!(", {running} of {limit} transfers"),
    };
    format!("{} of {}{failed}{transfers}", live.done, live.total)
}

/// How fast, how much longer, and what is waited for.
fn pace_words(live: &ProgressSnapshot) -> String {
    let mut words = format!("{:.0}/s", live.rate);
    if live.total_bytes > 0 {
        words += &format!(
            ", {} of {}, {}/s",
            HumanBytes(live.bytes),
            HumanBytes(live.total_bytes),
            HumanBytes(live.byte_rate as u64)
        );
    }
    if let Some(eta) = live.eta {
        words += &format!(", {} left", time(eta));
    }
    if let Some(waits) = &live.waits_for {
        words += &format!(", waits for {waits}");
    }
    words
}

/// How long a command took, and how fast it sent bytes.
pub(crate) fn closing_line(took: Duration, sent: u64) -> String {
    let seconds = took.as_secs_f64();
    let took = match seconds < 10.0 {
        true => format!("took {seconds:.1} s"),
        false => format!("took {}", time(seconds)),
    };
    match sent {
        0 => took,
        sent => {
            let rate = HumanBytes((sent as f64 / seconds.max(0.001)) as u64);
            format!("{took}; {} sent, {rate}/s", HumanBytes(sent))
        }
    }
}

fn time(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// A run in one line.
pub(crate) fn line(live: &ProgressSnapshot) -> String {
    if live.phase == PLAN {
        let [source, destination] = &live.sides;
        return format!(
            "plan: source {}; destination {}; {:.0} folders/s",
            side_words(source),
            side_words(destination),
            live.rate
        );
    }
    format!("{}: {}, {}", live.phase, items(live), pace_words(live))
}

fn event(live: &ProgressSnapshot, began: Instant) -> String {
    let mut event = serde_json::json!({
        "event": "progress",
        "seconds": began.elapsed().as_secs_f64(),
    });
    if let (Some(event), Ok(serde_json::Value::Object(live))) =
        (event.as_object_mut(), serde_json::to_value(live))
    {
        event.extend(live);
    }
    event.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_for_people() {
        assert_eq!(
            [0.2, 59.0, 61.0, 7260.0].map(time),
            ["1 s", "59 s", "1 min 1 s", "2 h 1 min"]
        );
    }

    #[test]
    fn the_closing_line_says_how_long_and_how_fast() {
        let line = |seconds, sent| closing_line(Duration::from_secs_f64(seconds), sent);
        assert_eq!(line(2.25, 0), "took 2.2 s");
        assert_eq!(
            line(90.0, 180 << 20),
            "took 1 min 30 s; 180.00 MiB sent, 2.00 MiB/s"
        );
    }

    #[test]
    fn a_line_says_how_far_how_fast_and_what_is_waited_for() {
        let mut live = ProgressSnapshot::default();
        live.phase = "copy".into();
        (live.done, live.total, live.failed) = (10, 40, 1);
        (live.bytes, live.total_bytes) = (1 << 20, 4 << 20);
        (live.rate, live.byte_rate, live.eta) = (5.0, 524_288.0, Some(6.0));
        live.waits_for = Some("the destination to be durable".into());
        assert_eq!(
            line(&live),
            "copy: 10 of 40, 1 failed, 5/s, 1.00 MiB of 4.00 MiB, 512.00 KiB/s, 6 s left, \
             waits for the destination to be durable"
        );
    }
}
