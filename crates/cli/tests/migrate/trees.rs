//! Trees of all kinds end as expected, whatever fails.

use super::support::{TestDir, text};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_corner_tree_is_copied_to_the_byte_and_a_second_plan_finds_nothing_to_do() {
    let dir = TestDir::new();
    dir.make_corner_cases("src");
    for flags in [&["--specials"][..], &["--specials", "--checksum"]] {
        let _ = std::fs::remove_file(dir.path("job.db"));
        let dst = if flags.len() == 1 { "dst" } else { "dst2" };
        let args = [&["run", "src", dst], flags].concat();
        dir.expect(0, &args);
        dir.compare_trees("src", dst);
        assert_eq!(dir.leftovers(dst), Vec::<std::path::PathBuf>::new());
        let again = dir.expect(0, &["plan", "src", dst]);
        assert!(
            !again.contains("missing") && !again.contains("different"),
            "{again}"
        );
    }
    dir.expect(0, &["verify", "--hash"]);
}

#[test]
fn pipes_are_unsupported_unless_asked_for_and_the_exit_code_says_so() {
    let dir = TestDir::new();
    dir.make_corner_cases("src");
    let printed = dir.expect(4, &["run", "src", "dst"]);
    assert!(printed.contains("unsupported"), "{printed}");
}

#[test]
fn a_second_pass_copies_changes_and_quarantines_removed_entries() {
    let dir = TestDir::new();
    dir.make_tree("src", 10, 5);
    dir.expect(0, &["run", "src", "dst"]);
    std::fs::write(dir.path("src/f0/g0/file-1"), "changed").unwrap();
    std::fs::remove_file(dir.path("src/f0/g0/file-2")).unwrap();
    std::fs::remove_file(dir.path("src/f1/g1/file-0")).unwrap();
    std::fs::create_dir(dir.path("src/f1/g1/file-0")).unwrap();
    std::fs::write(dir.path("src/f1/g1/file-0/in"), "folder now").unwrap();
    std::fs::remove_dir_all(dir.path("src/f2/g2")).unwrap();
    std::fs::write(dir.path("src/f2/g2"), "file now").unwrap();
    let printed = dir.expect(4, &["run", "src", "dst"]);
    assert!(printed.contains("type_conflict"), "{printed}");
    let printed = dir.expect(0, &["run", "src", "dst", "--delete=quarantine"]);
    assert!(printed.contains("copied"), "{printed}");
    // Two files, and a folder of five.
    let moved = "8 entries of the destination were moved to .headworks-quarantine/pass-3\n";
    assert!(printed.contains(moved), "{printed}");
    assert!(dir.expect(0, &["report"]).contains(moved));
    let kept = dir.path("dst/.headworks-quarantine/pass-3");
    assert!(kept.join("f0/g0/file-2").exists() && kept.join("f2/g2/file-0").exists());
    std::fs::rename(dir.path("dst/.headworks-quarantine"), dir.path("kept")).unwrap();
    dir.expect(0, &["run", "src", "dst"]);
    dir.compare_trees("src", "dst");
}

#[test]
fn permanent_deletion_needs_a_limit_and_respects_it() {
    let dir = TestDir::new();
    dir.make_tree("src", 3, 3);
    dir.make_tree("dst", 9, 3);
    dir.expect(2, &["run", "src", "dst", "--delete=permanent"]);
    let printed = dir.expect(2, &["run", "src", "dst", "--max-delete=1"]);
    assert!(printed.contains("--delete=permanent"), "{printed}");
    let printed = dir.expect(
        1,
        &["run", "src", "dst", "--delete=permanent", "--max-delete=1"],
    );
    assert!(printed.contains("more than the limit of 1"), "{printed}");
    assert!(dir.path("dst/f5/g5/file-0").exists());
    // A run killed between a deletion and its record does not count that deletion twice.
    let args = ["run", "src", "dst", "--delete=permanent", "--max-delete=50"];
    let mut killed = dir.command(&args);
    killed.env("HEADWORKS_FAILPOINT", "after-put-away:3");
    assert_eq!(killed.output().unwrap().status.code(), None);
    let printed = dir.expect(0, &args);
    assert!(
        printed.contains("\n28 entries of the destination were deleted\n"),
        "{printed}"
    );
    dir.compare_trees("src", "dst");
    let printed = dir.expect(0, &args);
    assert!(!printed.contains("deleted"), "{printed}");
}

const SYNTH: &str =
    "synth://?seed=9&depth=4&dirs=1-3&files=1-6&size=0-9k&names=plain,spaces,twins,bytes";

#[test]
fn a_storage_that_fails_a_third_of_its_calls_ends_in_the_same_state() {
    let clean = TestDir::new();
    clean.expect(0, &["run", SYNTH, "dst"]);
    let stormy = TestDir::new();
    let source = format!("{SYNTH}&errors=30&overload=10");
    stormy.expect(0, &["run", &source, "dst", "--attempts", "40"]);
    assert!(clean.entries().len() > 100);
    assert_eq!(clean.entries(), stormy.entries());
    let (one, other) = (clean.path("dst"), stormy.path("dst"));
    let links = TestDir::new();
    std::os::unix::fs::symlink(one, links.path("one")).unwrap();
    std::os::unix::fs::symlink(other, links.path("other")).unwrap();
    let mut diff = std::process::Command::new("diff");
    diff.args(["-r", "one/", "other/"])
        .current_dir(links.path(""));
    let output = diff.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn the_final_state_does_not_depend_on_the_number_of_workers() {
    let source = format!("{SYNTH}&missing=10&different=10&extra=5");
    let destination = format!("{source}&side=destination");
    let states = ["1", "3", "16"].map(|workers| {
        let dir = TestDir::new();
        dir.expect(0, &["plan", &source, &destination, "--workers", workers]);
        dir.entries()
    });
    for status in [
        "missing",
        "different (size)",
        "different (mtime)",
        "not_on_src",
        "same",
    ] {
        assert!(
            states[0].iter().any(|line| line.contains(status)),
            "no {status}"
        );
    }
    assert_eq!(states[0], states[1]);
    assert_eq!(states[0], states[2]);
}

#[test]
fn a_folder_that_cannot_be_listed_makes_its_subtree_unknown_and_nothing_else() {
    let dir = TestDir::new();
    let tree = "synth://?seed=3&depth=3&dirs=3&files=2";
    dir.expect(0, &["plan", tree, "dst"]);
    let listed = dir.entries();
    let folder = listed
        .iter()
        .find(|line| line.contains(",folder,") && !line.contains('/'));
    let folder = folder.unwrap().split(',').next().unwrap().to_owned();
    let dir = TestDir::new();
    let source = format!("{tree}&deny={folder}");
    dir.expect(3, &["run", &source, "dst"]);
    let nodes = dir.entries();
    let unknown: Vec<&String> = nodes
        .iter()
        .filter(|line| line.contains(",unknown,"))
        .collect();
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    assert!(unknown[0].starts_with(&folder));
    assert!(
        nodes
            .iter()
            .filter(|line| line.ends_with(",copied"))
            .count()
            > 20
    );
    let printed = dir.expect(3, &["report"]);
    assert!(
        printed.contains("permission denied") && printed.contains("next:"),
        "{printed}"
    );
    assert!(dir.expect(0, &["explain", &folder]).contains("unknown"));
    let below = format!("{folder}/a/b");
    let printed = dir.expect(1, &["explain", &below]);
    assert!(
        printed.contains(&format!("ancestor {folder}:")) && printed.contains("permission denied"),
        "{printed}"
    );
    dir.expect(1, &["explain", "no such thing"]);
}

#[test]
fn names_are_displayed_as_they_are_written() {
    let dir = TestDir::new();
    let folder = dir.path("src").join("Büro");
    std::fs::create_dir_all(&folder).unwrap();
    for name in [
        "報告 1.pdf",
        "back\\slash",
        "line\nbreak",
        "gpj.\u{202e}exe",
    ] {
        std::fs::write(folder.join(name), name).unwrap();
    }
    std::fs::write(folder.join(OsStr::from_bytes(b"latin \xe9")), "").unwrap();
    dir.expect(0, &["plan", "src", "dst"]);
    let printed = dir.expect(0, &["review", "--json"]);
    let mut names: Vec<String> = (printed.lines())
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["path"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    let expected = [
        "Büro",
        "Büro/back\\\\slash",
        "Büro/gpj.\\u{202e}exe",
        "Büro/latin \\xe9",
        "Büro/line\\nbreak",
        "Büro/報告 1.pdf",
    ];
    assert_eq!(names, expected);
    assert!(
        dir.expect(0, &["review", "--csv"])
            .contains("\nBüro/報告 1.pdf,file,")
    );
    assert!(dir.expect(0, &["review"]).contains("Büro"));
    assert!(
        dir.expect(0, &["explain", "Büro/報告 1.pdf"])
            .starts_with("Büro/報告 1.pdf\n")
    );
}

#[test]
fn entries_below_an_unlisted_destination_folder_are_never_deleted() {
    if is_root() {
        return check_as_root();
    }
    let dir = TestDir::new();
    dir.make_tree("src", 7, 2);
    dir.make_tree("dst", 14, 2);
    let closed = dir.path("dst/f3");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    dir.expect(
        3,
        &["run", "src", "dst", "--delete=permanent", "--max-delete=99"],
    );
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(closed.join("g10/file-0").exists());
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Permissions do not stop root: a failure of the source stands in.
fn check_as_root() {
    let dir = TestDir::new();
    let tree = "synth://?seed=3&depth=2&dirs=2&files=2";
    dir.expect(0, &["run", tree, "dst"]);
    let folder = dir
        .entries()
        .into_iter()
        .find(|line| line.contains(",folder,") && !line.contains('/'))
        .unwrap();
    let folder = folder.split(',').next().unwrap().to_owned();
    std::fs::write(dir.path("dst").join(&folder).join("only here"), "x").unwrap();
    std::fs::write(dir.path("dst/only at the top"), "x").unwrap();
    std::fs::remove_file(dir.path("job.db")).unwrap();
    let denied = format!("{tree}&deny={folder}");
    dir.expect(
        3,
        &[
            "run",
            &denied,
            "dst",
            "--delete=permanent",
            "--max-delete=99",
        ],
    );
    assert!(dir.path("dst").join(&folder).join("only here").exists());
    assert!(!dir.path("dst/only at the top").exists());
}

#[test]
fn a_tree_of_depth_300_is_copied() {
    let dir = TestDir::new();
    dir.expect(
        0,
        &[
            "run",
            "synth://?seed=1&depth=300&dirs=1&files=1&size=10",
            "dst",
        ],
    );
    assert_eq!(
        dir.entries()
            .iter()
            .filter(|line| line.ends_with(",copied"))
            .count(),
        601
    );
}

#[test]
fn a_second_runner_is_refused_with_the_lock_holder() {
    let dir = TestDir::new();
    let source = "synth://?seed=1&depth=3&dirs=4&files=4&latency=300ms";
    let mut first = dir.command(&["plan", source, "dst"]).spawn().unwrap();
    let holder = loop {
        let output = dir.run(&["status"]);
        let printed = text(&output);
        if printed.contains("runner: process") {
            break printed;
        }
        assert!(
            first.try_wait().unwrap().is_none(),
            "it ended before it was seen: {printed}"
        );
    };
    assert!(holder.contains(&first.id().to_string()));
    let refused = dir.expect(1, &["plan", source, "dst"]);
    assert!(
        refused.contains(&format!("process {}", first.id())),
        "{refused}"
    );
    assert!(dir.expect(0, &["pause"]).contains("handed to the runner"));
    dir.expect(0, &["resume"]);
    assert!(first.wait().unwrap().success());
    let other = dir.expect(2, &["plan", source, "elsewhere"]);
    assert!(other.contains("name another state file"), "{other}");
}

#[test]
fn filters_and_review_rules_exclude_and_include() {
    let dir = TestDir::new();
    dir.make_tree("src", 7, 4);
    dir.expect(
        0,
        &[
            "plan",
            "src",
            "dst",
            "--exclude",
            "file-1",
            "--exclude",
            "f2/g2",
        ],
    );
    dir.expect(
        0,
        &[
            "review",
            "--exclude",
            "f3/**",
            "--exclude",
            "file-2",
            "--prioritise",
            "file-3",
        ],
    );
    dir.expect(0, &["review", "--include", "f4/g4/file-2"]);
    dir.expect(0, &["copy"]);
    let there = |path: &str| dir.path("dst").join(path).exists();
    assert!(there("f0/g0/file-0") && there("f4/g4/file-2") && there("f5/g5/file-3"));
    assert!(
        !there("f0/g0/file-1")
            && !there("f2/g2")
            && !there("f3/g3/file-0")
            && !there("f5/g5/file-2")
    );
    dir.expect(0, &["verify"]);
    std::fs::write(dir.path("dst/f0/g0/file-0"), "spoilt").unwrap();
    let printed = dir.expect(4, &["verify"]);
    assert!(printed.contains("f0/g0/file-0"), "{printed}");
}

#[test]
fn a_clean_end_leaves_the_state_file_alone() {
    let dir = TestDir::new();
    dir.make_tree("src", 3, 5);
    let companions = || {
        let names = std::fs::read_dir(dir.path(".")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let logs = names.filter(|name| name.ends_with("-wal") || name.ends_with("-shm"));
        logs.collect::<Vec<_>>()
    };
    for args in [&["run", "src", "dst"][..], &["report"], &["verify"]] {
        dir.expect(0, args);
        assert!(companions().is_empty(), "{args:?}: {:?}", companions());
    }
    // The file alone is the state.
    std::fs::rename(dir.path("job.db"), dir.path("moved.db")).unwrap();
    let again = dir.command_with_state("moved.db", &["run", "src", "dst"]);
    let output = dir.expect_end_of(again);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}
