//! Destinations that can do less than the source.

use super::limited_fs::{Limits, mount};
use super::support::TestDir;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

fn tree(dir: &TestDir) {
    std::fs::create_dir_all(dir.path("src/folder")).unwrap();
    for name in ["one", "two", "folder/three"] {
        let path = dir.path("src").join(name);
        std::fs::write(&path, name).unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
    }
}

#[test]
fn coarse_times_do_not_mean_endless_copying() {
    for granularity in [100, 1_000_000_000, 2_000_000_000] {
        let dir = TestDir::new();
        tree(&dir);
        let granularity = Duration::from_nanos(granularity);
        let limits = Limits {
            granularity,
            ..Limits::NONE
        };
        let _mounted = mount(&dir.path("dst"), limits);
        dir.expect(0, &["run", "src", "dst"]);
        let again = dir.expect(0, &["run", "src", "dst"]);
        assert!(!again.contains("copied"), "{granularity:?}: {again}");
    }
}

#[test]
fn files_arrive_where_nobody_can_give_them_away() {
    let dir = TestDir::new();
    tree(&dir);
    let limits = Limits {
        can_chown: false,
        can_chmod: false,
        has_xattrs: false,
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let printed = dir.expect(0, &["run", "src", "dst"]);
    for name in ["one", "two", "folder/three"] {
        let copied = dir.path("dst").join(name);
        assert_eq!(std::fs::read_to_string(&copied).unwrap(), name);
        assert_eq!(std::fs::metadata(&copied).unwrap().uid(), 0);
    }
    let lost = "the destination does not keep: owners, permissions, extended attributes";
    assert!(printed.contains(lost), "{printed}");
    let again = dir.expect(0, &["run", "src", "dst"]);
    assert!(!again.contains("copied"), "{again}");
}

fn folding() -> Limits {
    Limits {
        folds_case: true,
        ..Limits::NONE
    }
}

fn write(dir: &TestDir, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = dir.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn read(dir: &TestDir, path: &str) -> String {
    std::fs::read_to_string(dir.path(path)).unwrap()
}

#[test]
fn names_that_the_destination_cannot_tell_apart_are_conflicts() {
    let dir = TestDir::new();
    let files = [
        ("src/README", "one file"),
        ("src/readme", "another!"),
        ("src/Folder/a", "in one"),
        ("src/folder/a", "in two"),
    ];
    write(&dir, &files);
    // The same time as well: nothing but the bytes tells the files apart.
    let time = std::fs::metadata(dir.path("src/README"))
        .unwrap()
        .modified();
    let mut options = std::fs::File::options();
    let file = options.append(true).open(dir.path("src/readme"));
    file.unwrap().set_modified(time.unwrap()).unwrap();
    // rsync loses two files, and says nothing.
    let _other = mount(&dir.path("rsync"), folding());
    let mut rsync = Command::new("rsync");
    let rsync = rsync.arg("-a").arg(dir.path("src/")).arg(dir.path("rsync"));
    assert!(rsync.status().unwrap().success());
    assert_eq!(std::fs::read_dir(dir.path("rsync")).unwrap().count(), 2);
    let _mounted = mount(&dir.path("dst"), folding());
    let plan = dir.expect(0, &["plan", "src", "dst"]);
    assert!(
        plan.contains("name_conflict                    2"),
        "{plan}"
    );
    dir.expect(4, &["run", "src", "dst"]);
    assert_eq!(read(&dir, "dst/README"), "one file");
    assert_eq!(read(&dir, "dst/Folder/a"), "in one");
    assert_eq!(std::fs::read_dir(dir.path("dst")).unwrap().count(), 2);
    let explained = dir.expect(0, &["explain", "readme"]);
    assert!(explained.contains("name_conflict"), "{explained}");
    // Another pass finds the same, and so does `--delete`.
    dir.expect(
        4,
        &[
            "run",
            "src",
            "dst",
            "--delete",
            "permanent",
            "--max-delete",
            "9",
        ],
    );
    assert_eq!(read(&dir, "dst/README"), "one file");
    assert_eq!(read(&dir, "dst/Folder/a"), "in one");
}

#[test]
fn a_file_in_another_spelling_is_neither_missing_nor_extra() {
    let dir = TestDir::new();
    write(
        &dir,
        &[("src/README", "newer text"), ("src/Docs/Guide", "g")],
    );
    let _mounted = mount(&dir.path("dst"), folding());
    write(&dir, &[("dst/readme", "old"), ("dst/docs/extra", "e")]);
    let plan = dir.expect(0, &["plan", "src", "dst"]);
    assert!(
        plan.contains("different (size)                 1"),
        "{plan}"
    );
    dir.expect(
        0,
        &[
            "run",
            "src",
            "dst",
            "--delete",
            "permanent",
            "--max-delete",
            "9",
        ],
    );
    assert_eq!(read(&dir, "dst/README"), "newer text");
    assert_eq!(read(&dir, "dst/Docs/Guide"), "g");
    assert!(!dir.path("dst/Docs/extra").exists());
    let again = dir.expect(
        0,
        &[
            "run",
            "src",
            "dst",
            "--delete",
            "permanent",
            "--max-delete",
            "9",
        ],
    );
    assert!(!again.contains("copied"), "{again}");
}

#[test]
fn links_become_what_the_destination_has() {
    let dir = TestDir::new();
    write(&dir, &[("src/file", "text")]);
    std::fs::hard_link(dir.path("src/file"), dir.path("src/link")).unwrap();
    std::os::unix::fs::symlink("file", dir.path("src/symlink")).unwrap();
    let limits = Limits {
        has_symlinks: false,
        has_hard_links: false,
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let printed = dir.expect(4, &["run", "src", "dst"]);
    assert!(
        printed.contains("unsupported                      1"),
        "{printed}"
    );
    assert_eq!(read(&dir, "dst/link"), "text");
    assert_eq!(read(&dir, "dst/file"), "text");
}

#[test]
fn the_free_space_is_checked_and_the_check_can_be_overruled() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("src")).unwrap();
    let sparse = std::fs::File::create(dir.path("src/sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    let small = Limits {
        free: 64 << 10,
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("mnt"), small);
    // The destination does not exist yet.
    let refused = dir.expect(1, &["run", "src", "mnt/dst"]);
    let reason = "1048576 bytes are to be copied but only 65536 are free";
    assert!(refused.contains(reason), "{refused}");
    assert!(refused.contains("--ignore-free-space"), "{refused}");
    assert!(!dir.path("mnt/dst").exists());
    dir.expect(0, &["run", "src", "mnt/dst", "--ignore-free-space"]);
    assert_eq!(
        std::fs::metadata(dir.path("mnt/dst/sparse")).unwrap().len(),
        1 << 20
    );
}

#[test]
fn what_fits_is_not_refused() {
    let dir = TestDir::new();
    write(&dir, &[("src/file", &"x".repeat(40 << 10))]);
    std::fs::hard_link(dir.path("src/file"), dir.path("src/link")).unwrap();
    let small = Limits {
        free: 64 << 10,
        ..Limits::NONE
    };
    let _small = mount(&dir.path("small"), small);
    dir.expect(0, &["run", "src", "small/dst"]);
    let untold = Limits {
        free: 0,
        ..Limits::NONE
    };
    let _untold = mount(&dir.path("untold"), untold);
    let again = dir.command_with_state("other.db", &["run", "src", "untold/dst"]);
    let output = dir.expect_end_of(again);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        super::support::text(&output)
    );
}

#[test]
fn names_are_matched_in_folders_of_many_pages() {
    let dir = TestDir::new();
    let names: Vec<String> = (0..3000).map(|n| format!("src/File{n}")).collect();
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    files.extend([("src/file7", "another"), ("src/FILE2999", "another")]);
    write(&dir, &files);
    let _mounted = mount(&dir.path("dst"), folding());
    write(&dir, &[("dst/fILE1500", "old text"), ("dst/extra", "e")]);
    let args = [
        "run",
        "src",
        "dst",
        "--delete",
        "permanent",
        "--max-delete",
        "1",
    ];
    let printed = dir.expect(4, &args);
    assert!(
        printed.contains("name_conflict                    2"),
        "{printed}"
    );
    assert_eq!(std::fs::read_dir(dir.path("dst")).unwrap().count(), 3000);
    assert_eq!(read(&dir, "dst/File1500"), "x");
    assert!(!dir.path("dst/extra").exists());
}

#[test]
fn an_excluded_file_is_protected_in_every_spelling() {
    let dir = TestDir::new();
    write(&dir, &[("src/README", "source"), ("src/other", "o")]);
    let _mounted = mount(&dir.path("dst"), folding());
    write(&dir, &[("dst/readme", "kept")]);
    let args = [
        "run",
        "src",
        "dst",
        "--exclude",
        "README",
        "--delete",
        "permanent",
        "--max-delete",
        "5",
    ];
    dir.expect(0, &args);
    assert_eq!(read(&dir, "dst/readme"), "kept");
}
