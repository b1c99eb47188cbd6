//! Entries of the destination that another program made or changed after the plan are kept.

use super::support::TestDir;

/// Sizes for every way between two disks.
const SIZES: [(&str, usize); 3] = [("small", 10), ("medium", 300 << 10), ("large", 9 << 20)];

fn read(dir: &TestDir, path: &str) -> String {
    std::fs::read_to_string(dir.path(path)).unwrap()
}

/// Makes a source with a file of each size that the destination lacks, and one that differs there.
fn plan(dir: &TestDir) {
    for side in ["src", "dst"] {
        std::fs::create_dir_all(dir.path(side)).unwrap();
    }
    for (name, size) in SIZES {
        for kind in ["new", "old"] {
            let path = dir.path("src").join(format!("{kind}-{name}"));
            std::fs::write(path, vec![b's'; size]).unwrap();
        }
        std::fs::write(dir.path("dst").join(format!("old-{name}")), "before").unwrap();
    }
    for kind in ["new", "old"] {
        let path = dir.path("src").join(format!("{kind}-link"));
        std::os::unix::fs::symlink("of the source", path).unwrap();
    }
    std::os::unix::fs::symlink("before", dir.path("dst/old-link")).unwrap();
    std::fs::write(dir.path("src/free"), "nobody else wants this").unwrap();
    dir.expect(0, &["plan", "src", "dst"]);
}

#[test]
fn a_file_made_or_changed_since_the_plan_is_kept() {
    for flags in [&[][..], &["--checksum"]] {
        let dir = TestDir::new();
        plan(&dir);
        for (name, _) in SIZES {
            for kind in ["new", "old"] {
                let path = dir.path("dst").join(format!("{kind}-{name}"));
                std::fs::write(path, "of another program").unwrap();
            }
        }
        std::os::unix::fs::symlink("of another program", dir.path("dst/new-link")).unwrap();
        std::fs::remove_file(dir.path("dst/old-link")).unwrap();
        std::os::unix::fs::symlink("of another program", dir.path("dst/old-link")).unwrap();
        let printed = dir.expect(3, &[&["copy"][..], flags].concat());
        for (name, _) in SIZES {
            for kind in ["new", "old"] {
                let there = read(&dir, &format!("dst/{kind}-{name}"));
                assert_eq!(
                    there, "of another program",
                    "{kind}-{name} {flags:?}: {printed}"
                );
            }
        }
        for kind in ["new", "old"] {
            let link = std::fs::read_link(dir.path(&format!("dst/{kind}-link"))).unwrap();
            assert_eq!(
                link.to_str(),
                Some("of another program"),
                "{kind} {flags:?}"
            );
        }
        assert_eq!(read(&dir, "dst/free"), "nobody else wants this");
        assert!(
            printed.contains("changed                          8"),
            "{printed}"
        );
        dir.expect_clean("dst");
        // The next pass has listed the new entries.
        dir.expect(0, &["run", "src", "dst"]);
        dir.compare_trees("src", "dst");
    }
}

#[test]
fn a_file_removed_since_the_plan_is_copied() {
    for flags in [&[][..], &["--checksum"]] {
        let dir = TestDir::new();
        plan(&dir);
        std::fs::remove_dir_all(dir.path("dst")).unwrap();
        std::fs::create_dir(dir.path("dst")).unwrap();
        dir.expect(0, &[&["copy"][..], flags].concat());
        dir.compare_trees("src", "dst");
    }
}

/// Makes files that differ: one is newer at the source, one at the destination; a third is missing.
fn differing() -> TestDir {
    let dir = TestDir::new();
    let write = |path: &str, text: &str, day: u64| {
        let path = dir.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(day * 86_400);
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
    };
    write("src/older", "source", 100);
    write("dst/older", "destination", 200);
    write("src/newer", "source", 200);
    write("dst/newer", "destination", 100);
    write("src/missing", "source", 100);
    dir
}

/// Runs with a flag, and returns what is in `older` and `newer` then.
fn run_with(code: i32, flag: &str) -> (TestDir, String, [String; 2]) {
    let dir = differing();
    let printed = dir.expect(code, &["run", "src", "dst", flag]);
    assert_eq!(read(&dir, "dst/missing"), "source", "{flag}");
    let found = ["dst/older", "dst/newer"].map(|path| read(&dir, path));
    (dir, printed, found)
}

#[test]
fn a_newer_file_at_the_destination_is_kept_by_update() {
    let (dir, printed, found) = run_with(0, "--update");
    assert_eq!(found, ["destination", "source"]);
    assert!(
        printed.contains("kept                             1"),
        "{printed}"
    );
    // The next pass decides again, and a plain one replaces it.
    dir.expect(0, &["run", "src", "dst", "--update"]);
    assert_eq!(read(&dir, "dst/older"), "destination");
    dir.expect(0, &["run", "src", "dst"]);
    assert_eq!(read(&dir, "dst/older"), "source");
}

#[test]
fn existing_files_are_kept_by_ignore_existing() {
    let (_dir, printed, found) = run_with(0, "--ignore-existing");
    assert_eq!(found, ["destination", "destination"]);
    assert!(
        printed.contains("kept                             2"),
        "{printed}"
    );
}

#[test]
fn changed_files_are_failures_with_immutable() {
    let (dir, printed, found) = run_with(3, "--immutable");
    assert_eq!(found, ["destination", "destination"]);
    assert!(
        printed.contains("failed                           2"),
        "{printed}"
    );
    let report = dir.expect(3, &["report", "--csv"]);
    assert!(report.contains("--immutable forbids to change"), "{report}");
}

/// A file and a folder that the destination has in the other form, there newer than at the source.
#[test]
fn entries_of_another_type_are_kept_like_different_ones() {
    for (flag, code, class) in [
        ("--update", 0, "kept                             2"),
        ("--ignore-existing", 0, "kept                             2"),
        ("--immutable", 3, "failed                           2"),
    ] {
        let dir = TestDir::new();
        for (path, text) in [
            ("src/file", "a file now"),
            ("src/folder/in", "a folder now"),
            ("src/missing", "source"),
            ("dst/file/in", "precious"),
            ("dst/folder", "precious"),
        ] {
            let path = dir.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let delete = ["run", "src", "dst", "--delete=permanent", "--max-delete=9"];
        let args = [&delete[..], &[flag]].concat();
        let dry = dir.expect(0, &[&args[..], &["--dry-run"]].concat());
        assert!(!dry.contains("would delete"), "{flag}: {dry}");
        let output = dir.run(&args);
        let printed = super::support::text(&output);
        assert_eq!(read(&dir, "dst/file/in"), "precious", "{flag}: {printed}");
        assert_eq!(read(&dir, "dst/folder"), "precious", "{flag}: {printed}");
        assert_eq!(read(&dir, "dst/missing"), "source", "{flag}: {printed}");
        assert!(printed.contains(class), "{flag}: {printed}");
        // The file below the kept folder is left out, which is said.
        let expected = if code == 0 { 4 } else { code };
        assert_eq!(output.status.code(), Some(expected), "{flag}: {printed}");
        dir.expect(0, &delete);
        assert_eq!(read(&dir, "dst/file"), "a file now");
        assert_eq!(read(&dir, "dst/folder/in"), "a folder now");
    }
}

#[test]
fn a_dry_run_knows_what_would_be_kept() {
    let dir = differing();
    let printed = dir.expect(0, &["run", "src", "dst", "--ignore-existing", "--dry-run"]);
    assert!(printed.contains("would copy 1 entries"), "{printed}");
}

#[test]
fn the_quarantine_of_a_source_is_counted() {
    let dir = differing();
    std::fs::create_dir_all(dir.path("src/.headworks-quarantine/pass-1")).unwrap();
    std::fs::write(dir.path("src/.headworks-quarantine/pass-1/a"), "a").unwrap();
    let printed = dir.expect(0, &["run", "src", "dst"]);
    assert!(
        printed.contains("excluded                         1"),
        "{printed}"
    );
    assert!(!dir.path("dst/.headworks-quarantine").exists());
}

#[test]
fn the_distance_between_the_sides_can_be_set() {
    let dir = differing();
    let refused = dir.expect(2, &["plan", "src", "dst", "--lag", "5"]);
    assert!(
        refused.contains("--max-lead must be at least --lag"),
        "{refused}"
    );
    dir.expect(0, &["plan", "src", "dst", "--lag", "2", "--max-lead", "2"]);
}

/// A source that lists slowly, so that the destination could overtake it.
#[test]
fn a_plan_with_a_distance_of_one_is_complete() {
    let dir = TestDir::new();
    let source = "synth://?seed=3&depth=5&dirs=3&files=2&size=1k&latency=2ms";
    dir.expect(0, &["run", &source.replace("&latency=2ms", ""), "dst"]);
    for lead in ["1", "4"] {
        dir.remove_state();
        let printed = dir.expect(0, &["plan", source, "dst", "--lag=1", "--max-lead", lead]);
        assert!(!printed.contains("unknown"), "{lead}: {printed}");
        assert!(!printed.contains("missing"), "{lead}: {printed}");
        let pending = "SELECT count(*) FROM folder WHERE src <> 1 OR dst <> 1";
        assert_eq!(dir.query_number(pending), 0, "{lead}: {printed}");
    }
}

/// A rule that includes everything does not include the quarantine of an earlier job.
#[test]
fn the_quarantine_of_a_source_is_not_included_again() {
    let dir = differing();
    std::fs::create_dir_all(dir.path("src/.headworks-quarantine/pass-1")).unwrap();
    std::fs::write(dir.path("src/.headworks-quarantine/pass-1/a"), "a").unwrap();
    dir.expect(0, &["plan", "src", "dst"]);
    dir.expect(0, &["review", "--exclude", "missing"]);
    dir.expect(0, &["review", "--include", "**"]);
    dir.expect(0, &["copy"]);
    assert!(dir.path("dst/missing").exists());
    assert!(!dir.path("dst/.headworks-quarantine").exists());
}

/// Copies with the given state of both sides, after `change` was made between plan and copy.
fn copy_after(dir: &TestDir, code: i32, change: impl FnOnce()) -> String {
    dir.expect(0, &["plan", "src", "dst"]);
    change();
    dir.expect(code, &["copy"])
}

#[test]
fn a_file_in_place_of_a_hard_link_is_kept_if_it_was_made_since_the_plan() {
    let dir = TestDir::new();
    for side in ["src", "dst"] {
        std::fs::create_dir(dir.path(side)).unwrap();
    }
    std::fs::write(dir.path("src/a"), "of the source").unwrap();
    for name in ["src/made", "src/rewritten", "src/linked"] {
        std::fs::hard_link(dir.path("src/a"), dir.path(name)).unwrap();
    }
    std::fs::write(dir.path("dst/rewritten"), "before").unwrap();
    let precious = "of another program";
    let printed = copy_after(&dir, 3, || {
        std::fs::write(dir.path("dst/made"), precious).unwrap();
        std::fs::write(dir.path("dst/rewritten"), precious).unwrap();
    });
    assert_eq!(read(&dir, "dst/made"), precious, "{printed}");
    assert_eq!(read(&dir, "dst/rewritten"), precious, "{printed}");
    assert_eq!(read(&dir, "dst/linked"), "of the source");
    dir.expect_clean("dst");
    // The next pass has listed them.
    dir.expect(0, &["run", "src", "dst"]);
    dir.compare_trees("src", "dst");
}

/// Only the permissions differ, so no byte would be copied, and the source's time on other bytes
/// would hide them for ever.
#[test]
fn a_file_that_only_needs_attributes_is_kept_if_it_was_rewritten_since_the_plan() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TestDir::new();
    for side in ["src", "dst"] {
        std::fs::create_dir(dir.path(side)).unwrap();
    }
    std::fs::write(dir.path("src/file"), "old bytes").unwrap();
    std::os::unix::fs::symlink("old target", dir.path("src/link")).unwrap();
    dir.expect(0, &["run", "src", "dst"]);
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(dir.path("src/file"), mode).unwrap();
    let printed = {
        dir.remove_state();
        copy_after(&dir, 3, || {
            std::fs::write(dir.path("dst/file"), "new bytes").unwrap();
        })
    };
    assert_eq!(read(&dir, "dst/file"), "new bytes", "{printed}");
    let time = |path| {
        std::fs::metadata(dir.path(path))
            .unwrap()
            .modified()
            .unwrap()
    };
    assert!(time("dst/file") > time("src/file"), "{printed}");
    // The next pass sees that they differ.
    dir.expect(0, &["run", "src", "dst"]);
    assert_eq!(read(&dir, "dst/file"), "old bytes");
    dir.compare_trees("src", "dst");
}

/// Its size and time say nothing; that it was changed does.
#[test]
fn a_rewritten_file_whose_time_was_set_back_is_kept() {
    for flags in [&[][..], &["--checksum"]] {
        let dir = TestDir::new();
        plan(&dir);
        for (name, _) in SIZES {
            let path = dir.path("dst").join(format!("old-{name}"));
            let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
            std::fs::write(&path, "others").unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
        }
        let printed = dir.expect(3, &[&["copy"][..], flags].concat());
        for (name, _) in SIZES {
            let there = read(&dir, &format!("dst/old-{name}"));
            assert_eq!(there, "others", "{name} {flags:?}: {printed}");
        }
        // The next plan sees them.
        dir.expect(0, &["run", "src", "dst"]);
        dir.compare_trees("src", "dst");
    }
}

/// Replacing one name of a file changes the time of the others, which nobody else did.
#[test]
fn names_of_one_file_are_replaced_one_after_the_other() {
    let dir = TestDir::new();
    for side in ["src", "dst"] {
        std::fs::create_dir_all(dir.path(side)).unwrap();
    }
    for name in ["a", "b", "c"] {
        std::fs::write(dir.path("src").join(name), format!("now {name}")).unwrap();
    }
    std::fs::write(dir.path("dst/a"), "before").unwrap();
    for name in ["b", "extra"] {
        std::fs::hard_link(dir.path("dst/a"), dir.path("dst").join(name)).unwrap();
    }
    dir.expect(
        0,
        &["run", "src", "dst", "--delete=permanent", "--max-delete=1"],
    );
    dir.compare_trees("src", "dst");
}
