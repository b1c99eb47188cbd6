//! Requests to a job while it runs and between runs.

use super::support::{TestDir, text, until};

const COPIED: &str = "SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1";

#[test]
fn a_pause_holds_a_copy_of_another_process_until_it_is_resumed() {
    let dir = TestDir::new();
    dir.make_tree("src", 40, 10);
    // So slow that it cannot be over before the pause, however busy the machine is.
    let mut child = dir.start(&["run", "src", "dst", "--bwlimit", "2k"]);
    until("it copies", || dir.query_number(COPIED) > 0);
    assert!(dir.expect(0, &["pause"]).contains("handed to the runner"));
    until("the runner applies it", || {
        dir.expect(0, &["status"])
            .contains("waits for `headworks migrate resume`")
    });
    assert!(dir.expect(0, &["status"]).contains("paused"));
    let before = dir.query_number(COPIED);
    dir.expect(0, &["resume"]);
    until("it copies again", || dir.query_number(COPIED) > before);
    child.kill().unwrap();
    child.wait().unwrap();
    dir.expect(0, &["run", "src", "dst"]);
    dir.compare_trees("src", "dst");
}

#[test]
fn retry_repeats_failed_entries_and_nothing_else() {
    let dir = TestDir::new();
    let source = "synth://?seed=4&depth=2&dirs=3&files=8&size=2k&errors=40";
    let printed = dir.expect(3, &["run", source, "dst", "--attempts", "2"]);
    assert!(printed.contains("failed"), "{printed}");
    // Each time some more succeed: faults depend on how often a process requested an object.
    let mut rounds = 0;
    loop {
        dir.expect(0, &["retry"]);
        let output = dir.expect_no_repeats(&["run", source, "dst", "--attempts", "9"]);
        match output.status.code() {
            Some(0) => break,
            Some(3) => rounds += 1,
            other => panic!("{other:?}: {}", text(&output)),
        }
        assert!(rounds < 9, "it does not get better: {}", text(&output));
    }
    assert_eq!(
        dir.query_number("SELECT value FROM meta WHERE key = 'pass'"),
        1
    );
    dir.expect(0, &["report"]);
}

#[test]
fn a_hard_link_is_copied_if_the_first_name_is_excluded() {
    let dir = TestDir::new();
    std::fs::create_dir_all(dir.path("src/a")).unwrap();
    std::fs::create_dir_all(dir.path("src/b")).unwrap();
    std::fs::write(dir.path("src/a/first"), "shared").unwrap();
    for name in ["src/a/second", "src/b/third"] {
        std::fs::hard_link(dir.path("src/a/first"), dir.path(name)).unwrap();
    }
    dir.expect(0, &["plan", "src", "dst"]);
    dir.expect(0, &["review", "--exclude", "a/first"]);
    dir.expect(0, &["copy"]);
    dir.expect(0, &["verify", "--hash"]);
    use std::os::unix::fs::MetadataExt;
    let inode = |name: &str| std::fs::metadata(dir.path(name)).unwrap().ino();
    assert!(!dir.path("dst/a/first").exists());
    assert_eq!(inode("dst/a/second"), inode("dst/b/third"));
}

#[test]
fn an_extra_folder_is_recorded_and_not_listed() {
    let dir = TestDir::new();
    dir.make_tree("src", 3, 2);
    dir.make_tree("dst", 3, 2);
    let deep = dir.path("dst/only/here/is/more");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("file"), "x").unwrap();
    let output = dir.expect_no_repeats(&["plan", "src", "dst"]);
    assert!(text(&output).contains("not_on_src"), "{}", text(&output));
    let calls = dir.calls();
    assert!(
        calls.contains(&"destination list f0/".to_owned()),
        "{calls:?}"
    );
    assert!(!calls.iter().any(|call| call.contains("only")), "{calls:?}");
    let lines = dir.entries();
    let only: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("not_on_src"))
        .collect();
    assert_eq!(only.len(), 1, "{only:?}");
}

#[test]
fn prioritised_files_are_copied_first() {
    let dir = TestDir::new();
    dir.make_tree("src", 12, 6);
    dir.expect(0, &["plan", "src", "dst"]);
    dir.expect(0, &["review", "--prioritise", "file-3"]);
    dir.expect_no_repeats(&["copy", "--transfers", "1"]);
    let calls = dir.calls();
    let copies: Vec<bool> = calls
        .iter()
        .filter(|call| call.starts_with("destination copy"))
        .map(|call| call.ends_with("file-3"))
        .collect();
    assert_eq!(copies.len(), 72);
    assert!(copies[..12].iter().all(|first| *first), "{calls:?}");
    assert!(copies[12..].iter().all(|first| !first));
}

#[test]
fn absurd_numbers_are_refused() {
    let dir = TestDir::new();
    for (flag, number) in [
        ("--workers", "99999999999"),
        ("--workers", "0"),
        ("--requests", "-1"),
        ("--requests", "inf"),
        ("--attempts", "0"),
        ("--transfers", "1000000"),
    ] {
        let printed = dir.expect(2, &["run", "src", "dst", &format!("{flag}={number}")]);
        assert!(printed.contains(flag), "{printed}");
        assert!(!dir.path("job.db").exists());
    }
}

/// An empty variable in a script would otherwise leave out everything.
#[test]
fn empty_patterns_are_refused() {
    let dir = TestDir::new();
    dir.make_tree("src", 2, 2);
    for pattern in ["", "/", "//"] {
        for flag in ["--exclude", "--include"] {
            let printed = dir.expect(2, &["run", "src", "dst", flag, pattern]);
            assert!(printed.contains("empty pattern"), "{flag}: {printed}");
        }
    }
    assert!(!dir.path("dst").exists());
    dir.expect(0, &["plan", "src", "dst"]);
    for flag in ["--exclude", "--include", "--prioritise"] {
        let printed = dir.expect(2, &["review", flag, ""]);
        assert!(printed.contains("empty pattern"), "{flag}: {printed}");
    }
    dir.expect(0, &["pause"]);
    dir.expect(0, &["resume"]);
    dir.expect(0, &["copy"]);
    dir.compare_trees("src", "dst");
}

#[test]
fn trees_inside_each_other_are_refused_and_nothing_is_written() {
    let dir = TestDir::new();
    std::fs::create_dir_all(dir.path("outer/inner")).unwrap();
    std::fs::write(dir.path("outer/inner/precious"), "x").unwrap();
    std::os::unix::fs::symlink("outer", dir.path("link")).unwrap();
    for (source, destination) in [
        ("outer/inner", "outer"),
        ("outer", "outer/inner/new"),
        ("outer", "outer"),
        ("outer", "link/new"),
        ("link/inner", "file:outer"),
    ] {
        let printed = dir.expect(1, &["run", source, destination, "--delete=quarantine"]);
        assert!(printed.contains("is inside"), "{printed}");
    }
    assert!(dir.path("outer/inner/precious").exists());
    assert!(!dir.path("job.db").exists());
}

#[test]
fn passwords_in_urls_are_neither_stored_nor_displayed() {
    for url in [
        "s3://key:LEAKED@bucket/prefix",
        "webdav://user:LEAKED@host/",
        "sftp://user:LEAKED@host/",
        "sftp://user@host/?password=LEAKED",
        "s3://bucket?endpoint=http://user:LEAKED@host",
        "s3://bucket?secret=LEAKED",
        "S3://key:LEAKED@bucket",
        "webdav://host/#LEAKED",
    ] {
        let dir = TestDir::new();
        let printed = dir.expect(2, &["plan", url, "dst"]);
        assert!(!printed.contains("LEAKED"), "{printed}");
        let left = std::fs::read_dir(dir.path(".")).unwrap().count();
        assert_eq!(left, 0, "{url}");
    }
}

#[test]
fn other_files_are_refused_as_state_files_and_left_alone() {
    let dir = TestDir::new();
    dir.make_tree("src", 2, 2);
    let other = "
import sqlite3
db = sqlite3.connect('job.db')
db.execute('CREATE TABLE meta (of_another_program)')
db.commit()";
    dir.python(other, &[]);
    let before = std::fs::read(dir.path("job.db")).unwrap();
    for args in [&["run", "src", "dst"][..], &["status"], &["pause"]] {
        let printed = dir.expect(2, args);
        assert!(printed.contains("of another program"), "{printed}");
    }
    assert_eq!(std::fs::read(dir.path("job.db")).unwrap(), before);
    std::fs::write(dir.path("job.db"), "some notes of mine, long enough to be no header at all, and more of them, to be sure of that.............").unwrap();
    let printed = dir.expect(2, &["run", "src", "dst"]);
    assert!(printed.contains("not a state file"), "{printed}");
    std::fs::remove_file(dir.path("job.db")).unwrap();
    std::fs::create_dir(dir.path("job.db")).unwrap();
    let printed = dir.expect(2, &["run", "src", "dst"]);
    assert!(printed.contains("is a directory"), "{printed}");
    std::fs::remove_dir(dir.path("job.db")).unwrap();
    std::os::unix::fs::symlink("/dev/null", dir.path("job.db")).unwrap();
    let printed = dir.expect(2, &["run", "src", "dst"]);
    assert!(printed.contains("is not a file"), "{printed}");
    for beside in ["job.db-lock", "job.db-wal", "job.db-shm"] {
        assert!(!dir.path(beside).exists(), "{beside} was left");
    }
}

#[test]
fn a_mistyped_source_does_not_occupy_the_state_file() {
    let dir = TestDir::new();
    dir.make_tree("src", 2, 2);
    let printed = dir.expect(1, &["run", "scr", "dst"]);
    assert!(printed.contains("scr"), "{printed}");
    dir.expect(0, &["run", "src", "dst"]);
    // The state file of one job is never used for another.
    let printed = dir.expect(2, &["run", "scr", "dst"]);
    assert!(printed.contains("name another state file"), "{printed}");
}

#[test]
fn folders_of_one_server_that_are_inside_each_other_are_refused() {
    let dir = TestDir::new();
    for (from, to) in [
        ("sftp://me@host/data", "sftp://me@host/data/copy"),
        ("s3://bucket/a/b?anonymous", "s3://bucket/a/?anonymous"),
        ("webdav://host/x", "webdav://host/x"),
    ] {
        let printed = dir.expect(1, &["plan", from, to]);
        assert!(printed.contains("is inside"), "{printed}");
    }
    let left = std::fs::read_dir(dir.path(".")).unwrap().count();
    assert_eq!(left, 0, "nothing was written");
}

#[test]
fn a_state_file_inside_the_trees_is_not_part_of_them() {
    let dir = TestDir::new();
    dir.make_tree("src", 3, 2);
    std::fs::create_dir(dir.path("src/jobs")).unwrap();
    for (state, side) in [("src/jobs/own.db", "source"), ("dst/own.db", "destination")] {
        std::fs::create_dir_all(dir.path("dst")).unwrap();
        let args = ["run", "src", "dst", "--delete=quarantine"];
        let args = dir.command_with_state(state, &args).output().unwrap();
        let printed = super::support::text(&args);
        assert_eq!(args.status.code(), Some(0), "{printed}");
        assert!(
            printed.contains(&format!("is inside the {side}")),
            "{printed}"
        );
        assert!(dir.path(state).exists() && dir.path("dst/f0/g0/file-0").exists());
        assert!(
            !dir.path("dst/jobs/own.db").exists(),
            "the state file was copied"
        );
        let _ = std::fs::remove_dir_all(dir.path("dst"));
        for file in ["own.db", "own.db-lock"] {
            let _ = std::fs::remove_file(dir.path("src/jobs").join(file));
        }
    }
}

#[test]
fn a_damaged_state_file_prints_no_manifest() {
    let dir = TestDir::new();
    dir.make_tree("src", 5, 5);
    dir.expect(0, &["run", "src", "dst", "--checksum"]);
    dir.python(
        "import sqlite3; sqlite3.connect('job.db').execute('PRAGMA wal_checkpoint(TRUNCATE)')",
        &[],
    );
    let find = "SELECT rootpage - 1 FROM sqlite_schema WHERE name = 'hash'";
    let page = usize::try_from(dir.query_number(find)).unwrap() * 4096;
    let mut bytes = std::fs::read(dir.path("job.db")).unwrap();
    // A leaf without cells: it is consistent, but its rows are gone.
    bytes[page + 3..page + 5].fill(0);
    std::fs::write(dir.path("job.db"), bytes).unwrap();
    let printed = dir.expect(1, &["report", "--manifest"]);
    assert!(printed.contains("damaged"), "{printed}");
}

#[test]
fn packed_files_of_equal_folders_are_known_individually() {
    let dir = TestDir::new();
    dir.make_tree("src", 3, 4);
    dir.expect(0, &["run", "src", "dst"]);
    dir.expect(0, &["plan", "src", "dst"]);
    let rows =
        |side: &str| dir.query_number(&format!("SELECT count(*) FROM {side} WHERE kind = 1"));
    let alike = "SELECT sum(entries) FROM files JOIN folder ON id = folder WHERE alike = 1";
    assert_eq!((rows("source"), rows("destination")), (0, 0));
    assert_eq!(dir.query_number(alike), 12);
    let equal = dir.entries();
    dir.expect(0, &["review", "--exclude", "f0/g0/file-1"]);
    let printed = dir.expect(0, &["explain", "f0/g0/file-1"]);
    assert!(printed.contains("status: excluded"), "{printed}");
    let printed = dir.expect(0, &["explain", "f0/g0/file-2"]);
    assert!(printed.contains("status: same"), "{printed}");
    let marked = dir.entries();
    let changed: Vec<_> = equal.iter().zip(&marked).filter(|(a, b)| a != b).collect();
    assert_eq!(
        (marked.len(), changed.len()),
        (equal.len(), 1),
        "{changed:?}"
    );
    dir.expect(0, &["review", "--include", "f0/g0/file-1"]);
    assert_eq!(dir.entries(), equal);
    dir.expect(0, &["copy"]);
    dir.expect(0, &["verify"]);
}

#[test]
fn a_change_in_a_folder_of_packed_files_is_noticed() {
    let dir = TestDir::new();
    dir.make_tree("src", 5, 4);
    dir.expect(0, &["run", "src", "dst"]);
    std::fs::write(dir.path("dst/f0/g0/file-1x"), "more").unwrap();
    std::fs::remove_file(dir.path("dst/f1/g1/file-0")).unwrap();
    std::fs::write(dir.path("src/f2/g2/file-3"), "longer than it was before").unwrap();
    std::fs::remove_file(dir.path("src/f3/g3/file-2")).unwrap();
    std::fs::create_dir_all(dir.path("src/f3/g3/file-2/below")).unwrap();
    dir.expect(0, &["plan", "src", "dst"]);
    let nodes = dir.entries();
    let of = |path: &str| {
        let mut lines = nodes.iter().filter(|line| {
            line.contains(&format!("{path},")) || line.contains(&format!("{path}\""))
        });
        lines.next().cloned().unwrap_or_default()
    };
    for (path, status) in [
        ("f0/g0/file-1x", "not_on_src"),
        ("f0/g0/file-1", "same"),
        ("f1/g1/file-0", "missing"),
        ("f2/g2/file-3", "different (size)"),
        ("f3/g3/file-2", "type_conflict"),
        ("f3/g3/file-2/below", "type_conflict"),
        ("f4/g4/file-3", "same"),
    ] {
        assert!(of(path).contains(status), "{path}: {nodes:?}");
    }
}

/// Size and time are right, so no plan notices it: only reading the bytes does.
#[test]
fn a_file_with_a_wrong_hash_is_copied_again() {
    let dir = TestDir::new();
    dir.make_tree("src", 3, 4);
    dir.expect(0, &["run", "src", "dst"]);
    let spoilt = dir.path("dst/f1/g1/file-2");
    let (good, about) = (std::fs::read(&spoilt).unwrap(), spoilt.metadata().unwrap());
    let bad: Vec<u8> = good.iter().map(|byte| !byte).collect();
    std::fs::write(&spoilt, bad).unwrap();
    let file = std::fs::File::options().append(true).open(&spoilt).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();

    let printed = dir.expect(4, &["verify", "--hash"]);
    assert!(
        printed.contains("f1/g1/file-2: different (hash)"),
        "{printed}"
    );
    let printed = dir.expect(0, &["explain", "f1/g1/file-2"]);
    assert!(printed.contains("missing"), "{printed}");
    let printed = dir.expect(0, &["log"]);
    assert!(
        printed.contains("f1/g1/file-2: different (hash)"),
        "{printed}"
    );

    dir.expect(0, &["run", "src", "dst"]);
    assert_eq!(std::fs::read(&spoilt).unwrap(), good);
    dir.expect(0, &["verify", "--hash"]);
    dir.expect(0, &["report"]);
    dir.compare_trees("src", "dst");
}

#[test]
fn a_copy_with_skipped_entries_is_verified() {
    let dir = TestDir::new();
    dir.make_tree("src", 2, 2);
    let pipe = dir.path("src/pipe");
    let made = std::process::Command::new("mkfifo").arg(pipe).status();
    assert!(made.unwrap().success());
    let printed = dir.expect(4, &["run", "src", "dst"]);
    assert!(
        printed.contains("unsupported                      1"),
        "{printed}"
    );
    let printed = dir.expect(4, &["verify"]);
    assert!(printed.contains("cannot hold 1 of those"), "{printed}");
}

#[test]
fn a_limit_of_zero_is_refused() {
    let dir = TestDir::new();
    dir.make_tree("src", 1, 1);
    let printed = dir.expect(2, &["run", "src", "dst", "--bwlimit", "0"]);
    assert!(printed.contains("more than 0"), "{printed}");
}

#[test]
fn a_state_file_is_locked_under_every_name() {
    let dir = TestDir::new();
    dir.make_tree("src", 1, 1);
    dir.expect(0, &["run", "src", "dst"]);
    std::os::unix::fs::symlink("job.db", dir.path("other.db")).unwrap();
    let lock = std::fs::File::open(dir.path("job.db-lock")).unwrap();
    lock.lock().unwrap();
    let output = dir
        .command_with_state("other.db", &["verify"])
        .output()
        .unwrap();
    assert!(!output.status.success(), "{}", text(&output));
    drop(lock);
    std::fs::remove_file(dir.path("other.db")).unwrap();
    std::fs::hard_link(dir.path("job.db"), dir.path("other.db")).unwrap();
    let output = dir
        .command_with_state("other.db", &["verify"])
        .output()
        .unwrap();
    assert!(text(&output).contains("second name"), "{}", text(&output));
}

/// A terminated session takes the reader of stderr with it.
#[test]
fn a_signal_stops_it_although_its_output_is_closed() {
    let dir = TestDir::new();
    let source = "synth://?seed=1&depth=3&fanout=20&files=20&latency=20ms";
    let mut child = dir.start(&["run", source, "dst"]);
    until("it lists", || {
        dir.query_number("SELECT count(*) FROM folder") > 3
    });
    drop((child.stderr.take(), child.stdout.take()));
    let printed = std::process::Command::new("kill")
        .arg(child.id().to_string())
        .status();
    assert!(printed.unwrap().success());
    until("it has stopped", || child.try_wait().unwrap().is_some());
}

#[test]
fn other_filters_are_for_the_next_pass() {
    let dir = TestDir::new();
    dir.make_tree("src", 2, 2);
    dir.expect(0, &["run", "src", "dst"]);
    std::fs::write(dir.path("src/secret"), "s").unwrap();
    std::fs::write(dir.path("src/open"), "o").unwrap();
    let printed = dir.expect(0, &["run", "src", "dst", "--exclude", "secret"]);
    assert!(printed.contains("excluded"), "{printed}");
    assert!(dir.path("dst/open").exists() && !dir.path("dst/secret").exists());
    // The job keeps the filters, and reports that.
    let printed = dir.expect(0, &["run", "src", "dst"]);
    assert!(
        printed.contains("with the filters of this job: --exclude 'secret'"),
        "{printed}"
    );
    assert!(!dir.path("dst/secret").exists());
    // A plan made with other filters is made again.
    dir.expect(0, &["plan", "src", "dst", "--exclude", "nothing"]);
    dir.expect(0, &["run", "src", "dst", "--exclude", "open"]);
    assert!(dir.path("dst/secret").exists());
    dir.expect(2, &["run", "src", "dst", "--exclude", "{"]);
    let printed = dir.expect(0, &["log"]);
    assert!(
        printed.contains("filters changed to: --exclude 'open'"),
        "{printed}"
    );
    // A running pass is not changed.
    dir.python(
        "import sqlite3; db = sqlite3.connect('job.db'); db.execute(\"UPDATE meta SET value = 'copying' WHERE key = 'stage'\"); db.commit()",
        &[],
    );
    let printed = dir.expect(2, &["run", "src", "dst", "--exclude", "x"]);
    assert!(
        printed.contains("other filters (--exclude 'open')"),
        "{printed}"
    );
    dir.expect(0, &["run", "src", "dst", "--exclude", "open"]);
}

#[test]
fn a_state_file_in_a_missing_folder_is_refused() {
    let dir = TestDir::new();
    dir.make_tree("src", 1, 1);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_headworks"));
    command.current_dir(dir.path("."));
    command.args(["migrate", "plan", "src", "dst", "--state", "no/such/job.db"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("folder no/such does not exist"));
}

#[test]
fn a_copy_of_a_finished_pass_reports_that() {
    let dir = TestDir::new();
    dir.make_tree("src", 1, 1);
    dir.expect(0, &["run", "src", "dst"]);
    let printed = dir.expect(0, &["copy"]);
    assert!(printed.contains("this pass is done"), "{printed}");
    std::fs::remove_file(dir.path("dst/f0/g0/file-0")).unwrap();
    let printed = dir.expect(4, &["verify"]);
    assert!(printed.contains("run SRC DST` again"), "{printed}");
    // From then on the state file does not claim that it exists.
    assert!(dir.expect(3, &["report"]).contains("left"));
    assert!(dir.expect(3, &["copy"]).contains("this pass is done"));
    assert!(
        dir.expect(0, &["explain", "f0/g0/file-0"])
            .contains("class: left")
    );
    dir.expect(0, &["run", "src", "dst"]);
    dir.compare_trees("src", "dst");
}
