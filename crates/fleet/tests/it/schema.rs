//! Schemas: upgrades while older nodes run, newer schemas, and databases of something else.

use headworks_fleet::postgres::Timeouts;
use headworks_fleet::postgres::schema::{Schema, SchemaVersion, Step, StepKind};
use headworks_fleet::testing::{PostgresServer, eventually};
use headworks_fleet::{Error, JoinOptions, Node, Registry, Result, Timing, tables};

const FIRST: Step = tables::STEPS[0];
const EXPAND: Step = Step {
    version: 2,
    min_compatible: 1,
    kind: StepKind::Expand,
    sql: "ALTER TABLE {schema}.node ADD COLUMN zone text NOT NULL DEFAULT ''",
};
const CONTRACT: Step = Step {
    version: 3,
    min_compatible: 2,
    kind: StepKind::Contract,
    sql: "ALTER TABLE {schema}.node DROP COLUMN joined",
};
const NEXT: Step = Step {
    version: 4,
    min_compatible: 2,
    kind: StepKind::Expand,
    sql: "CREATE TABLE {schema}.later (x int)",
};

const OLD: &[Step] = &[FIRST];
const NEW: &[Step] = &[FIRST, EXPAND, CONTRACT];
const NEWER: &[Step] = &[FIRST, EXPAND, CONTRACT, NEXT];

async fn apply(server: &PostgresServer, steps: &[Step]) -> Result<SchemaVersion> {
    let schema = Schema {
        name: "headworks",
        fleet: "headworks",
        steps,
    };
    let mut link = server.client().link("test", Timeouts::default());
    schema.apply(&mut link).await
}

fn version(server: &PostgresServer) -> String {
    let sql = "SELECT version, min_compatible FROM headworks.schema_version";
    server.psql("fleet", sql)
}

async fn join(server: &PostgresServer, name: &str, steps: &'static [Step]) -> Result<Node> {
    let mut options = JoinOptions::new(name);
    options.steps = steps;
    options.timing = Timing::scaled(0.05);
    Node::join(&server.client(), options).await
}

/// Everything in the database that is not PostgreSQL's own.
fn contents(server: &PostgresServer) -> String {
    let sql = "SELECT n.nspname, c.relname FROM pg_class c \
               JOIN pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' \
               UNION ALL SELECT nspname, '' FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY 1, 2";
    server.psql("fleet", sql)
}

#[tokio::test]
async fn a_rolling_upgrade_expands_first_and_contracts_when_no_older_node_is_left() {
    let server = PostgresServer::start();
    let old = join(&server, "old", OLD).await.unwrap();
    assert_eq!(version(&server), "1|1");
    let new = join(&server, "new", NEW).await.unwrap();
    assert_eq!(version(&server), "2|1", "the old node still runs");
    // Old programs can start and go on.
    let second = join(&server, "second", OLD).await.unwrap();
    let mut seen = old.members();
    let three = |members: &std::sync::Arc<Vec<_>>| members.len() == 3;
    seen.wait_for(three).await.unwrap();
    second.leave().await.unwrap();
    assert_eq!(version(&server), "2|1");
    old.leave().await.unwrap();
    eventually("the schema contracts", async || {
        (version(&server) == "3|2").then_some(())
    })
    .await;
    let error = join(&server, "late", OLD).await.map(drop).unwrap_err();
    assert!(
        matches!(error, Error::SchemaNewer { known: 1, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("upgrade Headworks"), "{error}");
    assert_eq!(
        Registry::new(&server.client()).list().await.unwrap().len(),
        1
    );
    new.leave().await.unwrap();
}

#[tokio::test]
async fn an_upgrade_across_two_versions_waits_for_older_nodes() {
    let server = PostgresServer::start();
    let old = join(&server, "old", OLD).await.unwrap();
    let error = apply(&server, NEWER).await.unwrap_err();
    assert!(error.to_string().contains("(old)"), "{error}");
    assert!(matches!(error, Error::OlderNodes { .. }));
    assert_eq!(version(&server), "1|1", "nothing was changed");
    old.leave().await.unwrap();
    let after = apply(&server, NEWER).await.unwrap();
    assert_eq!((after.version, after.min_compatible), (4, 2));
    assert!(!after.contract_pending);
}

#[tokio::test]
async fn nodes_that_start_together_upgrade_once() {
    let server = PostgresServer::start();
    let started = (0..4).map(|_| apply(&server, NEW));
    for applied in futures_util::future::join_all(started).await {
        assert_eq!(applied.unwrap().version, 3);
    }
}

#[tokio::test]
async fn a_failing_step_changes_nothing() {
    const BROKEN: Step = Step {
        version: 2,
        min_compatible: 1,
        kind: StepKind::Expand,
        sql: "CREATE TABLE {schema}.half (x int); SELECT 1/0",
    };
    let server = PostgresServer::start();
    apply(&server, OLD).await.unwrap();
    let before = contents(&server);
    let error = apply(&server, &[FIRST, BROKEN]).await.unwrap_err();
    assert!(error.to_string().contains("division by zero"), "{error}");
    assert_eq!(contents(&server), before);
    assert_eq!(version(&server), "1|1");
}

#[tokio::test]
async fn a_database_of_something_else_is_refused_and_left_unchanged() {
    let server = PostgresServer::start();
    server.psql(
        "fleet",
        "CREATE TABLE invoices (id int); INSERT INTO invoices VALUES (1)",
    );
    let before = contents(&server);
    let error = join(&server, "a", OLD).await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("public.invoices") && text.contains("CREATE SCHEMA headworks"),
        "{text}"
    );
    assert_eq!(contents(&server), before);

    // The administrator permits sharing.
    server.psql("fleet", "CREATE SCHEMA headworks");
    join(&server, "a", OLD)
        .await
        .unwrap()
        .leave()
        .await
        .unwrap();
    assert_eq!(server.psql("fleet", "SELECT count(*) FROM invoices"), "1");
}

#[tokio::test]
async fn a_schema_of_somebody_else_is_refused_and_left_unchanged() {
    let server = PostgresServer::start();
    let theirs = "CREATE SCHEMA headworks; CREATE TABLE headworks.schema_version (version int)";
    server.psql("fleet", theirs);
    let before = contents(&server);
    let error = apply(&server, OLD).await.unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error:?}");
    assert!(
        error.to_string().contains("was not made by Headworks"),
        "{error}"
    );
    assert_eq!(contents(&server), before);
}

#[tokio::test]
async fn extensions_do_not_make_a_database_foreign() {
    let server = PostgresServer::start();
    // It has a view in the schema `public`.
    server.psql("fleet", "CREATE EXTENSION pg_stat_statements");
    apply(&server, OLD).await.unwrap();
}

#[tokio::test]
async fn a_user_without_permission_gets_a_clear_error() {
    let server = PostgresServer::start();
    server.psql("fleet", "CREATE ROLE guest LOGIN PASSWORD 'only for tests'");
    let url = server.url().replace("fleet@", "guest@");
    let guest = PostgresServer::client_of(&url);
    let error = Node::join(&guest, JoinOptions::new("a"))
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("permission denied for database fleet"),
        "{error}"
    );
}

#[tokio::test]
async fn schemas_of_jobs_are_beside_the_fleets() {
    const JOB: &[Step] = &[Step {
        version: 1,
        min_compatible: 1,
        kind: StepKind::Expand,
        sql: "CREATE TABLE {schema}.folder (id bigint)",
    }];
    let server = PostgresServer::start();
    apply(&server, OLD).await.unwrap();
    let job: headworks_fleet::JobName = "home-2".parse().unwrap();
    let names = [job.schema(), "x\"; DROP SCHEMA headworks; --".to_owned()];
    let apply = async |name: &str, server: &PostgresServer| {
        let mut link = server.client().link("test", Timeouts::default());
        let schema = Schema {
            name,
            fleet: "headworks",
            steps: JOB,
        };
        schema.apply(&mut link).await
    };
    assert_eq!(apply(&names[0], &server).await.unwrap().version, 1);
    let refused = apply(&names[1], &server).await;
    assert!(matches!(refused, Err(Error::Setting(_))), "{refused:?}");
    assert_eq!(
        server.psql(
            "fleet",
            "SELECT count(*) FROM \"headworks_job_home-2\".folder"
        ),
        "0"
    );
    // A job's schema does not make the database somebody else's.
    let other = PostgresServer::start();
    assert!(apply(&names[0], &other).await.is_ok());
    assert!(self::apply(&other, OLD).await.is_ok());
}
