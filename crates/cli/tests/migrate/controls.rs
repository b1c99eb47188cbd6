//! What can be asked of a job while it runs and between runs.

use super::support::{Place, text, until};

const COPIED: &str = "SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1";

#[test]
fn a_pause_holds_a_copy_of_another_process_until_it_is_resumed() {
    let place = Place::new();
    place.make_tree("src", 40, 10);
    let child = place.start(&["run", "src", "dst", "--bwlimit", "40k"]);
    until("it copies", || place.number(COPIED) > 0);
    assert!(place.expect(0, &["pause"]).contains("handed to the runner"));
    until("the runner heeds it", || {
        place
            .expect(0, &["status"])
            .contains("waits for `headworks migrate resume`")
    });
    assert!(place.expect(0, &["status"]).contains("paused"));
    place.expect(0, &["resume"]);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    place.judge("src", "dst");
}

#[test]
fn what_failed_is_tried_again_when_asked_and_nothing_else_is() {
    let place = Place::new();
    let source = "synth://?seed=4&depth=2&dirs=3&files=8&size=2k&errors=40";
    let told = place.expect(3, &["run", source, "dst", "--attempts", "2"]);
    assert!(told.contains("failed"), "{told}");
    // Each time some more get through: failures are drawn by how often something was asked for in a
    // process.
    let mut rounds = 0;
    loop {
        place.expect(0, &["retry"]);
        let output = place.expect_no_repeats(&["run", source, "dst", "--attempts", "9"]);
        match output.status.code() {
            Some(0) => break,
            Some(3) => rounds += 1,
            other => panic!("{other:?}: {}", text(&output)),
        }
        assert!(rounds < 9, "it does not get better: {}", text(&output));
    }
    assert_eq!(place.number("SELECT value FROM meta WHERE key = 'pass'"), 1);
    place.expect(0, &["report"]);
}

#[test]
fn a_further_name_of_a_file_whose_first_name_was_excluded_leads() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("src/a")).unwrap();
    std::fs::create_dir_all(place.path("src/b")).unwrap();
    std::fs::write(place.path("src/a/first"), "shared").unwrap();
    for name in ["src/a/second", "src/b/third"] {
        std::fs::hard_link(place.path("src/a/first"), place.path(name)).unwrap();
    }
    place.expect(0, &["plan", "src", "dst"]);
    place.expect(0, &["review", "--exclude", "a/first"]);
    place.expect(0, &["copy"]);
    place.expect(0, &["verify", "--hash"]);
    use std::os::unix::fs::MetadataExt;
    let inode = |name: &str| std::fs::metadata(place.path(name)).unwrap().ino();
    assert!(!place.path("dst/a/first").exists());
    assert_eq!(inode("dst/a/second"), inode("dst/b/third"));
}

#[test]
fn what_is_at_the_destination_only_is_recorded_and_not_looked_into() {
    let place = Place::new();
    place.make_tree("src", 3, 2);
    place.make_tree("dst", 3, 2);
    let deep = place.path("dst/only/here/is/more");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("file"), "x").unwrap();
    let output = place.expect_no_repeats(&["plan", "src", "dst"]);
    assert!(text(&output).contains("not_on_src"), "{}", text(&output));
    let calls = place.calls();
    assert!(
        calls.contains(&"destination list f0/".to_owned()),
        "{calls:?}"
    );
    assert!(!calls.iter().any(|call| call.contains("only")), "{calls:?}");
    let lines = place.nodes();
    let only: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("not_on_src"))
        .collect();
    assert_eq!(only.len(), 1, "{only:?}");
}

#[test]
fn prioritised_files_are_copied_first() {
    let place = Place::new();
    place.make_tree("src", 12, 6);
    place.expect(0, &["plan", "src", "dst"]);
    place.expect(0, &["review", "--prioritise", "file-3"]);
    place.expect_no_repeats(&["copy", "--transfers", "1"]);
    let calls = place.calls();
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
fn numbers_that_no_machine_could_take_are_refused() {
    let place = Place::new();
    for (flag, number) in [
        ("--workers", "99999999999"),
        ("--workers", "0"),
        ("--requests", "-1"),
        ("--requests", "inf"),
        ("--attempts", "0"),
        ("--transfers", "1000000"),
    ] {
        let told = place.expect(2, &["run", "src", "dst", &format!("{flag}={number}")]);
        assert!(told.contains(flag), "{told}");
        assert!(!place.path("job.db").exists());
    }
}

#[test]
fn trees_inside_each_other_are_refused_and_nothing_is_written() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("outer/inner")).unwrap();
    std::fs::write(place.path("outer/inner/precious"), "x").unwrap();
    std::os::unix::fs::symlink("outer", place.path("link")).unwrap();
    for (source, destination) in [
        ("outer/inner", "outer"),
        ("outer", "outer/inner/new"),
        ("outer", "outer"),
        ("outer", "link/new"),
        ("link/inner", "file:outer"),
    ] {
        let told = place.expect(1, &["run", source, destination, "--delete=quarantine"]);
        assert!(told.contains("is inside"), "{told}");
    }
    assert!(place.path("outer/inner/precious").exists());
    assert!(!place.path("job.db").exists());
}

#[test]
fn passwords_in_urls_are_neither_kept_nor_shown() {
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
        let place = Place::new();
        let told = place.expect(2, &["plan", url, "dst"]);
        assert!(!told.contains("LEAKED"), "{told}");
        let left = std::fs::read_dir(place.path(".")).unwrap().count();
        assert_eq!(left, 0, "{url}");
    }
}

#[test]
fn what_is_no_state_file_is_refused_and_left_as_it_is() {
    let place = Place::new();
    place.make_tree("src", 2, 2);
    let other = "
import sqlite3
db = sqlite3.connect('job.db')
db.execute('CREATE TABLE meta (of_another_program)')
db.commit()";
    place.python(other, &[]);
    let before = std::fs::read(place.path("job.db")).unwrap();
    for words in [&["run", "src", "dst"][..], &["status"], &["pause"]] {
        let told = place.expect(2, words);
        assert!(told.contains("of another program"), "{told}");
    }
    assert_eq!(std::fs::read(place.path("job.db")).unwrap(), before);
    std::fs::write(place.path("job.db"), "some notes of mine, long enough to be no header at all, and more of them, to be sure of that.............").unwrap();
    let told = place.expect(2, &["run", "src", "dst"]);
    assert!(told.contains("not a state file"), "{told}");
    std::fs::remove_file(place.path("job.db")).unwrap();
    std::fs::create_dir(place.path("job.db")).unwrap();
    let told = place.expect(2, &["run", "src", "dst"]);
    assert!(told.contains("is a directory"), "{told}");
    std::fs::remove_dir(place.path("job.db")).unwrap();
    std::os::unix::fs::symlink("/dev/null", place.path("job.db")).unwrap();
    let told = place.expect(2, &["run", "src", "dst"]);
    assert!(told.contains("is not a file"), "{told}");
    for beside in ["job.db-lock", "job.db-wal", "job.db-shm"] {
        assert!(!place.path(beside).exists(), "{beside} was left");
    }
}

#[test]
fn a_mistyped_source_does_not_take_the_state_file() {
    let place = Place::new();
    place.make_tree("src", 2, 2);
    let told = place.expect(1, &["run", "scr", "dst"]);
    assert!(told.contains("scr"), "{told}");
    place.expect(0, &["run", "src", "dst"]);
    // What is known of one job is never taken for another's.
    let told = place.expect(2, &["run", "scr", "dst"]);
    assert!(told.contains("name another state file"), "{told}");
}

#[test]
fn folders_of_one_server_that_are_inside_each_other_are_refused() {
    let place = Place::new();
    for (from, to) in [
        ("sftp://me@host/data", "sftp://me@host/data/copy"),
        ("s3://bucket/a/b?anonymous", "s3://bucket/a/?anonymous"),
        ("webdav://host/x", "webdav://host/x"),
    ] {
        let told = place.expect(1, &["plan", from, to]);
        assert!(told.contains("is inside"), "{told}");
    }
    let left = std::fs::read_dir(place.path(".")).unwrap().count();
    assert_eq!(left, 0, "nothing was begun");
}

#[test]
fn a_state_file_inside_the_trees_is_no_part_of_them() {
    let place = Place::new();
    place.make_tree("src", 3, 2);
    std::fs::create_dir(place.path("src/jobs")).unwrap();
    for (state, side) in [("src/jobs/own.db", "source"), ("dst/own.db", "destination")] {
        std::fs::create_dir_all(place.path("dst")).unwrap();
        let words = ["run", "src", "dst", "--delete=quarantine"];
        let words = place.command_of(state, &words).output().unwrap();
        let told = super::support::text(&words);
        assert_eq!(words.status.code(), Some(0), "{told}");
        assert!(told.contains(&format!("is inside the {side}")), "{told}");
        assert!(place.path(state).exists() && place.path("dst/f0/g0/file-0").exists());
        assert!(
            !place.path("dst/jobs/own.db").exists(),
            "it was copied along"
        );
        let _ = std::fs::remove_dir_all(place.path("dst"));
        for file in ["own.db", "own.db-lock"] {
            let _ = std::fs::remove_file(place.path("src/jobs").join(file));
        }
    }
}

#[test]
fn a_damaged_state_file_prints_no_manifest() {
    let place = Place::new();
    place.make_tree("src", 5, 5);
    place.expect(0, &["run", "src", "dst", "--checksum"]);
    place.python(
        "import sqlite3; sqlite3.connect('job.db').execute('PRAGMA wal_checkpoint(TRUNCATE)')",
        &[],
    );
    let find = "SELECT rootpage - 1 FROM sqlite_schema WHERE name = 'hash'";
    let page = usize::try_from(place.number(find)).unwrap() * 4096;
    let mut bytes = std::fs::read(place.path("job.db")).unwrap();
    // A leaf without a cell: as such it is sound, only what was in it is gone.
    bytes[page + 3..page + 5].fill(0);
    std::fs::write(place.path("job.db"), bytes).unwrap();
    let told = place.expect(1, &["report", "--manifest"]);
    assert!(told.contains("damaged"), "{told}");
}

#[test]
fn files_of_equal_folders_share_a_row_and_are_known_each_by_itself() {
    let place = Place::new();
    place.make_tree("src", 3, 4);
    place.expect(0, &["run", "src", "dst"]);
    place.expect(0, &["plan", "src", "dst"]);
    let rows = |side: &str| place.number(&format!("SELECT count(*) FROM {side} WHERE kind = 1"));
    let alike = "SELECT sum(entries) FROM files JOIN folder ON id = folder WHERE alike = 1";
    assert_eq!((rows("source"), rows("destination")), (0, 0));
    assert_eq!(place.number(alike), 12);
    let equal = place.nodes();
    place.expect(0, &["review", "--exclude", "f0/g0/file-1"]);
    let told = place.expect(0, &["explain", "f0/g0/file-1"]);
    assert!(told.contains("status: excluded"), "{told}");
    let told = place.expect(0, &["explain", "f0/g0/file-2"]);
    assert!(told.contains("status: same"), "{told}");
    let marked = place.nodes();
    let changed: Vec<_> = equal.iter().zip(&marked).filter(|(a, b)| a != b).collect();
    assert_eq!(
        (marked.len(), changed.len()),
        (equal.len(), 1),
        "{changed:?}"
    );
    place.expect(0, &["review", "--include", "f0/g0/file-1"]);
    assert_eq!(place.nodes(), equal);
    place.expect(0, &["copy"]);
    place.expect(0, &["verify"]);
}

#[test]
fn one_change_in_a_folder_of_equal_files_is_seen_as_what_it_is() {
    let place = Place::new();
    place.make_tree("src", 5, 4);
    place.expect(0, &["run", "src", "dst"]);
    std::fs::write(place.path("dst/f0/g0/file-1x"), "more").unwrap();
    std::fs::remove_file(place.path("dst/f1/g1/file-0")).unwrap();
    std::fs::write(place.path("src/f2/g2/file-3"), "longer than it was before").unwrap();
    std::fs::remove_file(place.path("src/f3/g3/file-2")).unwrap();
    std::fs::create_dir_all(place.path("src/f3/g3/file-2/below")).unwrap();
    place.expect(0, &["plan", "src", "dst"]);
    let nodes = place.nodes();
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

/// Size and time are right, so that no plan sees it: only who reads the bytes does.
#[test]
fn what_a_hash_shows_to_be_spoilt_is_copied_again() {
    let place = Place::new();
    place.make_tree("src", 3, 4);
    place.expect(0, &["run", "src", "dst"]);
    let spoilt = place.path("dst/f1/g1/file-2");
    let (good, about) = (std::fs::read(&spoilt).unwrap(), spoilt.metadata().unwrap());
    let bad: Vec<u8> = good.iter().map(|byte| !byte).collect();
    std::fs::write(&spoilt, bad).unwrap();
    let file = std::fs::File::options().append(true).open(&spoilt).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();

    let told = place.expect(4, &["verify", "--hash"]);
    assert!(told.contains("f1/g1/file-2: different (hash)"), "{told}");
    let told = place.expect(0, &["explain", "f1/g1/file-2"]);
    assert!(told.contains("missing"), "{told}");
    let told = place.expect(0, &["log"]);
    assert!(told.contains("f1/g1/file-2: different (hash)"), "{told}");

    place.expect(0, &["run", "src", "dst"]);
    assert_eq!(std::fs::read(&spoilt).unwrap(), good);
    place.expect(0, &["verify", "--hash"]);
    place.expect(0, &["report"]);
    place.judge("src", "dst");
}

#[test]
fn what_was_copied_is_verified_although_something_was_left_out() {
    let place = Place::new();
    place.make_tree("src", 2, 2);
    let pipe = place.path("src/pipe");
    let made = std::process::Command::new("mkfifo").arg(pipe).status();
    assert!(made.unwrap().success());
    let told = place.expect(4, &["run", "src", "dst"]);
    assert!(told.contains("1 were left out knowingly"), "{told}");
}

#[test]
fn a_limit_of_nothing_is_refused() {
    let place = Place::new();
    place.make_tree("src", 1, 1);
    let told = place.expect(2, &["run", "src", "dst", "--bwlimit", "0"]);
    assert!(told.contains("more than 0"), "{told}");
}

#[test]
fn a_state_file_is_locked_by_whatever_name() {
    let place = Place::new();
    place.make_tree("src", 1, 1);
    place.expect(0, &["run", "src", "dst"]);
    std::os::unix::fs::symlink("job.db", place.path("other.db")).unwrap();
    let lock = std::fs::File::open(place.path("job.db-lock")).unwrap();
    lock.lock().unwrap();
    let output = place.command_of("other.db", &["verify"]).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output));
    drop(lock);
    std::fs::remove_file(place.path("other.db")).unwrap();
    std::fs::hard_link(place.path("job.db"), place.path("other.db")).unwrap();
    let output = place.command_of("other.db", &["verify"]).output().unwrap();
    assert!(text(&output).contains("second name"), "{}", text(&output));
}

/// A session that was cut off takes the reader of stderr with it.
#[test]
fn it_stops_when_told_to_although_nobody_reads_what_it_says() {
    let place = Place::new();
    let source = "synth://?seed=1&depth=3&fanout=20&files=20&latency=20ms";
    let mut child = place.start(&["run", source, "dst"]);
    until("it lists", || {
        place.number("SELECT count(*) FROM folder") > 3
    });
    drop((child.stderr.take(), child.stdout.take()));
    let told = std::process::Command::new("kill")
        .arg(child.id().to_string())
        .status();
    assert!(told.unwrap().success());
    until("it has stopped", || child.try_wait().unwrap().is_some());
}

#[test]
fn other_filters_are_for_the_next_pass() {
    let place = Place::new();
    place.make_tree("src", 2, 2);
    place.expect(0, &["run", "src", "dst"]);
    std::fs::write(place.path("src/secret"), "s").unwrap();
    std::fs::write(place.path("src/open"), "o").unwrap();
    let told = place.expect(0, &["run", "src", "dst", "--exclude", "secret"]);
    assert!(told.contains("excluded"), "{told}");
    assert!(place.path("dst/open").exists() && !place.path("dst/secret").exists());
    // The job keeps them, and says so.
    let told = place.expect(0, &["run", "src", "dst"]);
    assert!(
        told.contains("with the filters of this job: --exclude 'secret'"),
        "{told}"
    );
    assert!(!place.path("dst/secret").exists());
    // A plan that was made with others is made again.
    place.expect(0, &["plan", "src", "dst", "--exclude", "nothing"]);
    place.expect(0, &["run", "src", "dst", "--exclude", "open"]);
    assert!(place.path("dst/secret").exists());
    place.expect(2, &["run", "src", "dst", "--exclude", "{"]);
    let told = place.expect(0, &["log"]);
    assert!(
        told.contains("filters from now on: --exclude 'open'"),
        "{told}"
    );
    // What is under way is not changed.
    place.python(
        "import sqlite3; db = sqlite3.connect('job.db'); db.execute(\"UPDATE meta SET value = 'copying' WHERE key = 'stage'\"); db.commit()",
        &[],
    );
    let told = place.expect(2, &["run", "src", "dst", "--exclude", "x"]);
    assert!(told.contains("other filters (--exclude 'open')"), "{told}");
    place.expect(0, &["run", "src", "dst", "--exclude", "open"]);
}

#[test]
fn a_state_file_in_no_folder_is_refused_with_words() {
    let place = Place::new();
    place.make_tree("src", 1, 1);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_headworks"));
    command.current_dir(place.path("."));
    command.args(["migrate", "plan", "src", "dst", "--state", "no/such/job.db"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("folder no/such does not exist"));
}

#[test]
fn a_copy_of_a_pass_that_is_done_says_so() {
    let place = Place::new();
    place.make_tree("src", 1, 1);
    place.expect(0, &["run", "src", "dst"]);
    let told = place.expect(0, &["copy"]);
    assert!(told.contains("this pass is done"), "{told}");
    std::fs::remove_file(place.path("dst/f0/g0/file-0")).unwrap();
    let told = place.expect(4, &["verify"]);
    assert!(told.contains("run SRC DST` again"), "{told}");
    // From then on nobody says that it is there.
    assert!(place.expect(3, &["report"]).contains("left"));
    assert!(place.expect(3, &["copy"]).contains("this pass is done"));
    assert!(
        place
            .expect(0, &["explain", "f0/g0/file-0"])
            .contains("class: left")
    );
    place.expect(0, &["run", "src", "dst"]);
    place.judge("src", "dst");
}
