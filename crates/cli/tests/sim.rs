//! End-to-end tests of `headworks sim`.

mod support;

use std::process::Stdio;
use support::Folder;

const SMALL: &str = r#"
about = "two classes, one slot"
seed = 3
duration = "20s"

[scheduler]
policy = "wfq"
bound = 50
limits = { concurrent = 1 }

[[classes]]
name = "chat"
weight = 3

[[classes]]
name = "batch"
weight = 1

[[targets]]
name = "model"
latency = "10ms"

[[loads]]
name = "chat"
class = "chat"
flow = "team"
arrivals = { kind = "poisson", rate = 200.0 }

[[loads]]
name = "batch"
class = "batch"
flow = "team"
arrivals = { kind = "poisson", rate = 200.0 }
"#;

#[test]
fn a_scenario_is_reported_as_table_json_and_html() {
    let folder = Folder::new();
    folder.write("small.toml", SMALL);
    let table = folder.run(&["sim", "small.toml"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(table.stdout.contains("two classes, one slot"), "{table:?}");

    let json = folder.run(&["sim", "small.toml", "--json", "--html", "page.html"]);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    let share = |class: usize| {
        report["classes"][class]["share"]
            .as_f64()
            .expect("a number")
    };
    assert!((share(0) - 0.75).abs() < 0.02, "{}", json.stdout);
    assert_eq!(
        folder.run(&["sim", "small.toml", "--json"]).stdout,
        json.stdout
    );
    let other = folder.run(&["sim", "small.toml", "--json", "--seed", "4"]);
    assert_ne!(other.stdout, json.stdout);

    let page = std::fs::read_to_string(folder.path().join("page.html")).expect("written");
    assert!(page.contains("<svg"), "it has plots");
    for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!page.contains(outside), "the page asks for {outside}");
    }
}

#[test]
fn a_fleet_is_simulated_and_its_mistakes_are_named() {
    let folder = Folder::new();
    let fleet = |fleet: &str, rest: &str| {
        let text = format!(
            "duration = '30s'\n[scheduler]\nlimits = {{ requests_per_second = 50 }}\n\
             [fleet]\n{fleet}\n[[loads]]\nname = 'chat'\n\
             arrivals = {{ kind = 'closed', clients = 40, think = '0s' }}\n{rest}"
        );
        folder.write("fleet.toml", &text);
        folder.run(&["sim", "fleet.toml"])
    };
    let cut = "nodes = 3\ncut = [{ node = 'allocator', from = '10s', for = '5s' }]";
    let met = "[[expect]]\nmetric = 'calls-over'\nat_most = 0\n\
               [[expect]]\nmetric = 'most-use'\nat_most = 1.02";
    let ran = fleet(cut, met);
    assert_eq!(ran.code, Some(0), "{ran}");
    for shown in [
        "node 3",
        "use of the limit over any 10 s",
        "calls over the limit: 0",
    ] {
        assert!(ran.stdout.contains(shown), "{ran}");
    }
    for (wrong, rest, problem) in [
        ("nodes = 0", "", "`fleet.nodes`: 0 is out of range"),
        (
            "nodes = 2\nloss = 2",
            "",
            "`fleet.loss`: 2 is not a fraction",
        ),
        ("nodes = 2\non_los = 'keep'", "", "did you mean `on_loss`?"),
        (
            "nodes = 2\ncut = [{ node = 3, from = '1s', for = '1s' }]",
            "",
            "`fleet.cut[0].node`: there is no node `3`",
        ),
        (
            "nodes = 2",
            "node = 9",
            "`loads[0].node`: there is no node 9",
        ),
        (
            "nodes = 2",
            "[workers]\nbase = 1\nmax = 1",
            "`workers`: is not simulated",
        ),
    ] {
        let refused = fleet(wrong, rest);
        assert!(
            refused.code == Some(2) && refused.stderr.contains(problem),
            "{problem}: {refused}"
        );
    }
}

#[test]
fn an_expectation_that_is_not_met_is_exit_code_4() {
    let folder = Folder::new();
    let wrong = "\n[[expect]]\nmetric = \"wait-p50\"\nclass = \"chat\"\nat_most = 0.0001\n";
    folder.write("small.toml", &format!("{SMALL}{wrong}"));
    let ended = folder.run(&["sim", "small.toml"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

#[test]
fn a_refused_client_that_never_thinks_does_not_stop_time() {
    let folder = Folder::new();
    folder.write(
        "closed.toml",
        r#"
duration = "2s"

[scheduler]
attempts = 1
on_suspend = "end"
limits = { concurrent = 2 }

[[targets]]
name = "broken"
latency = "10ms"
errors = { fault = 1.0 }

[[loads]]
name = "clients"
arrivals = { kind = "closed", clients = 10, think = "0s" }
"#,
    );
    let ended = folder.run(&["sim", "closed.toml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_trace_is_replayed() {
    let folder = Folder::new();
    folder.write(
        "requests.csv",
        "time,class,flow,cost\n0.0,0,alice,10\n0.5,3,bob,20\n",
    );
    let ended = folder.run(&["sim", "--trace", "requests.csv", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(report["totals"]["requests"], 2, "{}", ended.stdout);
}

#[test]
fn a_trace_is_replayed_under_the_gateways_configuration() {
    let folder = Folder::new();
    let lines = (0..20).map(|_| "0.0,0,alice,10\n");
    folder.write("requests.csv", &lines.collect::<String>());
    let gateway = "[gateway]\nscheduler_max_concurrent = 1\nscheduler_priority_levels = 3\n\
                   [[gateway.tenant]]\nname = 'alice'\nweight = 7\n\
                   [[gateway.upstream]]\nname = 'model'\nkind = 'echo'\nlatency = '500ms'\n";
    folder.write("headworks.toml", gateway);
    folder.write("other.toml", &gateway.replace("500ms", "100ms"));
    let p99 = |more: &[&str]| {
        let ended = folder.run(&[&["sim", "--trace", "requests.csv", "--json"], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(report["classes"].as_array().unwrap().len(), 3, "{report}");
        let wait = &report["classes"][0]["waits"]["p99"];
        wait.as_f64().unwrap_or_else(|| panic!("{report:#}"))
    };
    // Twenty requests, one at a time.
    assert!((9.0..10.0).contains(&p99(&[])), "{}", p99(&[]));
    assert!((1.8..2.0).contains(&p99(&["--config", "other.toml"])));
    let faster = ["--set", "gateway.scheduler_max_concurrent=20"];
    assert_eq!(p99(&faster), 0.0);
}

#[test]
fn errors_name_file_line_key_and_remedy() {
    let folder = Folder::new();
    folder.write("bad.toml", "[scheduler]\npolcy = \"wfq\"\n");
    std::fs::write(folder.path().join("latin.toml"), b"seed = 1\n# caf\xe9").expect("written");
    folder.write("bad.csv", "0.1,1,a,3\n0.2,x,b,2\n");
    folder.write("typo.csv", "O.0,1,a,1\n0.2,1,b,2\n");
    let more = "0.1,1,a,3\n".repeat(200_000);
    folder.write("open.csv", &format!("# \"\n0,1,\"a,1\n{more}"));
    for (args, words) in [
        (&["sim", "bad.toml"][..], ["bad.toml:2", "polcy", "policy"]),
        (
            &["sim", "--trace", "bad.csv"],
            ["bad.csv:2", "class", "0 to 9"],
        ),
        (
            &["sim", "--trace", "typo.csv"],
            ["typo.csv:1", "O.0", "seconds"],
        ),
        (
            &["sim", "--trace", "open.csv"],
            ["open.csv", "a megabyte", "a quote not closed"],
        ),
        (&["sim", "nope"], ["nope", "greedy-tenant", "file"]),
        (
            &["sim", "latin.toml"],
            ["latin.toml:2:6", "not UTF-8", "save"],
        ),
        (&["sim", "token"], ["token", "did you mean", "tokens"]),
        (&["sim"], ["nothing to simulate", "--list", "--trace"]),
    ] {
        let ended = folder.run(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        for word in words {
            assert!(
                ended.stderr.contains(word),
                "{args:?} does not say {word}: {}",
                ended.stderr
            );
        }
    }
}

#[test]
fn a_reader_who_stops_reading_is_no_failure() {
    let folder = Folder::new();
    let mut child = folder.headworks(&["sim", "--list"]);
    let mut child = child
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn the_shipped_scenarios_are_listed() {
    let listed = Folder::new().run(&["sim", "--list"]);
    assert_eq!(listed.code, Some(0));
    for name in [
        "ten-classes-wfq",
        "greedy-tenant",
        "forwarders",
        "tokens",
        "refused-clients",
        "rounds",
    ] {
        assert!(listed.stdout.contains(name), "{name} is not listed");
    }
}

#[test]
fn an_endless_run_ends_with_an_error() {
    let folder = Folder::new();
    folder.write(
        "busy.toml",
        "duration = \"60s\"\n[[targets]]\nname = \"t\"\nlatency = \"1ns\"\n[[loads]]\nname = \"c\"\n\
         arrivals = { kind = \"closed\", clients = 10, think = \"0s\" }\n",
    );
    let ended = folder.run(&["sim", "busy.toml", "--max-steps", "100000"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("stopped after 10000") && ended.stderr.contains("max_steps"),
        "{ended:?}"
    );
    assert!(!ended.stderr.contains('\r'), "progress is for terminals");
}

/// Small files with a large expansion; each is rejected before it fills memory.
#[test]
fn scenarios_that_would_fill_memory_are_rejected() {
    let load = |name: &str, rest: &str| format!("[[loads]]\nname = '{name}'\n{rest}\n");
    let poisson = "arrivals = { kind = 'poisson', rate = 1.0 }\n";
    let flows = format!("{poisson}flow = 'x'\nflows = 600000\nclass = 'all'");
    let closed = "arrivals = { kind = 'closed', clients = 1000000, think = '1s' }";
    let many = |load: &dyn Fn(u32) -> String| (0..12).map(load).collect::<String>();
    let tree = |tree: &str| {
        format!(
            "[[targets]]\nname = 's'\n[rounds]\ntree = '{tree}'\nleader = 's'\nfollower = 's'\n"
        )
    };
    let outages = "[[targets.outages]]\nfrom = '1s'\nfor = '1s'\n".repeat(3);
    for (text, key) in [
        (many(&|n| load(&n.to_string(), &flows)), "flows"),
        (many(&|n| load(&n.to_string(), closed)), "arrivals.clients"),
        (
            load(
                "b",
                "arrivals = { kind = 'bursts', size = 4294967295, every = '8760h' }",
            ),
            "load `b`",
        ),
        (
            format!("[[targets]]\nname = '{}'\n", "n".repeat(201)),
            "targets[0].name",
        ),
        (
            format!("[[targets]]\nname = 't'\ncount = 1000000\n{outages}"),
            "targets[0].outages",
        ),
        (tree("depth=0&dirs=1&files=900000000"), "rounds.tree"),
        (tree("depth=1&dirs=100000000&files=0"), "rounds.tree"),
    ] {
        let folder = Folder::new();
        folder.write("much.toml", &format!("duration = '1m'\n{text}"));
        let ended = folder.run(&["sim", "much.toml"]);
        assert_eq!(ended.code, Some(2), "{key}: {ended:?}");
        assert!(ended.stderr.contains(key), "{key}: {ended:?}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_the_run() {
    let folder = Folder::new();
    // The run would take very long, so a quick exit shows that it did not start.
    let long = SMALL.replace("\"20s\"", "\"100h\"");
    folder.write("long.toml", &long);
    for path in ["no/such/folder/page.html", "."] {
        let ended = folder.run(&["sim", "long.toml", "--html", path]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains(path) && ended.stderr.contains("--html"),
            "{ended:?}"
        );
    }
    // The page must not overwrite its input.
    folder.write("same.toml", SMALL);
    let ended = folder.run(&["sim", "same.toml", "--html", "./same.toml"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let kept = std::fs::read_to_string(folder.path().join("same.toml"));
    assert_eq!(kept.expect("it is still there"), SMALL);
    // An existing page survives a failed run, and a new one is not left behind empty.
    folder.write("old.html", "old");
    folder.write("small.toml", SMALL);
    for page in ["old.html", "new.html"] {
        let ended = folder.run(&["sim", "small.toml", "--trace", "none.csv", "--html", page]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
    assert_eq!(read("old.html").expect("it is still there"), "old");
    assert!(read("new.html").is_err());
}

#[test]
fn flags_that_would_be_ignored_are_refused() {
    let folder = Folder::new();
    folder.write("other.toml", "");
    for args in [
        &["sim", "--list", "--config", "other.toml"][..],
        &["sim", "--list", "--set", "log.level=debug"],
        &["config", "init", "--config", "other.toml"],
        &["config", "init", "--set", "log.level=debug"],
        &["config", "check", "--set", "log.level=debug"],
        &["config", "check", "other.toml", "--config", "other.toml"],
    ] {
        let ended = folder.run(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.stdout.is_empty(), "{args:?}: {ended:?}");
        assert!(ended.stderr.starts_with("error: "), "{args:?}: {ended:?}");
    }
}

#[test]
fn long_numbers_are_truncated() {
    let folder = Folder::new();
    let digits = "9".repeat(300);
    folder.write("long.toml", &format!("duration = \"{digits}s\"\n"));
    let ended = folder.run(&["sim", "long.toml"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("`99999999999999999999…s` is not a duration"),
        "{ended:?}"
    );
}
