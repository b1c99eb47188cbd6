//! The packaged files match the binary.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use support::Folder;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects every metric that the code declares.
fn declared(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            declared(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("Family::").skip(1) {
                let name = part.split('"').nth(1).unwrap_or_default();
                found.insert(name.to_owned());
            }
        }
    }
}

fn names(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("headworks_"))
        .map(|word| word.strip_suffix("_bucket").unwrap_or(word))
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let mut known = BTreeSet::new();
    for part in ["gateway", "service", "tracker"] {
        declared(&root().join("crates").join(part).join("src"), &mut known);
    }
    let text = std::fs::read_to_string(root().join("packaging/grafana.json")).unwrap();
    let board: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let mut asked = 0;
    for target in targets {
        for name in names(target["expr"].as_str().unwrap()) {
            assert!(known.contains(name), "`{name}` is not a metric of ours");
            asked += 1;
        }
    }
    assert!(asked >= 20, "only {asked} metrics are shown");
}

#[test]
fn completions_and_manual_know_every_command() {
    let folder = Folder::new();
    for what in ["bash", "zsh", "fish", "elvish", "powershell", "man"] {
        let made = folder.run(&["generate", what]);
        assert_eq!(made.code, Some(0), "{what}: {}", made.stderr);
        for command in ["up", "top", "gateway", "tracker", "sim", "config"] {
            assert!(made.stdout.contains(command), "{what} knows `{command}`");
        }
        // The flags that are generated from sections are included.
        assert!(
            made.stdout.replace('\\', "").contains("admin-listen"),
            "{what} knows the flags of sections"
        );
    }
}

#[test]
fn the_version_names_the_commit() {
    let told = Folder::new().run(&["--version"]).stdout;
    let version = env!("CARGO_PKG_VERSION");
    assert!(told.starts_with(&format!("headworks {version}")), "{told}");
    let head = std::process::Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(root())
        .output();
    // A source archive has no repository, so there is no commit to name.
    if let Ok(head) = head
        && head.status.success()
    {
        let head = String::from_utf8(head.stdout).unwrap();
        assert!(told.contains(head.trim()), "{told}");
    }
}

#[test]
fn the_unit_starts_the_binary_as_it_is_started() {
    let unit = std::fs::read_to_string(root().join("packaging/headworks.service")).unwrap();
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words: Vec<_> = start.unwrap().split(' ').collect();
    assert_eq!(words[0], "/usr/bin/headworks");
    let folder = Folder::new();
    let asked: Vec<_> = words[1..].iter().copied().chain(["--help"]).collect();
    assert_eq!(folder.run(&asked).code, Some(0));
}
