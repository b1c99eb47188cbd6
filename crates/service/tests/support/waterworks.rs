//! A fake application whose panel has every widget and answers every question.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use headworks_service::panel::*;
use serde_json::json;

/// Gates, pumps and canals.
#[derive(Default)]
pub(crate) struct Waterworks {
    open: AtomicU64,
}

const CANALS: u64 = 250;
const PAGE: u64 = 100;

impl Waterworks {
    fn flow(&self) -> Series {
        let line = |name: &str, kind, value, limit| Line {
            name: name.into(),
            kind,
            value,
            limit,
        };
        let open = self.open.load(Ordering::Relaxed) as f64;
        Series {
            unit: Unit::PerSecond,
            lines: vec![
                line("open gates", LineKind::Level, open, Some(8.0)),
                line("water let through", LineKind::Total, 12_000.0, None),
            ],
        }
    }

    fn canals(from: u64) -> Page {
        let until = (from + PAGE).min(CANALS);
        let rows = (from..until).map(|n| Row {
            id: format!("canal-{n}"),
            cells: vec![
                Cell::Text(format!("canal {n}")),
                Cell::Number(n as f64),
                Cell::Flag(n % 2 == 0),
            ],
            children: None,
        });
        let next = (until < CANALS).then(|| Cursor(until.to_string()));
        Page {
            rows: rows.collect(),
            next,
        }
    }

    fn network(parent: &str, depth: usize) -> Page {
        let rows = (0..2).map(|n| {
            let id = format!("{parent}/{n}");
            let health = if n == 0 {
                Health::Good
            } else {
                Health::Warning("silt".into())
            };
            Row {
                cells: vec![Cell::from(id.as_str()), Cell::Health(health), Cell::Empty],
                children: (depth < 3).then(|| Cursor(id.clone())),
                id,
            }
        });
        Page {
            rows: rows.collect(),
            next: None,
        }
    }

    fn rounds() -> Rounds {
        let round = |declared, done, failed| Round {
            declared,
            done,
            failed,
            closed: declared == done + failed,
        };
        let side = |name: &str, state, rounds| Side {
            name: name.into(),
            state,
            rounds,
        };
        Rounds {
            unit: Unit::Count,
            leader: side(
                "upstream",
                RoundState::Running,
                vec![round(1, 1, 0), round(9, 7, 1)],
            ),
            follower: side("downstream", RoundState::Held, vec![round(1, 0, 0)]),
            lag: 3,
            max_lead: 4,
        }
    }
}

impl Panel for Waterworks {
    fn name(&self) -> &str {
        "waterworks"
    }

    fn snapshot(&self) -> Snapshot {
        let columns = ["name", "level", "in use"];
        let columns = columns
            .map(|name| Column {
                name: name.into(),
                unit: Unit::Count,
            })
            .to_vec();
        let table = Paged {
            columns: columns.clone(),
            total: Some(CANALS),
            page: Self::canals(0),
        };
        let tree = Paged {
            columns,
            total: None,
            page: Self::network("source", 0),
        };
        let heat = HeatMap {
            unit: Unit::Percent,
            columns: vec!["mon".into(), "tue".into()],
            rows: vec!["left bank".into(), "right bank".into()],
            values: vec![vec![Some(10.0), None], vec![Some(99.5), Some(0.0)]],
        };
        Snapshot {
            title: "Waterworks".into(),
            health: Health::Good,
            widgets: vec![
                Widget::new("flow", "Flow", Body::Series(self.flow())),
                Widget::new("canals", "Canals", Body::Table(table)),
                Widget::new("network", "Network", Body::Tree(tree)),
                Widget::new("inspection", "Inspection", Body::Rounds(Self::rounds())),
                Widget::new("load", "Load", Body::HeatMap(heat)),
                Widget::new(
                    "flood",
                    "Flood",
                    Body::Action {
                        action: "flood".into(),
                    },
                ),
            ],
        }
    }

    fn page<'a>(
        &'a self,
        widget: &'a str,
        cursor: &'a Cursor,
    ) -> BoxFuture<'a, Result<Page, PanelError>> {
        Box::pin(async move {
            match widget {
                "canals" => match cursor.0.parse() {
                    Ok(from) if from < CANALS => Ok(Self::canals(from)),
                    _ => Err(PanelError::StaleCursor),
                },
                "network" => Ok(Self::network(&cursor.0, cursor.0.matches('/').count())),
                other => Err(PanelError::unknown_widget(other)),
            }
        })
    }

    fn actions(&self) -> Vec<Action> {
        let gates = Parameter {
            name: "gates".into(),
            title: "Gates to open".into(),
            kind: ParameterKind::Whole,
            required: true,
            now: None,
        };
        vec![
            Action {
                name: "open".into(),
                title: "Open gates".into(),
                doc: "Opens some more gates.".into(),
                destructive: false,
                parameters: vec![gates],
            },
            Action {
                name: "flood".into(),
                title: "Flood".into(),
                doc: "Opens everything.".into(),
                destructive: true,
                parameters: vec![],
            },
        ]
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<ActionResult, PanelError>> {
        Box::pin(async move {
            match action {
                "open" => {
                    let gates = args["gates"].as_u64();
                    let gates =
                        gates.ok_or_else(|| PanelError::argument("gates", "none below zero"))?;
                    let before = self.open.fetch_add(gates, Ordering::Relaxed);
                    let details = json!({ "open": before + gates });
                    Ok(ActionResult {
                        message: format!("opened {gates} gates"),
                        details,
                    })
                }
                "flood" => Err(PanelError::Refused("people live downstream".into())),
                other => Err(PanelError::unknown_action(other)),
            }
        })
    }

    fn explain<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Explanation, PanelError>> {
        Box::pin(async move {
            if !subject.starts_with("source/") && !subject.starts_with("canal-") {
                return Err(PanelError::unknown_subject(subject));
            }
            Ok(Explanation {
                subject: subject.into(),
                summary: "it waits for the gate above it".into(),
                facts: vec![Fact {
                    name: "gate".into(),
                    value: "shut since 07:00".into(),
                }],
            })
        })
    }

    fn what_if<'a>(
        &'a self,
        changes: &'a [Change],
    ) -> BoxFuture<'a, Result<Prediction, PanelError>> {
        Box::pin(async move {
            let pumps = changes.iter().find(|change| change.key == "pumps");
            let pumps = pumps.and_then(|change| change.value.as_f64());
            let pumps = pumps.ok_or_else(|| PanelError::argument("pumps", "expected a number"))?;
            let compared = vec![Comparison {
                name: "flow".into(),
                unit: Unit::PerSecond,
                now: 100.0,
                then: 50.0 * pumps,
            }];
            Ok(Prediction {
                summary: format!("with {pumps} pumps"),
                compared,
            })
        })
    }
}
