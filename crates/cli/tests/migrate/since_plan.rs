//! Changes on either side between the plan and the copy: nothing that the plan did not see is
//! deleted, stale attributes are not written, and one entry never ends the run.

use super::support::{Mount, TestDir, text, until};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

const DELETE: [&str; 3] = ["copy", "--delete=permanent", "--max-delete=99"];

fn write(dir: &TestDir, path: &str, text: &str) {
    let path = dir.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn mode(dir: &TestDir, path: &str) -> u32 {
    let entry = std::fs::symlink_metadata(dir.path(path)).unwrap();
    entry.permissions().mode() & 0o7777
}

fn chmod(dir: &TestDir, path: &str, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(dir.path(path), permissions).unwrap();
}

/// The new file may be anywhere in the folder, and may have replaced an old one.
#[test]
fn an_extra_folder_that_gained_files_since_the_plan_is_kept() {
    for (new, delete) in [
        ("dst/extra/new", "--delete=permanent"),
        ("dst/extra/deep/er/new", "--delete=permanent"),
        ("dst/extra/deep/er/old", "--delete=permanent"),
        ("dst/extra/deep/new", "--delete=quarantine"),
    ] {
        let dir = TestDir::new();
        write(&dir, "src/same", "x");
        write(&dir, "dst/extra/deep/er/old", "seen by the plan");
        write(&dir, "dst/gone/old", "seen by the plan");
        dir.expect(0, &["plan", "src", "dst"]);
        write(&dir, new, "precious");
        let args = ["copy", delete, "--max-delete=99"];
        let dry = dir.expect(0, &[&args[..], &["--dry-run"]].concat());
        assert!(!dry.contains(": extra "), "{new}: {dry}");
        let printed = dir.expect(3, &args);
        let kept = std::fs::read_to_string(dir.path(new));
        assert_eq!(kept.ok().as_deref(), Some("precious"), "{new}: {printed}");
        assert!(!dir.path("dst/gone").exists(), "{new}: {printed}");
        assert!(printed.contains("since it was listed"), "{new}: {printed}");
        // The next plan sees it, and the user has said that extras go.
        let args = ["run", "src", "dst", delete, "--max-delete=99"];
        dir.expect(0, &args);
        assert!(!dir.path("dst/extra").exists(), "{new}");
    }
}

/// A folder in place of a source's file is removed like an extra one.
#[test]
fn a_conflicting_folder_that_gained_files_since_the_plan_is_kept() {
    let dir = TestDir::new();
    write(&dir, "src/name", "a file now");
    write(&dir, "dst/name/deep/old", "seen by the plan");
    dir.expect(0, &["plan", "src", "dst"]);
    write(&dir, "dst/name/deep/new", "precious");
    let printed = dir.expect(3, &DELETE);
    assert!(dir.path("dst/name/deep/new").exists(), "{printed}");
    assert!(dir.path("dst/name/deep/old").exists(), "{printed}");
    dir.expect_clean("dst");
}

/// A killed deletion has changed the folder itself, and goes on all the same.
#[test]
fn an_extra_folder_whose_deletion_was_interrupted_is_deleted() {
    let dir = TestDir::new();
    write(&dir, "src/same", "x");
    write(&dir, "dst/a/deep/old", "seen by the plan");
    write(&dir, "dst/b/deep/old", "seen by the plan");
    dir.expect(0, &["plan", "src", "dst"]);
    let mut command = dir.command(&DELETE);
    let killed = command
        .env("HEADWORKS_FAILPOINT", "after-put-away:1")
        .output();
    assert_eq!(killed.unwrap().status.code(), None);
    // As if it had been killed in the middle of the second one.
    std::fs::remove_file(dir.path("dst/b/deep/old")).unwrap();
    dir.expect(0, &DELETE);
    assert!(!dir.path("dst/a").exists() && !dir.path("dst/b").exists());
}

/// Every way of copying takes the permissions and owners that the source has when it is copied, and
/// a verification compares with those.
#[test]
fn permissions_changed_since_the_plan_are_not_stale_at_the_destination() {
    for flags in [&[][..], &["--checksum"]] {
        let dir = TestDir::new();
        let sizes = [("small", 10), ("medium", 300 << 10), ("large", 9 << 20)];
        for (name, size) in sizes {
            write(&dir, &format!("src/folder/{name}"), &"s".repeat(size));
        }
        write(&dir, "src/known/same", "s");
        dir.expect(0, &["run", "src/known", "dst/known"]);
        dir.remove_state();
        chmod(&dir, "src/known/same", 0o640);
        dir.expect(0, &["plan", "src", "dst"]);
        let paths = [
            "folder/small",
            "folder/medium",
            "folder/large",
            "known/same",
        ];
        for path in paths {
            chmod(&dir, &format!("src/{path}"), 0o600);
        }
        std::os::unix::fs::chown(dir.path("src/folder/small"), Some(1234), Some(4321)).unwrap();
        chmod(&dir, "src/folder", 0o700);
        let printed = dir.expect(0, &[&["copy"][..], flags].concat());
        for path in paths {
            assert_eq!(
                mode(&dir, &format!("dst/{path}")),
                0o600,
                "{path}: {printed}"
            );
        }
        assert_eq!(mode(&dir, "dst/folder"), 0o700);
        let owner = std::fs::metadata(dir.path("dst/folder/small")).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (1234, 4321));
        dir.compare_trees("src", "dst");
        dir.expect(0, &["verify"]);
        // The rows are those of what was copied: another mode at the destination is found.
        chmod(&dir, "dst/folder/small", 0o644);
        let printed = dir.expect(4, &["verify"]);
        assert!(printed.contains("different (metadata)"), "{printed}");
    }
}

/// Two names of one file at the destination that the source has as two files.
#[test]
fn a_hard_link_that_was_split_at_the_source_is_split_at_the_destination() {
    let dir = TestDir::new();
    write(&dir, "src/a", "the same bytes");
    std::fs::hard_link(dir.path("src/a"), dir.path("src/b")).unwrap();
    dir.expect(0, &["run", "src", "dst"]);
    let modified = std::fs::metadata(dir.path("src/a")).unwrap().modified();
    std::fs::remove_file(dir.path("src/b")).unwrap();
    write(&dir, "src/b", "the same bytes");
    let file = std::fs::File::options()
        .append(true)
        .open(dir.path("src/b"));
    file.unwrap().set_modified(modified.unwrap()).unwrap();
    chmod(&dir, "src/a", 0o644);
    chmod(&dir, "src/b", 0o600);
    dir.expect(0, &["run", "src", "dst"]);
    assert_eq!((mode(&dir, "dst/a"), mode(&dir, "dst/b")), (0o644, 0o600));
    dir.compare_trees("src", "dst");
    let printed = dir.expect(0, &["run", "src", "dst", "--dry-run"]);
    assert!(printed.contains("would copy 0 entries"), "{printed}");
}

/// Every other type that a plain file may have become.
#[test]
fn a_file_that_became_something_else_fails_alone() {
    for flags in [&[][..], &["--checksum"]] {
        let dir = TestDir::new();
        for name in ["folder", "link", "pipe", "socket", "stays"] {
            write(&dir, &format!("src/{name}"), "a file");
        }
        dir.expect(0, &["plan", "src", "dst"]);
        for name in ["folder", "link", "pipe", "socket"] {
            std::fs::remove_file(dir.path("src").join(name)).unwrap();
        }
        std::fs::create_dir(dir.path("src/folder")).unwrap();
        std::os::unix::fs::symlink("stays", dir.path("src/link")).unwrap();
        dir.python("import os; os.mkfifo('src/pipe')", &[]);
        let _socket = std::os::unix::net::UnixListener::bind(dir.path("src/socket")).unwrap();
        let printed = dir.expect(3, &[&["copy"][..], flags].concat());
        assert!(dir.path("dst/stays").exists(), "{printed}");
        assert_eq!(dir.tree("dst").len(), 1, "{printed}");
        assert!(!printed.contains("run the same command again"), "{printed}");
        dir.expect_clean("dst");
    }
}

/// A mount point cannot be removed, whatever the permissions.
#[test]
fn an_extra_that_cannot_be_deleted_fails_alone() {
    let dir = TestDir::new();
    write(&dir, "src/name/in", "a folder now");
    write(&dir, "src/file", "a file");
    write(&dir, "dst/a-extra/old", "x");
    let _mount = Mount::tmpfs(dir.path("dst/b-extra/mounted"), "64k");
    write(&dir, "dst/c-extra/old", "x");
    let args = ["run", "src", "dst", "--delete=permanent", "--max-delete=9"];
    for _ in 0..2 {
        let printed = dir.expect(3, &[&args[..], &["--attempts=2"]].concat());
        assert!(!dir.path("dst/a-extra").exists(), "{printed}");
        assert!(!dir.path("dst/c-extra").exists(), "{printed}");
        assert!(dir.path("dst/b-extra/mounted").exists(), "{printed}");
        assert!(dir.path("dst/name/in").exists(), "{printed}");
        assert!(printed.contains("b-extra"), "{printed}");
    }
}

/// Immutable files cannot be removed by anybody, and the reason is not that they are no folders.
#[test]
fn a_file_that_cannot_be_deleted_is_explained_by_the_system() {
    let dir = TestDir::new();
    let image = dir.path("image");
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(8 << 20).unwrap();
    let made = std::process::Command::new("mkfs.ext4")
        .arg("-q")
        .arg(&image)
        .status();
    assert!(made.unwrap().success());
    let _mount = Mount::image(&image, dir.path("dst"));
    std::fs::remove_dir(dir.path("dst/lost+found")).unwrap();
    write(&dir, "src/name/in", "a folder now");
    write(&dir, "src/other", "x");
    write(&dir, "dst/name", "a file in the way");
    write(&dir, "dst/extra", "x");
    let set = |flag: &str| {
        let files = ["dst/name", "dst/extra"].map(|path| dir.path(path));
        let set = std::process::Command::new("chattr")
            .arg(flag)
            .args(files)
            .status();
        assert!(set.unwrap().success());
    };
    set("+i");
    let args = ["run", "src", "dst", "--delete=permanent", "--max-delete=9"];
    for _ in 0..2 {
        let printed = dir.expect(3, &args);
        assert!(printed.contains("Operation not permitted"), "{printed}");
        assert!(!printed.contains("Not a directory"), "{printed}");
        assert!(dir.path("dst/other").exists(), "{printed}");
    }
    set("-i");
    dir.expect(0, &args);
    dir.compare_trees("src", "dst");
}

/// The files go on into the folder that was the destination, and the path of the job has none of
/// them: that is no success.
#[test]
fn a_destination_that_is_moved_during_a_run_is_an_error() {
    for replaced in [false, true] {
        let dir = TestDir::new();
        dir.make_tree("src", 40, 5);
        std::fs::create_dir(dir.path("dst")).unwrap();
        let args = ["run", "src", "dst", "--bwlimit", "60k", "--transfers=1"];
        let mut command = dir.command(&args);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = piped.spawn().unwrap();
        until("some files are copied", || dir.tree("dst").len() > 60);
        std::fs::rename(dir.path("dst"), dir.path("moved")).unwrap();
        if replaced {
            std::fs::create_dir(dir.path("dst")).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("moved or replaced"), "{printed}");
        // Nothing that the new folder does not have is recorded as copied.
        let _ = std::fs::remove_dir(dir.path("dst"));
        std::fs::rename(dir.path("moved"), dir.path("dst")).unwrap();
        dir.expect(0, &["run", "src", "dst"]);
        dir.compare_trees("src", "dst");
        dir.expect_clean("dst");
    }
}

/// A file server with a clock of its own dates entries before the plan that were made after it.
#[test]
fn an_extra_folder_is_judged_by_the_clock_of_the_destination() {
    use super::limited_fs::{Limits, mount};
    let dir = TestDir::new();
    let limits = Limits {
        behind: std::time::Duration::from_secs(3600),
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    write(&dir, "src/same", "x");
    write(&dir, "dst/extra/deep/old", "seen by the plan");
    write(&dir, "dst/gone/old", "seen by the plan");
    dir.expect(0, &["plan", "src", "dst"]);
    write(&dir, "dst/extra/deep/new", "precious");
    let printed = dir.expect(3, &DELETE);
    assert!(dir.path("dst/extra/deep/new").exists(), "{printed}");
    assert!(!dir.path("dst/gone").exists(), "{printed}");
}
