//! The console page of jobs that run elsewhere, and its actions.

use headworks_migrate::{
    CopyOptions, Filters, Job, MigrateConfig, Migrations, Settings, StateReader,
};
use headworks_service::panel::{Args, Body, Cell, Cursor, Panel, Row, Snapshot};
use headworks_service::shutdown::Shutdown;
use headworks_storage::display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const TREE: &str = "synth://?seed=2&depth=2&dirs=3&files=70&size=100";

struct Watched {
    panel: Arc<dyn Panel>,
    shutdown: Shutdown,
    folder: tempfile::TempDir,
}

impl Watched {
    fn new() -> Watched {
        let folder = tempfile::tempdir().unwrap();
        let shutdown = Shutdown::new();
        let mut config = MigrateConfig::default();
        config.jobs = vec![folder.path().to_owned()];
        config.demo_folder = Some(folder.path().join("demo"));
        let panel = Migrations::start(&config, &shutdown).panel();
        Watched {
            panel,
            shutdown,
            folder,
        }
    }

    /// Plans a job, and returns the path of its state file.
    async fn plan(&self, source: &str) -> String {
        let state = self.folder.path().join("job.db");
        let job = open(&state, source, &self.folder.path().join("copy"));
        job.plan().await.unwrap();
        job.close().unwrap();
        state.display().to_string()
    }

    /// Waits for the first snapshot that satisfies a condition.
    async fn until(&self, what: &str, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let wait = async {
            loop {
                let snapshot = self.panel.snapshot();
                if is_so(&snapshot) {
                    return snapshot;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let seen = tokio::time::timeout(Duration::from_secs(60), wait).await;
        seen.unwrap_or_else(|_| panic!("never: {what}: {:?}", self.panel.snapshot()))
    }

    async fn children(&self, cursor: &Cursor) -> (Vec<Row>, Option<Cursor>) {
        let page = self.panel.page("plan", cursor).await.unwrap();
        (page.rows, page.next)
    }

    async fn act(&self, action: &str, name: &str, value: &str) -> String {
        let args: Args = [(name.to_owned(), value.into())].into_iter().collect();
        let actions = self.panel.actions();
        let known = actions.iter().find(|known| known.name == action).unwrap();
        known.check(&args).unwrap();
        self.panel.act(action, &args).await.unwrap().message
    }
}

fn open(state: &Path, source: &str, destination: &Path) -> Job {
    let between = Some((source.as_ref(), destination.as_os_str()));
    Job::open(state, between, &Filters::default(), Settings::default()).unwrap()
}

fn rows(snapshot: &Snapshot, id: &str) -> Vec<Row> {
    let widget = snapshot.widgets.iter().find(|widget| widget.id == id);
    match widget.map(|widget| &widget.body) {
        Some(Body::Table(paged) | Body::Tree(paged)) => paged.page.rows.clone(),
        _ => Vec::new(),
    }
}

fn cells(row: &Row) -> Vec<String> {
    let word = |cell: &Cell| match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    row.cells.iter().map(word).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_shown_and_browsed_with_totals_and_page_by_page() {
    let watched = Watched::new();
    let job = watched.plan(TREE).await;
    let snapshot = watched
        .until("it is planned", |snapshot| {
            rows(snapshot, "jobs")
                .first()
                .is_some_and(|row| cells(row)[3] == "planned")
        })
        .await;
    // 13 folders with 70 files each; the root is not an entry.
    let found = cells(&rows(&snapshot, "statuses")[0]);
    assert_eq!(found[..4], ["job", "plan", "missing", "922"]);
    let plan = rows(&snapshot, "plan");
    assert_eq!(cells(&plan[0])[2..6], ["922", "91000", "922", "91000"]);
    let sides = snapshot
        .widgets
        .iter()
        .find_map(|widget| match &widget.body {
            Body::Rounds(rounds) => Some(rounds.clone()),
            _ => None,
        });
    let sides = sides.expect("the widget has rounds");
    let declared = |side: &headworks_service::panel::Side| {
        side.rounds
            .iter()
            .map(|round| (round.declared, round.done))
            .collect::<Vec<_>>()
    };
    assert_eq!(declared(&sides.leader), [(1, 1), (3, 3), (9, 9)]);
    assert_eq!(declared(&sides.follower), [(1, 1), (3, 3), (9, 9)]);

    let (first, next) = watched.children(plan[0].children.as_ref().unwrap()).await;
    let (second, end) = watched.children(&next.unwrap()).await;
    assert_eq!((first.len(), second.len(), end), (50, 23, None));
    let folder = first
        .iter()
        .chain(&second)
        .find(|row| row.children.is_some())
        .unwrap();
    // The folder itself counts in its parent: 3 folders and 4 times 70 files are below it.
    assert_eq!(cells(folder)[1..5], ["missing", "283", "28000", "283"]);
    let explanation = watched.panel.explain(&folder.id).await.unwrap();
    assert!(explanation.summary.contains("missing"), "{explanation:?}");

    assert_eq!(watched.act("exclude", "entry", &folder.id).await, "done");
    let (again, _) = watched.children(plan[0].children.as_ref().unwrap()).await;
    let same = again.iter().find(|row| row.id == folder.id);
    assert!(same.is_none_or(|row| cells(row)[1] == "excluded"));
    assert_eq!(watched.act("include", "entry", &folder.id).await, "done");
    assert_eq!(watched.act("pause", "job", &job).await, "done");
    watched
        .until("it is paused", |snapshot| {
            let jobs = rows(snapshot, "jobs");
            format!("{:?}", jobs[0].cells[1]).contains("paused")
        })
        .await;
    let _ = watched.shutdown.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_shown_with_their_cause_and_the_next_step() {
    let watched = Watched::new();
    let names = "synth://?seed=2&depth=1&dirs=2&files=1";
    let job = watched.plan(names).await;
    let state = StateReader::open(Path::new(&job)).unwrap();
    let mut folder = String::new();
    state
        .entries(|line| {
            if line.kind == headworks_storage::Kind::Folder {
                folder = display(&line.path).to_string();
            }
            Ok(())
        })
        .unwrap();
    std::fs::remove_file(&job).unwrap();
    watched.plan(&format!("{names}&deny={folder}")).await;
    let snapshot = watched
        .until("a failure is known", |snapshot| {
            let widget = snapshot
                .widgets
                .iter()
                .find(|widget| widget.id == "failures");
            matches!(&widget.unwrap().body, Body::Table(paged) if paged.total == Some(1))
        })
        .await;
    let failures = snapshot
        .widgets
        .iter()
        .find(|widget| widget.id == "failures");
    let Body::Table(paged) = &failures.unwrap().body else {
        panic!("it is a table");
    };
    let page = watched
        .panel
        .page("failures", paged.page.next.as_ref().unwrap());
    let page = page.await.unwrap();
    let row = cells(&page.rows[0]);
    assert_eq!(row[0], folder);
    assert!(
        row[2].contains("permission denied") && row[4].contains("permission"),
        "{row:?}"
    );
    assert!(matches!(
        snapshot.health,
        headworks_service::panel::Health::Warning(_)
    ));
    watched.act("retry", "job", &job).await;
    watched
        .until("it is to be planned again", |snapshot| {
            cells(&rows(snapshot, "jobs")[0])[3] == "planning"
        })
        .await;
    let _ = watched.shutdown.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synthetic_migration_can_be_started_watched_and_drained() {
    let watched = Watched::new();
    let done = watched
        .panel
        .act("start-synthetic", &Args::new())
        .await
        .unwrap();
    assert!(done.message.contains("synth://"), "{}", done.message);
    watched
        .until("its plan is seen to run", |snapshot| {
            rows(snapshot, "jobs").iter().any(|row| {
                let row = cells(row);
                row[3] == "plan" && row[4].parse::<f64>().is_ok_and(|done| done > 0.0)
            })
        })
        .await;
    let drained = watched.shutdown.drain(Duration::from_secs(60)).await;
    assert!(drained.unfinished.is_empty(), "{:?}", drained.unfinished);
    let state = watched.folder.path().join("demo/synthetic-1.db");
    assert_eq!(headworks_migrate::lock_holder(&state), None);
    // How far it came depends on the machine's speed.
    let stage = StateReader::open(&state)
        .unwrap()
        .meta_value("stage")
        .unwrap();
    assert_ne!(stage, "done", "the drain ended it before its end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_copy_shows_its_outcome() {
    let watched = Watched::new();
    let state = watched.folder.path().join("job.db");
    let job = open(&state, TREE, &watched.folder.path().join("copy"));
    job.plan().await.unwrap();
    let outcome = job.copy(&CopyOptions::default()).await.unwrap();
    assert!(outcome.adds_up());
    job.close().unwrap();
    let snapshot = watched
        .until("it is done", |snapshot| {
            rows(snapshot, "jobs")
                .first()
                .is_some_and(|row| cells(row)[3] == "done")
        })
        .await;
    let results: Vec<Vec<String>> = rows(&snapshot, "statuses").iter().map(cells).collect();
    assert!(
        results
            .iter()
            .any(|row| row[1..4] == ["result", "copied", "922"]),
        "{results:?}"
    );
    let _ = watched.shutdown.drain(Duration::from_secs(10)).await;
}
