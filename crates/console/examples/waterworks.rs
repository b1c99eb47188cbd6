//! A demonstration of the console: a fake waterworks with every kind of widget, at the sizes that a
//! page must cope with, and a real engine. Prints the address to open, and serves until it is
//! stopped.
//!
//! ```sh
//! cargo run -p headworks-console --example waterworks
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headworks_console::Console;
use headworks_core::{Class, Config, Core, Job, Time};
use headworks_service::admin::{Admin, AdminConfig};
use headworks_service::config::{Schema, Sources};
use headworks_service::logs::{self, LogConfig};
use headworks_service::panel::*;
use headworks_service::shutdown::Shutdown;
use serde_json::json;

type Promise<'a, T> = futures_util::future::BoxFuture<'a, Result<T, PanelError>>;

const CANALS: u64 = 1000;
const PAGE: u64 = 100;
/// Children per node: with three levels, about ten million nodes.
const BELOW: u64 = 216;

struct Waterworks {
    since: Instant,
    open: AtomicU64,
    flooded: AtomicBool,
    shut: Mutex<Vec<String>>,
}

impl Waterworks {
    fn load(&self) -> Series {
        let seconds = self.since.elapsed().as_secs_f64();
        let line = |name: &str, kind, value: f64, limit| Line {
            name: name.into(),
            kind,
            value: value.round(),
            limit,
        };
        let wave = |period: f64| (seconds / period).sin();
        Series {
            unit: Unit::Count,
            lines: vec![
                line(
                    "barges in",
                    LineKind::Total,
                    40.0 * seconds + 60.0 * wave(9.0),
                    None,
                ),
                line(
                    "waiting",
                    LineKind::Level,
                    8000.0 + 2000.0 * wave(20.0),
                    Some(10_000.0),
                ),
                line(
                    "in locks",
                    LineKind::Level,
                    1200.0 + 300.0 * wave(5.0),
                    None,
                ),
                line("turned away", LineKind::Total, 3.0 * seconds, None),
                line(
                    "open gates",
                    LineKind::Level,
                    self.open.load(Ordering::Relaxed) as f64,
                    Some(8.0),
                ),
            ],
        }
    }

    fn canals(&self, from: u64) -> Page {
        let shut = self.shut.lock().unwrap();
        let row = |n: u64| {
            let id = format!("canal-{n}");
            let health = match n % 9 {
                _ if shut.contains(&id) => Health::Warning("shut by hand".into()),
                4 => Health::Warning("suspended for 300 s: answered 429".into()),
                8 => Health::Bad("the host does not exist".into()),
                _ => Health::Good,
            };
            let cells = vec![
                Cell::Text(format!("canal {n}")),
                Cell::Health(health),
                Cell::Number((n * 7919 % 1000) as f64 / 700.0),
                Cell::Number((n * 104_729 % 5000) as f64),
                Cell::Flag(n.is_multiple_of(2)),
            ];
            Row {
                id,
                cells,
                children: None,
            }
        };
        let until = (from + PAGE).min(CANALS);
        Page {
            rows: (from..until).map(row).collect(),
            next: (until < CANALS).then(|| Cursor(until.to_string())),
        }
    }

    /// The folders of the plan; a cursor is `parent:from`.
    fn plan(parent: &str, from: u64) -> Page {
        let depth = parent.matches('/').count();
        let row = |n: u64| {
            let id = format!("{parent}/{n:03}");
            let files = BELOW.pow(2_u32.saturating_sub(depth as u32)) as f64;
            let cells = vec![
                Cell::Text(format!("basin {n:03}")),
                Cell::Number(files),
                Cell::Number(files * 1_048_576.0 * 1.7),
                Cell::Text(
                    if n.is_multiple_of(5) {
                        "missing"
                    } else {
                        "same"
                    }
                    .into(),
                ),
            ];
            let children = (depth < 2).then(|| Cursor(format!("{id}:0")));
            Row {
                id,
                cells,
                children,
            }
        };
        let until = (from + PAGE).min(BELOW);
        Page {
            rows: (from..until).map(row).collect(),
            next: (until < BELOW).then(|| Cursor(format!("{parent}:{until}"))),
        }
    }

    fn rounds(&self) -> Rounds {
        let at = (self.since.elapsed().as_secs() / 3 % 12) as usize;
        let side = |name: &str, state, last: usize| Side {
            name: name.into(),
            state,
            rounds: (0..=last)
                .map(|n| {
                    let declared = 3 * 4_u64.pow(n.min(7) as u32);
                    let closed = n < last;
                    let failed = if n > 2 { declared / 40 } else { 0 };
                    let done = if closed {
                        declared - failed
                    } else {
                        declared * 2 / 5
                    };
                    Round {
                        declared,
                        done,
                        failed,
                        closed,
                    }
                })
                .collect(),
        };
        Rounds {
            unit: Unit::Count,
            leader: side("source", RoundState::Running, at + 3),
            follower: side("destination", RoundState::Held, at),
            lag: 3,
            max_lead: 4,
        }
    }

    fn waits() -> HeatMap {
        let value = |row: usize, column: usize| {
            (row != 7 || column > 3).then(|| 0.002 * (1.6_f64).powi((row + column) as i32 % 17))
        };
        HeatMap {
            unit: Unit::Seconds,
            columns: (0..12).map(|n| format!("−{} min", 12 - n)).collect(),
            rows: (0..10).map(|n| format!("P{n}")).collect(),
            values: (0..10)
                .map(|row| (0..12).map(|column| value(row, column)).collect())
                .collect(),
        }
    }
}

fn paged(columns: &[(&str, Unit)], total: u64, page: Page) -> Paged {
    let column = |(name, unit): &(&str, Unit)| Column {
        name: (*name).into(),
        unit: *unit,
    };
    Paged {
        columns: columns.iter().map(column).collect(),
        total: Some(total),
        page,
    }
}

fn parameter(name: &str, title: &str, kind: ParameterKind) -> Parameter {
    Parameter {
        name: name.into(),
        title: title.into(),
        kind,
        required: true,
        now: None,
    }
}

fn action(
    name: &str,
    title: &str,
    doc: &str,
    destructive: bool,
    parameters: Vec<Parameter>,
) -> Action {
    Action {
        name: name.into(),
        title: title.into(),
        doc: doc.into(),
        destructive,
        parameters,
    }
}

impl Panel for Waterworks {
    fn name(&self) -> &str {
        "waterworks"
    }

    fn snapshot(&self) -> Snapshot {
        let canals = paged(
            &[
                ("canal", Unit::Count),
                ("state", Unit::Count),
                ("latency", Unit::Seconds),
                ("yield", Unit::Count),
                ("in use", Unit::Count),
            ],
            CANALS,
            self.canals(0),
        );
        let plan = paged(
            &[
                ("basin", Unit::Count),
                ("files", Unit::Count),
                ("size", Unit::Bytes),
                ("status", Unit::Count),
            ],
            BELOW.pow(3),
            Self::plan("plan", 0),
        );
        let flood = Body::Action {
            action: "flood".into(),
        };
        let health = match self.flooded.load(Ordering::Relaxed) {
            true => Health::Bad("flooded".into()),
            false => Health::Warning("2 canals are suspended".into()),
        };
        Snapshot {
            title: "Waterworks".into(),
            health,
            widgets: vec![
                Widget::new("load", "Barges", Body::Series(self.load())),
                Widget::new("waits", "Waits by class", Body::HeatMap(Self::waits())),
                Widget::new("rounds", "Rounds", Body::Rounds(self.rounds())),
                Widget::new("canals", "Canals", Body::Table(canals)),
                Widget::new("plan", "Plan", Body::Tree(plan)),
                Widget::new("flood", "Flood", flood),
            ],
        }
    }

    fn page<'a>(&'a self, widget: &'a str, cursor: &'a Cursor) -> Promise<'a, Page> {
        Box::pin(async move {
            let number = |text: &str| text.parse::<u64>().map_err(|_| PanelError::StaleCursor);
            match widget {
                "canals" => Ok(self.canals(number(&cursor.0)?)),
                "plan" => {
                    let (parent, from) =
                        cursor.0.rsplit_once(':').ok_or(PanelError::StaleCursor)?;
                    Ok(Self::plan(parent, number(from)?))
                }
                other => Err(PanelError::unknown_widget(other)),
            }
        })
    }

    fn actions(&self) -> Vec<Action> {
        let canal = || parameter("canal", "Canal", ParameterKind::Row("canals".into()));
        let gates = parameter("gates", "Gates to open", ParameterKind::Whole);
        vec![
            action(
                "open",
                "Open gates",
                "Opens some more gates.",
                false,
                vec![gates],
            ),
            action("shut", "Shut", "Shuts this canal.", true, vec![canal()]),
            action("flood", "Flood", "Opens everything at once.", true, vec![]),
        ]
    }

    fn act<'a>(&'a self, action: &'a str, args: &'a Args) -> Promise<'a, ActionResult> {
        Box::pin(async move {
            match action {
                "open" => {
                    let gates = args["gates"].as_u64().unwrap_or(0);
                    self.open.fetch_add(gates, Ordering::Relaxed);
                    Ok(ActionResult::new(format!("opened {gates} gates")))
                }
                "shut" => {
                    let canal = args["canal"].as_str().unwrap_or_default().to_owned();
                    self.shut.lock().unwrap().push(canal.clone());
                    Ok(ActionResult {
                        message: format!("shut {canal}"),
                        details: json!({ "canal": canal }),
                    })
                }
                "flood" => {
                    self.flooded.store(true, Ordering::Relaxed);
                    Ok(ActionResult::new("everything is open"))
                }
                other => Err(PanelError::unknown_action(other)),
            }
        })
    }

    fn explains(&self) -> Option<&str> {
        Some("canal")
    }

    fn explain<'a>(&'a self, subject: &'a str) -> Promise<'a, Explanation> {
        Box::pin(async move {
            let fact = |name: &str, value: &str| Fact {
                name: name.into(),
                value: value.into(),
            };
            Ok(Explanation {
                subject: subject.into(),
                summary: format!("{subject} waits for the gate above it"),
                facts: vec![
                    fact("gate", "shut since 07:00"),
                    fact("next look", "in 40 s"),
                ],
            })
        })
    }

    fn settings(&self) -> Vec<Parameter> {
        vec![parameter("pumps", "Pumps", ParameterKind::Whole)]
    }

    fn what_if<'a>(&'a self, changes: &'a [Change]) -> Promise<'a, Prediction> {
        Box::pin(async move {
            let pumps = changes.iter().find(|change| change.key == "pumps");
            let pumps = pumps.and_then(|change| change.value.as_f64());
            let pumps = pumps.ok_or_else(|| PanelError::argument("pumps", "expected a number"))?;
            let flow = Comparison {
                name: "flow".into(),
                unit: Unit::PerSecond,
                now: 100.0,
                then: 50.0 * pumps,
            };
            Ok(Prediction {
                summary: format!("with {pumps} pumps"),
                compared: vec![flow],
            })
        })
    }
}

/// A core with ten thousand waiting jobs and some running ones.
fn engine() -> EnginePanel {
    let mut core: Core<u32> = Core::new(Config::default(), Time::ZERO).expect("defaults are fine");
    let mut now = Time::ZERO;
    for n in 0..10_100_u32 {
        // Jobs beyond the bound are refused, so that the panel shows refusals, too.
        let _ = core.submit(now, Job::new(n).class(Class((n % 10) as u8)));
        now += Duration::from_millis(1);
    }
    for _ in 0..20 {
        now += Duration::from_millis(7);
        let _ = core.next(now);
    }
    let view = core.inspect();
    EnginePanel::new("engine", "Engine", move || view.clone())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sources = Sources::new().flag("--admin-listen", "admin.listen", "127.0.0.1:0");
    let config = Schema::shared().load(&sources)?;
    logs::install(&config.section::<LogConfig>())?;
    let config = config.section::<AdminConfig>();
    let shutdown = Shutdown::new();
    shutdown.on_signals()?;
    let works = Waterworks {
        since: Instant::now(),
        open: AtomicU64::new(1),
        flooded: AtomicBool::new(false),
        shut: Mutex::default(),
    };
    let admin = Admin::new(&config)
        .panel(Arc::new(works))
        .panel(Arc::new(engine()));
    let listening = Console::mount(admin, &shutdown).bind().await?;
    let token = listening.generated_token().unwrap_or_default().to_owned();
    println!("http://{}/?token={token}", listening.address());
    listening.serve(&shutdown);
    shutdown.requested().await;
    let _ = shutdown.drain(Duration::from_secs(10)).await;
    Ok(())
}
