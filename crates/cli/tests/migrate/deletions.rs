//! `--delete`: limits, protected entries, and that nothing is removed before its replacement
//! exists.

use super::limited_fs::{Limits, mount};
use super::support::{Faulty, Mount, TestDir, is_full};

const PERMANENT: [&str; 4] = ["run", "src", "dst", "--delete=permanent"];

fn write(dir: &TestDir, path: &str, text: &str) {
    let path = dir.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Runs a deletion with a limit, and expects that it is refused and nothing is removed.
fn expect_refused(dir: &TestDir, limit: u32, delete: &str) {
    let limit_flag = format!("--max-delete={limit}");
    let before = dir.tree("dst");
    let printed = dir.expect(1, &["run", "src", "dst", delete, &limit_flag]);
    assert!(
        printed.contains(&format!("more than the limit of {limit}")),
        "{printed}"
    );
    assert_eq!(dir.tree("dst"), before);
}

#[test]
fn a_folder_counts_with_everything_in_it() {
    let dir = TestDir::new();
    write(&dir, "src/same", "x");
    for at in 0..200 {
        write(&dir, &format!("dst/extra/{}/{at}", at % 7), "x");
    }
    // The folder, seven in it, and the files.
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        expect_refused(&dir, 1, delete);
        expect_refused(&dir, 207, delete);
    }
    let printed = dir.expect(0, &[&PERMANENT[..], &["--max-delete=208"]].concat());
    assert!(
        printed.contains("\n208 entries of the destination were deleted\n"),
        "{printed}"
    );
    dir.compare_trees("src", "dst");
    dir.expect_clean("dst");
}

#[test]
fn a_conflicting_entry_counts_with_everything_in_it() {
    let dir = TestDir::new();
    write(&dir, "src/file", "a file now");
    write(&dir, "src/folder/in", "a folder now");
    std::os::unix::fs::symlink("file", dir.path("src/link")).unwrap();
    for at in 0..50 {
        write(&dir, &format!("dst/file/{at}"), "x");
    }
    write(&dir, "dst/folder", "a file before");
    write(&dir, "dst/link", "a file before");
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        expect_refused(&dir, 0, delete);
        expect_refused(&dir, 52, delete);
    }
    let printed = dir.expect(0, &[&PERMANENT[..], &["--max-delete=53"]].concat());
    assert!(
        printed.contains("\n53 entries of the destination were deleted\n"),
        "{printed}"
    );
    dir.compare_trees("src", "dst");
    dir.expect_clean("dst");
}

#[test]
fn nothing_is_removed_before_its_replacement_is_complete() {
    let dir = TestDir::new();
    write(&dir, "src/short-file", "a file that ends early");
    write(&dir, "src/folder/short-in", "another one");
    write(&dir, "src/folder/whole", "this one does not");
    let _mount = Faulty::over(&dir, "src", "faulty");
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        dir.reset();
        write(&dir, "dst/short-file/precious", "x");
        write(&dir, "dst/folder", "precious too");
        let args = ["run", "faulty", "dst", delete, "--max-delete=9"];
        let printed = dir.expect(3, &[&args[..], &["--attempts=2"]].concat());
        assert!(dir.path("dst/short-file/precious").exists(), "{printed}");
        assert!(dir.path("dst/folder/whole").exists(), "{printed}");
        let kept = dir.path("dst/.headworks-quarantine/pass-1/folder");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "precious too");
        assert_eq!(dir.leftovers("dst").len(), 1, "{:?}", dir.tree("dst"));
    }
}

#[test]
fn a_dry_run_lists_deletions_and_changes_nothing() {
    let dir = TestDir::new();
    write(&dir, "src/file", "a file now");
    write(&dir, "dst/file/below", "a folder before");
    write(&dir, "dst/extra/one", "x");
    write(&dir, "dst/extra/two", "x");
    write(&dir, "dst/more", "x");
    let before = dir.tree("dst");
    for (delete, verb) in [
        ("--delete=permanent", "delete"),
        ("--delete=quarantine", "move to quarantine"),
    ] {
        let args = ["run", "src", "dst", delete, "--max-delete=99", "--dry-run"];
        let printed = dir.expect(0, &args);
        for line in ["extra (3 entries)", "file (2 entries)", "more (1 entries)"] {
            assert!(
                printed.contains(&format!("would {verb}: {line}\n")),
                "{printed}"
            );
        }
        assert!(
            printed.contains(&format!("would {verb} 6 entries\n")),
            "{printed}"
        );
    }
    assert_eq!(dir.tree("dst"), before);
}

/// An unmounted source looks like this.
#[test]
fn an_empty_source_deletes_nothing_unless_allowed() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("src")).unwrap();
    write(&dir, "dst/precious", "x");
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        let args = ["run", "src", "dst", delete, "--max-delete=9"];
        let printed = dir.expect(1, &args);
        assert!(printed.contains("--allow-empty-source"), "{printed}");
        assert!(dir.path("dst/precious").exists());
    }
    // With nothing to delete, nothing is refused.
    std::fs::create_dir(dir.path("empty")).unwrap();
    let args = ["run", "src", "empty", "--delete=quarantine"];
    let output = dir.command_with_state("other.db", &args).output().unwrap();
    assert!(output.status.success());
    let allowed = ["--max-delete=9", "--allow-empty-source"];
    dir.expect(0, &[&PERMANENT[..], &allowed].concat());
    assert!(!dir.path("dst/precious").exists());
}

/// One entry that cannot be removed must not block every later run.
#[test]
fn an_undeletable_entry_is_a_failure_of_its_own() {
    let dir = TestDir::new();
    write(&dir, "src/same", "x");
    write(&dir, "dst/other", "x");
    let _mount = Mount::tmpfs(dir.path("dst/busy"), "1m");
    let args = [&PERMANENT[..], &["--max-delete=9", "--attempts=2"]].concat();
    for _ in 0..2 {
        let printed = dir.expect(3, &args);
        assert!(printed.contains("cannot remove `busy/`"), "{printed}");
        assert!(!dir.path("dst/other").exists(), "{printed}");
        assert!(dir.path("dst/same").exists(), "{printed}");
    }
}

/// Returns those of the names that still exist.
fn left<'n>(dir: &TestDir, names: &[&'n str]) -> Vec<&'n str> {
    let is_there = |name: &&&str| dir.path("dst").join(name).symlink_metadata().is_ok();
    names.iter().filter(is_there).copied().collect()
}

/// Makes entries that the pattern `*.keep` excludes, on both sides and at the destination only, and
/// others.
fn make_excluded(dir: &TestDir) {
    write(dir, "src/same", "x");
    write(dir, "src/both.keep", "of the source");
    write(dir, "src/folder.keep/in", "x");
    write(dir, "dst/both.keep", "of the destination");
    write(dir, "dst/folder.keep/other", "x");
    write(dir, "dst/only.keep", "x");
    write(dir, "dst/extra/deep/in.keep", "x");
    write(dir, "dst/extra/deep/goes", "x");
    write(dir, "dst/extra/more/goes", "x");
    write(dir, "dst/goes", "x");
}

const EXCLUDED: [&str; 9] = [
    "same",
    "both.keep",
    "folder.keep/other",
    "only.keep",
    "extra/deep/in.keep",
    "extra/deep/goes",
    "extra/more",
    "extra/more/goes",
    "goes",
];

#[test]
fn excluded_entries_are_protected() {
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        let dir = TestDir::new();
        make_excluded(&dir);
        let args = ["run", "src", "dst", delete, "--exclude=*.keep"];
        // extra/deep/goes, extra/more with its file, and goes.
        let printed = dir.expect(0, &[&args[..], &["--max-delete=4"]].concat());
        assert_eq!(left(&dir, &EXCLUDED), EXCLUDED[..5], "{printed}");
        assert!(
            printed.contains("\n4 entries of the destination were"),
            "{printed}"
        );
        let kept = std::fs::read_to_string(dir.path("dst/both.keep")).unwrap();
        assert_eq!(kept, "of the destination");
    }
}

#[test]
fn excluded_entries_are_deleted_on_request() {
    let dir = TestDir::new();
    make_excluded(&dir);
    let args = [&PERMANENT[..], &["--exclude=*.keep", "--max-delete=99"]].concat();
    dir.expect(0, &[&args[..], &["--delete-excluded"]].concat());
    assert_eq!(left(&dir, &EXCLUDED), ["same"]);
    let printed = dir.expect(2, &["run", "src", "dst", "--delete-excluded"]);
    assert!(printed.contains("--delete=permanent"), "{printed}");
}

#[test]
fn other_filters_and_review_rules_protect_too() {
    let dir = TestDir::new();
    write(&dir, "src/a.jpg", "x");
    for name in ["b.jpg", "c.txt", "d/e.txt", "f/g.jpg", "large.jpg", "h.jpg"] {
        let text = if name == "large.jpg" {
            "x".repeat(5000)
        } else {
            "x".to_owned()
        };
        write(&dir, &format!("dst/{name}"), &text);
    }
    let filters = ["--include=*.jpg", "--max-size=1k"];
    dir.expect(0, &[&["plan", "src", "dst"][..], &filters].concat());
    dir.expect(0, &["review", "--exclude", "h.*"]);
    dir.expect(0, &["copy", "--delete=permanent", "--max-delete=3"]);
    let names = [
        "a.jpg",
        "c.txt",
        "d/e.txt",
        "large.jpg",
        "h.jpg",
        "b.jpg",
        "f",
    ];
    assert_eq!(left(&dir, &names), names[..5]);
}

/// A folder with a protected entry cannot be replaced by a file.
#[test]
fn a_folder_with_a_protected_entry_is_not_replaced() {
    let dir = TestDir::new();
    write(&dir, "src/name", "a file now");
    write(&dir, "dst/name/in.keep", "x");
    write(&dir, "dst/name/other", "x");
    let args = [&PERMANENT[..], &["--exclude=*.keep", "--max-delete=99"]].concat();
    let printed = dir.expect(4, &args);
    assert!(printed.contains("type_conflict"), "{printed}");
    assert!(dir.path("dst/name/in.keep").exists() && dir.path("dst/name/other").exists());
    dir.expect_clean("dst");
    dir.expect(0, &[&args[..], &["--delete-excluded"]].concat());
    assert_eq!(
        std::fs::read_to_string(dir.path("dst/name")).unwrap(),
        "a file now"
    );
}

#[test]
fn killed_at_every_deletion_it_finishes_and_counts_each_once() {
    let dir = TestDir::new();
    write(&dir, "src/file", "a file now");
    write(&dir, "src/folder/in/deep", "a folder now");
    std::os::unix::fs::symlink("file", dir.path("src/link")).unwrap();
    let some = if is_full() { 1 } else { 3 };
    for (point, step) in [
        ("after-put-away", 1),
        ("before-commit", some),
        ("after-commit", some),
    ] {
        for time in (1..).step_by(step) {
            dir.reset();
            write(&dir, "dst/file/one", "x");
            write(&dir, "dst/file/two", "x");
            write(&dir, "dst/folder", "a file before");
            write(&dir, "dst/link", "a file before");
            write(&dir, "dst/extra/one", "x");
            write(&dir, "dst/more", "x");
            let args = [&PERMANENT[..], &["--max-delete=8"]].concat();
            let mut command = dir.command(&args);
            command.env("HEADWORKS_FAILPOINT", format!("{point}:{time}"));
            if dir.expect_end_of(command).status.code().is_some() {
                assert!(time > 4, "{point} was passed {time} times");
                break;
            }
            if dir.stage() == "done" {
                continue;
            }
            let printed = dir.expect(0, &args);
            let counted = "\n8 entries of the destination were deleted\n";
            assert!(printed.contains(counted), "{point}:{time}: {printed}");
            dir.compare_trees("src", "dst");
            dir.expect_clean("dst");
        }
    }
}

#[test]
fn extra_entries_that_changed_since_the_plan_are_kept() {
    let dir = TestDir::new();
    for folder in ["src", "dst"] {
        std::fs::create_dir(dir.path(folder)).unwrap();
    }
    std::fs::write(dir.path("src/f"), "f").unwrap();
    std::os::unix::fs::symlink("target", dir.path("src/conflict")).unwrap();
    for name in ["rewritten", "replaced", "conflict", "old"] {
        std::fs::write(dir.path("dst").join(name), "old").unwrap();
    }
    dir.expect(0, &["plan", "src", "dst"]);
    std::fs::write(dir.path("dst/rewritten"), "precious").unwrap();
    std::fs::write(dir.path("dst/conflict"), "precious").unwrap();
    std::fs::remove_file(dir.path("dst/replaced")).unwrap();
    std::fs::create_dir(dir.path("dst/replaced")).unwrap();
    std::fs::write(dir.path("dst/replaced/new"), "precious").unwrap();
    let printed = dir.expect(3, &["copy", "--delete=permanent", "--max-delete", "10"]);
    for path in ["rewritten", "replaced/new", "conflict"] {
        let found = std::fs::read_to_string(dir.path("dst").join(path));
        assert_eq!(found.ok().as_deref(), Some("precious"), "{path}: {printed}");
    }
    assert!(!dir.path("dst/old").exists());
    assert!(
        printed.contains("it changed since it was listed"),
        "{printed}"
    );
}

/// Network filesystems answer EINVAL to a rename that must not replace anything.
#[test]
fn entries_are_replaced_and_put_away_where_renames_have_no_flags() {
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        let dir = TestDir::new();
        let _mounted = mount(&dir.path("dst"), Limits::NONE);
        write(&dir, "src/file", "a file now");
        write(&dir, "src/folder/in", "a folder now");
        write(&dir, "src/plain", "copied");
        write(&dir, "dst/file/one", "x");
        write(&dir, "dst/folder", "a file before");
        write(&dir, "dst/extra/two", "x");
        let printed = dir.expect(0, &["run", "src", "dst", delete, "--max-delete=9"]);
        for (path, text) in [
            ("file", "a file now"),
            ("folder/in", "a folder now"),
            ("plain", "copied"),
        ] {
            let found = std::fs::read_to_string(dir.path("dst").join(path));
            assert_eq!(found.ok().as_deref(), Some(text), "{path}: {printed}");
        }
        assert!(!dir.path("dst/extra").exists(), "{printed}");
        if delete == "--delete=quarantine" {
            let kept = dir.path("dst/.headworks-quarantine/pass-1");
            for name in ["file/one", "folder", "extra/two"] {
                assert!(kept.join(name).exists(), "{name}: {printed}");
            }
        }
    }
}

/// The old folder is gone by then: the new file must not go as well.
#[test]
fn a_complete_file_that_cannot_take_its_place_is_kept() {
    let dir = TestDir::new();
    let limits = Limits {
        refused_name: Some("file"),
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    write(&dir, "src/file", "a file now");
    write(&dir, "dst/file/one", "x");
    dir.expect(0, &["plan", "src", "dst"]);
    for _ in 0..2 {
        let printed = dir.expect(3, &["copy", "--delete=permanent", "--max-delete=9"]);
        let kept = dir.leftovers("dst");
        assert_eq!(kept.len(), 1, "{:?}: {printed}", dir.tree("dst"));
        assert_eq!(std::fs::read_to_string(&kept[0]).unwrap(), "a file now");
    }
}

/// Sets the modification time of a file to that of another, as `rsync -a` does.
fn set_time_like(dir: &TestDir, path: &str, like: &str) {
    let modified = std::fs::metadata(dir.path(like))
        .unwrap()
        .modified()
        .unwrap();
    let file = std::fs::File::options().write(true).open(dir.path(path));
    file.unwrap().set_modified(modified).unwrap();
}

/// `rsync -a`, `cp -p` and `tar` write files whose times are long past.
#[test]
fn files_with_old_times_that_came_after_the_plan_are_kept() {
    let dir = TestDir::new();
    write(&dir, "src/f", "f");
    write(&dir, "dst/extra/old", "old");
    write(&dir, "dst/single", "before");
    dir.expect(0, &["plan", "src", "dst"]);
    write(&dir, "dst/extra/new", "precious");
    set_time_like(&dir, "dst/extra/new", "dst/extra/old");
    write(&dir, "dst/other", "");
    set_time_like(&dir, "dst/other", "dst/single");
    std::fs::write(dir.path("dst/single"), "behind").unwrap();
    set_time_like(&dir, "dst/single", "dst/other");
    let printed = dir.expect(3, &["copy", "--delete=permanent", "--max-delete=9"]);
    for (path, text) in [("extra/new", "precious"), ("single", "behind")] {
        let found = std::fs::read_to_string(dir.path("dst").join(path));
        assert_eq!(found.ok().as_deref(), Some(text), "{path}: {printed}");
    }
}
