//! User-visible behaviour of the configuration, on sections similar to those of the applications.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

crate::section! {
    /// A forwarding tracker.
    struct Tracker = "tracker", check = thresholds_in_order;

    /// Most forward jobs that may wait.
    queue_size: usize = 10_000, file(&["forwarder_queue_size"]), env(&["FORWARDER_QUEUE_SIZE"]), flag(&["-Q"]);
    /// How full the queue is, in percent, when the number of forwarders is throttled.
    queue_throttle_threshold: u8 = 60, file(&["queue_throttle_threshold"]);
    /// How full the queue is, in percent, when new torrents are limited; 0 turns it off.
    queue_rate_limit_threshold: u8 = 80;
    /// When a client that was refused should come back.
    #[serde(with = "crate::config::seconds")]
    retry_period: Duration = Duration::from_secs(300), file(&["retry_period"]);
    /// How long a peer is kept.
    #[serde(with = "crate::config::minutes")]
    age: Duration = Duration::from_secs(180 * 60);
    /// How much memory swarms may take.
    #[serde(with = "crate::config::bytes")]
    memory: u64 = 64 << 20;
    /// Trackers that are asked too.
    forwarders: Vec<String> = Vec::new(), example("[\"udp://tracker.example:1337\"]"), file(&["forwarders"]);
}

fn thresholds_in_order(tracker: &Tracker) -> Vec<ValidationError> {
    let limit = tracker.queue_rate_limit_threshold;
    if limit != 0 && limit < tracker.queue_throttle_threshold {
        let text = "must not be below `queue_throttle_threshold`";
        return vec![ValidationError::new("queue_rate_limit_threshold", text)];
    }
    Vec::new()
}

crate::section! {
    /// Shares model capacity.
    struct Gateway = "gateway";

    /// Requests that run at once.
    max_concurrent: u32 = 50, file(&["scheduler_max_concurrent"]);
    /// Whether anything is scheduled at all.
    enabled: bool = true, file(&["scheduler_enabled"]);
    /// Which request goes next.
    policy: Policy = Policy::Hybrid, file(&["scheduler_policy"]);
    /// Where requests go.
    upstreams: Vec<Upstream> = Vec::new(), example("[[gateway.upstreams]]\nname = \"local\"\nurl = \"http://127.0.0.1:8000\"");
    /// Who may ask.
    tenants: BTreeMap<String, Tenant> = BTreeMap::new();
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Policy {
    Fifo,
    Strict,
    Hybrid,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Upstream {
    name: String,
    url: String,
    #[serde(default)]
    max_concurrent: Option<u32>,
    #[serde(default, with = "crate::config::seconds")]
    timeout: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tenant {
    key: Secret,
    #[serde(default)]
    weight: u32,
}

fn schema() -> Schema {
    Schema::new().with::<Tracker>().with::<Gateway>()
}

fn toml(text: &str) -> Sources {
    Sources::new().text("headworks.toml", text)
}

fn load(sources: &Sources) -> Config {
    schema()
        .load(sources)
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(sources: &Sources) -> String {
    schema()
        .load(sources)
        .expect_err("an invalid configuration")
        .to_string()
}

fn show(config: &Config) -> String {
    let line = |shown: &DisplayValue| format!("{shown}  # {}\n", shown.origin);
    config.values().iter().map(line).collect()
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let file = toml("[tracker]\nqueue_size = 1\nretry_period = '1m'\n");
    let tracker = |sources: &Sources| load(sources).section::<Tracker>().queue_size;
    assert_eq!(tracker(&Sources::new()), 10_000);
    assert_eq!(tracker(&file), 1);
    let alias = file.env("FORWARDER_QUEUE_SIZE", "2");
    assert_eq!(tracker(&alias), 2);
    let env = alias.env("HEADWORKS_TRACKER__QUEUE_SIZE", "3");
    assert_eq!(tracker(&env), 3);
    let flag = env.flag("-Q", "tracker.queue_size", "4");
    assert_eq!(tracker(&flag), 4);
}

#[test]
fn every_value_has_its_origin_and_secrets_are_masked() {
    let sources = toml(
        "[tracker]\n\
         queue_size = 500\n\
         age = 30\n\
         memory = '1GiB'\n\
         [[gateway.upstreams]]\n\
         name = 'a'\n\
         url = 'http://a'\n\
         [gateway.tenants.team]\n\
         key = 'hunter2hunter2'\n\
         weight = 3\n",
    )
    .env("FORWARDER_QUEUE_SIZE", "700")
    .env("HEADWORKS_TRACKER__FORWARDERS", "udp://a, udp://b")
    .env("HEADWORKS_GATEWAY__TENANTS__TEAM__WEIGHT", "5")
    .flag("--set", "gateway.policy", "strict");
    let config = load(&sources);
    assert_eq!(config.section::<Tracker>().age, Duration::from_secs(1800));
    assert_eq!(config.section::<Gateway>().tenants["team"].weight, 5);
    let shown = show(&config);
    assert!(!shown.contains("hunter2") && !format!("{config:?}").contains("hunter2"));
    insta::assert_snapshot!(shown);
}

#[test]
fn all_problems_are_reported_at_once() {
    let sources = toml(
        r#"
queue_size = 5

[traker]
queue_size = 1

[tracker]
queu_size = 500
forwarder_queue_size = 500
queue_throttle_threshold = 300
retry_period = "soon"
memory = -1
forwarders = "udp://a"

[gateway]
max_concurrent = "many"
enabled = 1
policy = "hybird"

[[gateway.upstreams]]
name = "a"
ulr = "http://a"

[[gateway.upstreams]]
name = "b"
url = "http://b"
max_concurrent = 1.5
timeout = "later"

[[gateway.upstreams]]
name = 5
url = "http://c"

[gateway.tenants.team]
key = "env:HEADWORKS_NO_SUCH_VARIABLE"
wieght = 3
"#,
    )
    .env("HEADWORKS_TRACKER__QUEUESIZE", "1")
    .env("HEADWORKS_TRAKCER__QUEUE_SIZE", "1")
    .env("FORWARDER_QUEUE_SIZE", "lots")
    .flag("--set", "gateway.max_concurent", "1");
    insta::assert_snapshot!(problems(&sources));
}

#[test]
fn syntax_errors_are_all_named_without_showing_the_line() {
    let sources = toml("[tracker]\nqueue_size = = 5\nage = \"1h\nmemory = 'secret\n");
    let problems = problems(&sources);
    assert!(!problems.contains("secret"), "{problems}");
    insta::assert_snapshot!(problems);
}

#[test]
fn a_section_that_is_not_a_table_is_named() {
    let sources = toml("tracker = 5\n\n[gateway]\n");
    insta::assert_snapshot!(problems(&sources), @"headworks.toml:1: `tracker`: expected a table, found an integer; write it as a section: [tracker]");
}

#[test]
fn validation_errors_name_the_line() {
    let sources = toml("[tracker]\n\nqueue_rate_limit_threshold = 10\n");
    insta::assert_snapshot!(problems(&sources), @"headworks.toml:3: `tracker.queue_rate_limit_threshold`: must not be below `queue_throttle_threshold`");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let sources = Sources::new().file("/no/such/headworks.toml");
    insta::assert_snapshot!(problems(&sources), @"/no/such/headworks.toml: cannot read the file: No such file or directory (os error 2)");
}

#[test]
fn a_predecessors_yaml_is_read_and_unknown_keys_are_warnings() {
    let text = "# old tracker\nforwarder_queue_size: 500\nretry_period: 60\nlisten_addr: \":6969\"\nforwarders:\n  - udp://a\n  - udp://b\n";
    let config = load(&Sources::new().text("retracker.yaml", text));
    let tracker = config.section::<Tracker>();
    assert_eq!(
        (tracker.queue_size, tracker.retry_period),
        (500, Duration::from_secs(60))
    );
    assert_eq!(tracker.forwarders, ["udp://a", "udp://b"]);
    insta::assert_snapshot!(config.warnings(), @"retracker.yaml:4: `listen_addr`: unknown key; ignored");
    let wrong = Sources::new().text(
        "retracker.yaml",
        "retry_period: 60\nforwarder_queue_size: many\n",
    );
    insta::assert_snapshot!(problems(&wrong), @"retracker.yaml:2: `tracker.queue_size`: expected an integer, 0 or more, found other text; for example: queue_size = 10000");
}

#[test]
fn a_predecessors_ini_is_read_and_unknown_keys_are_warnings() {
    let text = "[scheduler]\nscheduler_enabled = no ; for now\nscheduler_max_concurrent = 7\nscheduler_policy = strict\nscheduler_mood = good\n";
    let config = load(&Sources::new().text("gateway.ini", text));
    let gateway = config.section::<Gateway>();
    assert_eq!((gateway.max_concurrent, gateway.enabled), (7, false));
    assert_eq!(gateway.policy, Policy::Strict);
    insta::assert_snapshot!(config.warnings(), @"gateway.ini:5: `scheduler_mood`: unknown key; ignored");
}

#[test]
fn a_predecessors_key_that_is_written_twice_is_a_warning() {
    let text = "[scheduler]\nscheduler_max_concurrent = 7\nscheduler_max_concurrent = 8\n";
    let config = load(&Sources::new().text("gateway.ini", text));
    assert_eq!(config.section::<Gateway>().max_concurrent, 8);
    insta::assert_snapshot!(config.warnings(), @"gateway.ini:2: `scheduler_max_concurrent`: duplicate key; the value at gateway.ini:3 is used");
}

#[test]
fn the_default_file_is_clean_and_means_the_defaults() {
    let schema = Schema::shared().with::<Tracker>().with::<Gateway>();
    let file = schema.init();
    let written = schema
        .load(&Sources::new().text("init.toml", file.as_str()))
        .unwrap();
    let defaults = schema.load(&Sources::new()).unwrap();
    assert_eq!(*written.section::<Tracker>(), Tracker::default());
    assert_eq!(*written.section::<Gateway>(), Gateway::default());
    let values = |config: &Config| -> Vec<_> {
        config
            .values()
            .iter()
            .map(|shown| (shown.key.clone(), shown.value.clone()))
            .collect()
    };
    assert_eq!(values(&written), values(&defaults));
    insta::assert_snapshot!(file);
}

#[test]
fn structured_values_fit_in_a_variable() {
    let sources = Sources::new()
        .env(
            "HEADWORKS_GATEWAY__UPSTREAMS",
            "[{ name = 'a', url = 'http://a', timeout = '5s' }]",
        )
        .env(
            "HEADWORKS_GATEWAY__TENANTS",
            "{ t = { key = 'k', weight = 2 } }",
        );
    let config = load(&sources);
    let gateway = config.section::<Gateway>();
    assert_eq!(gateway.upstreams[0].timeout, Some(Duration::from_secs(5)));
    assert_eq!(gateway.tenants["t"].weight, 2);
    assert!(
        show(&config).contains("gateway.tenants.t.weight = 2  # env HEADWORKS_GATEWAY__TENANTS")
    );
}

#[test]
fn keys_and_sections_that_are_written_twice_are_named_with_both_places() {
    for (text, key, second, first) in [
        (
            "[tracker]\nage = 1\n[gateway]\nenabled = true\npolicy = 'fifo'\nenabled = false\n",
            "enabled",
            6,
            4,
        ),
        (
            "[tracker]\nage = 1\n\n[gateway]\n[tracker]\nmemory = 5\n",
            "tracker",
            5,
            1,
        ),
        (
            "[gateway.tenants.a]\nkey = 'k'\n[gateway.tenants.b]\nkey = 'x'\nweight = 1\n\"key\" = 'y'\n",
            "key",
            6,
            4,
        ),
        (
            "[gateway]\nenabled = true\ntenants = { a = { enabled = 1 } }\nenabled = false\n",
            "enabled",
            4,
            2,
        ),
        (
            "[gateway]\nupstreams = [{ name = 'a', url = 'b', name = 'c' }]\n",
            "name",
            2,
            2,
        ),
    ] {
        let told = problems(&toml(text));
        let expected = format!(
            "headworks.toml:{second}: `{key}`: duplicate key; first defined at headworks.toml:{first}; remove one of them"
        );
        assert_eq!(told.lines().next(), Some(expected.as_str()), "{text}");
    }
}

#[test]
fn long_numbers_are_truncated() {
    let digits = "9".repeat(300);
    let told = problems(&toml(&format!(
        "[gateway]\npolicy = '{digits}'\nmax_concurrent = {digits}\nx{digits} = 1\n"
    )));
    assert!(told.lines().all(|line| line.len() < 200), "{told}");
    let told = problems(&toml(&format!(
        "[gateway]\npolicy = '{digits}'\nx{digits} = 1\n"
    )));
    assert!(
        told.contains("99…") && told.lines().all(|line| line.len() < 250),
        "{told}"
    );
}

#[test]
fn a_file_that_is_not_text_is_named_with_its_line() {
    let path = std::env::temp_dir().join(format!("headworks-latin-{}.toml", std::process::id()));
    std::fs::write(&path, b"[tracker]\n# caf\xe9\nage = 1\n").unwrap();
    let told = problems(&Sources::new().file(&path));
    std::fs::remove_file(&path).unwrap();
    assert!(
        told.ends_with(".toml:2: not UTF-8 text; save the file as UTF-8"),
        "{told}"
    );
}

crate::section! {
    /// Files of every kind.
    struct Files = "files";

    /// One file.
    one: PathBuf = PathBuf::from("default.txt");
    /// A file that may be left out.
    other: Option<PathBuf> = None;
    /// Several files.
    many: Vec<PathBuf> = Vec::new();
    /// Text that is not a path.
    words: String = String::new();
    /// A key, which may be in a file.
    key: Option<Secret> = None;
}

#[test]
fn paths_are_relative_to_the_file_they_are_written_in() {
    let schema = Schema::new().with::<Files>();
    let load = |sources: Sources| match schema.load(&sources) {
        Ok(config) => config.section::<Files>(),
        Err(problems) => panic!("{problems}"),
    };
    let text = "[files]\none = 'a'\nother = '../b'\nmany = ['c', '/d']\nwords = 'e'\n";
    let files = load(Sources::new().text("etc/works.toml", text));
    assert_eq!(files.one, Path::new("etc/a"));
    assert_eq!(files.other.as_deref(), Some(Path::new("etc/../b")));
    assert_eq!(files.many, [Path::new("etc/c"), Path::new("/d")]);
    assert_eq!(files.words, "e");

    for (name, text) in [
        ("etc/works.ini", "[files]\none = a\nmany = c, /d\n"),
        ("etc/works.yaml", "files:\n  one: a\n  many: [c, /d]\n"),
    ] {
        let files = load(Sources::new().text(name, text));
        assert_eq!(files.one, Path::new("etc/a"), "{name}");
        assert_eq!(files.many, [Path::new("etc/c"), Path::new("/d")], "{name}");
    }

    let sources = Sources::new().text("etc/works.toml", "[files]\none = 'a'\n");
    let sources = sources.flag("--one", "files.one", "f");
    let files = load(sources.env("HEADWORKS_FILES__MANY", "g, h"));
    assert_eq!(files.one, Path::new("f"), "a flag's path");
    assert_eq!(files.many, [Path::new("g"), Path::new("h")], "a variable's");
    assert_eq!(load(Sources::new()).one, Path::new("default.txt"));
}

#[test]
fn a_secrets_file_is_relative_to_the_file_it_is_named_in() {
    let folder = std::env::temp_dir().join(format!("headworks-secret-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("key.txt"), "a key in a file\n").unwrap();
    let path = folder.join("works.toml");
    let schema = Schema::new().with::<Files>();
    let loaded = schema.load(&Sources::new().text(path, "[files]\nkey = 'file:key.txt'\n"));
    std::fs::remove_dir_all(&folder).unwrap();
    let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    let key = loaded.section::<Files>().key.clone().unwrap();
    assert_eq!(key.reveal(), "a key in a file");
}

#[test]
fn some_values_hold_only_without_a_file() {
    let sources = Sources::new().without_file("gateway.max_concurrent", "7");
    let load = |sources: &Sources| {
        let config = schema()
            .load(sources)
            .unwrap_or_else(|told| panic!("{told}"));
        let key = "gateway.max_concurrent";
        let shown = config.values().iter().find(|shown| shown.key == key);
        shown.unwrap().clone()
    };
    let shown = load(&sources);
    assert_eq!(shown.value, Some(toml::Value::Integer(7)));
    assert_eq!(shown.origin.to_string(), "no configuration file");
    let flag = sources
        .clone()
        .flag("--most", "gateway.max_concurrent", "8");
    assert_eq!(load(&flag).value, Some(toml::Value::Integer(8)));
    let file = sources.text("works.toml", "[tracker]\nage = 1\n");
    assert_eq!(load(&file).value, Some(toml::Value::Integer(50)));
}

#[test]
fn a_file_beside_the_configuration_is_used_where_it_exists() {
    let folder = std::env::temp_dir().join(format!("headworks-beside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let schema = Schema::new().with::<Files>();
    let other = |text: &str| {
        let sources = Sources::new().text(folder.join("works.toml"), text);
        let loaded = schema.load(&sources.sibling_file("files.other", "extra.txt"));
        let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
        loaded.section::<Files>().other.clone()
    };
    assert_eq!(other(""), None);
    std::fs::write(folder.join("extra.txt"), "").unwrap();
    let found = [other(""), other("[files]\nother = 'named.txt'\n")];
    std::fs::remove_file(folder.join("extra.txt")).unwrap();
    // A dangling link must be reported when it is read, not skipped as a missing file.
    std::os::unix::fs::symlink("nowhere", folder.join("extra.txt")).unwrap();
    let dangling = other("");
    std::fs::remove_dir_all(&folder).unwrap();
    let paths = ["extra.txt", "named.txt"].map(|name| Some(folder.join(name)));
    assert_eq!(found, paths);
    assert_eq!(dangling, paths[0]);
}

proptest! {
    #[test]
    fn no_text_panics(
        text in any::<String>(),
        lines in proptest::collection::vec(
            r#"(\[\[?(tracker|gateway\.tenants\.x|gateway\.upstreams)\]\]?|(queue_size|age|memory|policy|upstreams|key|name) ?[=:] ?("x"|-?[0-9]{1,25}|\[[0-9, ]*\]|\{a=1\}|1e999|nan))"#,
            0..8,
        ),
    ) {
        for name in ["a.toml", "a.yaml", "a.ini"] {
            let _ = schema().load(&Sources::new().text(name, text.as_str()));
            let _ = schema().load(&Sources::new().text(name, lines.join("\n")));
        }
        let _ = schema().load(&Sources::new().env("HEADWORKS_GATEWAY__TENANTS", text.as_str()));
        let _ = schema().load(&Sources::new().env(format!("HEADWORKS_{text}__{text}"), ""));
    }
}
