//! A panel that shows the internals of a scheduling core.

use headworks_core::{Reason, TargetState, View};

use super::{
    Body, Cell, Health, HeatMap, Line, LineKind, Paged, Panel, Row, Series, Snapshot, Unit, Widget,
};

/// Maximum rows in the table of targets: a snapshot is fetched once a second and must stay small.
const TARGETS: usize = 200;
/// The quantiles of the wait times that are shown.
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max")];

/// A panel over the [`View`] of a core.
///
/// ```
/// use headworks_core::{Config, Core, Time};
/// use headworks_service::panel::{EnginePanel, Panel};
///
/// let core: Core<()> = Core::new(Config::default(), Time::ZERO).unwrap();
/// let view = core.inspect();
/// let panel = EnginePanel::new("crawler-engine", "The crawler's engine", move || view.clone());
/// assert_eq!(panel.snapshot().widgets[0].id, "load");
/// ```
pub struct EnginePanel {
    name: String,
    title: String,
    take_view: Box<dyn Fn() -> View + Send + Sync>,
}

impl EnginePanel {
    /// A panel with the name `name` and the title `title`. `take_view` takes a snapshot of the
    /// core.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        take_view: impl Fn() -> View + Send + Sync + 'static,
    ) -> EnginePanel {
        EnginePanel {
            name: name.into(),
            title: title.into(),
            take_view: Box::new(take_view),
        }
    }
}

impl Panel for EnginePanel {
    fn name(&self) -> &str {
        &self.name
    }

    fn snapshot(&self) -> Snapshot {
        let view = (self.take_view)();
        let mut widgets = vec![
            Widget::new("load", "Jobs", Body::Series(load(&view))),
            Widget::new(
                "refused",
                "Refused, by reason",
                Body::Series(refused(&view)),
            ),
            Widget::new("waits", "Waits by class", Body::HeatMap(waits(&view))),
            Widget::new("classes", "Classes", Body::Table(classes(&view))),
        ];
        if !view.targets.is_empty() {
            widgets.push(Widget::new(
                "targets",
                "Targets",
                Body::Table(targets(&view)),
            ));
        }
        Snapshot {
            title: self.title.clone(),
            health: health(&view),
            widgets,
        }
    }
}

fn health(view: &View) -> Health {
    if view.draining {
        return Health::Warning("draining: new jobs are refused".into());
    }
    if view.paused {
        return Health::Warning("paused: no jobs are granted".into());
    }
    match (view.running, view.waiting) {
        (0, 0) => Health::Idle,
        (_, waiting) if view.capacity > 0 && waiting >= view.capacity => {
            Health::Bad(format!("queue full: {waiting} waiting"))
        }
        _ => Health::Good,
    }
}

fn line(name: &str, kind: LineKind, value: u64, limit: Option<u64>) -> Line {
    Line {
        name: name.to_owned(),
        kind,
        value: value as f64,
        limit: limit.map(|limit| limit as f64),
    }
}

fn load(view: &View) -> Series {
    let over = |count: fn(&headworks_core::ClassStats) -> u64| {
        view.classes.iter().map(|class| count(&class.stats)).sum()
    };
    Series {
        unit: Unit::Count,
        lines: vec![
            line("admitted", LineKind::Total, over(|s| s.admitted), None),
            line(
                "waiting",
                LineKind::Level,
                view.waiting,
                Some(view.capacity),
            ),
            line("running", LineKind::Level, view.running, None),
            line("delayed", LineKind::Level, view.delayed, None),
            line(
                "refused",
                LineKind::Total,
                over(headworks_core::ClassStats::refused_in_all),
                None,
            ),
        ],
    }
}

fn refused(view: &View) -> Series {
    let lines = Reason::ALL.iter().enumerate().map(|(at, reason)| {
        let count = view.classes.iter().map(|class| class.stats.refused[at]);
        line(reason.name(), LineKind::Total, count.sum(), None)
    });
    Series {
        unit: Unit::Count,
        lines: lines.collect(),
    }
}

fn waits(view: &View) -> HeatMap {
    let row = |class: &headworks_core::ClassView| {
        let waits = &class.stats.waits;
        let known = waits.count() > 0;
        let seconds = |quantile| waits.quantile(quantile).as_secs_f64();
        QUANTILES
            .map(|(quantile, _)| known.then(|| seconds(quantile)))
            .to_vec()
    };
    HeatMap {
        unit: Unit::Seconds,
        columns: QUANTILES.map(|(_, name)| name.to_owned()).to_vec(),
        rows: (0..view.classes.len()).map(|n| format!("P{n}")).collect(),
        values: view.classes.iter().map(row).collect(),
    }
}

fn table(names: &[(&str, Unit)], total: usize, rows: Vec<Row>) -> Paged {
    Paged {
        total: Some(total as u64),
        ..Paged::new(names, rows, None)
    }
}

fn numbers(id: String, first: Cell, numbers: &[u64]) -> Row {
    let numbers = numbers.iter().map(|number| Cell::Number(*number as f64));
    Row {
        id,
        cells: std::iter::once(first).chain(numbers).collect(),
        children: None,
    }
}

fn classes(view: &View) -> Paged {
    let rows = view.classes.iter().enumerate().map(|(at, class)| {
        let (name, stats) = (format!("P{at}"), &class.stats);
        let figures = [
            u64::from(class.weight),
            class.waiting,
            stats.admitted,
            stats.granted,
            stats.charged,
            stats.refused_in_all(),
            stats.ended.shed,
            stats.ended.expired,
            stats.retried,
            stats.aged,
        ];
        numbers(name.clone(), Cell::Text(name), &figures)
    });
    let names = [
        "class", "weight", "waiting", "admitted", "granted", "charged", "refused", "shed",
        "expired", "retried", "aged",
    ];
    table(
        &names.map(|name| (name, Unit::Count)),
        view.classes.len(),
        rows.collect(),
    )
}

fn targets(view: &View) -> Paged {
    let rows = view.targets.iter().enumerate().take(TARGETS);
    let rows = rows.map(|(at, target)| {
        let state = match target.state {
            TargetState::Active => Health::Good,
            other => Health::Warning(other.name().to_owned()),
        };
        let level = |level: Option<f64>| level.map_or(Cell::Empty, Cell::Number);
        let mut row = numbers(at.to_string(), Cell::Text(format!("target {at}")), &[]);
        row.cells.extend([
            Cell::Health(state),
            Cell::Number(f64::from(target.running)),
            Cell::Number(target.waiting as f64),
            Cell::Number(target.granted as f64),
            Cell::Number(f64::from(target.faults)),
            level(target.levels.0),
            level(target.levels.1),
        ]);
        row
    });
    let names = [
        "target",
        "state",
        "running",
        "waiting",
        "granted",
        "consecutive faults",
        "requests left",
        "cost left",
    ];
    table(
        &names.map(|name| (name, Unit::Count)),
        view.targets.len(),
        rows.collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_core::{Config, Core, Job, Time};

    #[test]
    fn waiting_and_running_jobs_are_shown() {
        let mut core: Core<()> = Core::new(Config::default(), Time::ZERO).unwrap();
        let now = Time::ZERO;
        for _ in 0..3 {
            assert!(core.submit(now, Job::new(())).is_ok());
        }
        let lease = core.next(now);
        assert!(lease.is_some());
        let view = core.inspect();
        let panel = EnginePanel::new("e", "Engine", move || view.clone());
        let Body::Series(load) = &panel.snapshot().widgets[0].body else {
            panic!("the first widget is the load");
        };
        let value = |name| {
            load.lines
                .iter()
                .find(|line| line.name == name)
                .unwrap()
                .value
        };
        assert_eq!((value("waiting"), value("running")), (2.0, 1.0));
        assert_eq!(value("admitted"), 3.0);
    }
}
