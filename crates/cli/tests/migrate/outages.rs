//! A full destination, a storage that disappears, a power failure, an orderly stop: clear errors,
//! and the job resumes afterwards.

use super::support::{Mount, TestDir, mount, text, until};
use headworks_storage::{Backend, Local};
use std::process::{Command, Stdio};

#[test]
fn a_destination_that_fills_up_while_copying_is_a_clear_error_and_resumable() {
    let dir = TestDir::new();
    let full = dir.path("dst");
    let _mount = Mount::tmpfs(full.clone(), "1m");
    // Their bytes fit, but their blocks do not.
    dir.make_tree("src", 40, 10);
    dir.expect(0, &["plan", "src", "dst"]);
    let printed = dir.expect(1, &["copy"]);
    assert!(
        printed.contains("No space left") && printed.contains("run the same command again"),
        "{printed}"
    );
    let copied = dir.query_number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1");
    assert!(copied > 0, "no copied file was recorded");
    mount(&["-o", "remount,size=16m"], &full);
    let output = dir.expect_no_repeats(&["copy"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    dir.compare_trees("src", "dst");
    dir.expect_clean("dst");
}

#[test]
fn a_destination_without_room_is_refused_before_anything_is_written() {
    let dir = TestDir::new();
    let full = dir.path("dst");
    let _mount = Mount::tmpfs(full.clone(), "1m");
    std::fs::create_dir(dir.path("src")).unwrap();
    std::fs::write(dir.path("src/large"), vec![1; 2 << 20]).unwrap();
    let printed = dir.expect(1, &["run", "src", "dst"]);
    assert!(printed.contains("cannot start the copy"), "{printed}");
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 0);
}

#[test]
fn a_source_that_disappears_repeatedly_is_resumed() {
    let tree = "synth://?seed=5&depth=4&dirs=3&files=2&size=1k";
    let clean = TestDir::new();
    clean.expect(0, &["run", tree, "dst"]);
    let dir = TestDir::new();
    let source = format!("{tree}&gone=60");
    let mut outages = 0;
    loop {
        let output = dir.expect_no_repeats(&["run", &source, "dst"]);
        let printed = text(&output);
        match output.status.code() {
            Some(0) => break,
            Some(1) => assert!(
                printed.contains("went away") && printed.contains("run the same command again"),
                "{printed}"
            ),
            other => panic!("{other:?}: {printed}"),
        }
        outages += 1;
        assert!(outages < 60, "no progress: {printed}");
    }
    assert!(outages >= 3, "{outages} outages");
    assert_eq!(clean.entries(), dir.entries());
    dir.expect_clean("dst");
}

/// Discards everything that was not synced, as in a power failure; the state file is on another
/// disk.
const CUT: &str = "
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))
";

#[test]
fn recorded_files_survive_a_power_failure_of_the_destination() {
    survives_a_power_failure("mnt/dst", "mnt");
}

#[test]
fn recorded_files_survive_a_power_failure_of_a_filesystem_inside_the_destination() {
    survives_a_power_failure("dst", "dst/volume");
}

#[test]
fn a_filesystem_inside_the_destination_that_has_failed_is_not_synced() {
    let dir = TestDir::new();
    let image = dir.path("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "mkfs.ext4 is installed"
    );
    let _mounted = Mount::image(&image, dir.path("dst/volume"));
    std::fs::write(dir.path("dst/volume/file"), "not durable").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let destination = Local::new(&dir.path("dst"));
    runtime.block_on(destination.sync()).unwrap();
    dir.python(CUT, &["dst/volume"]);
    let synced = runtime.block_on(destination.sync());
    assert!(synced.is_err(), "a sync that cannot have happened");
}

/// Copies a tree whose files all lie below `mount`, and discards there what was not synced.
fn survives_a_power_failure(destination: &str, mount: &str) {
    let dir = TestDir::new();
    let image = dir.path("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "mkfs.ext4 is installed"
    );
    for folder in 0..30 {
        let path = dir.path("src/volume").join(format!("f{folder}"));
        std::fs::create_dir_all(&path).unwrap();
        for file in 0..10 {
            std::fs::write(path.join(format!("{file}")), vec![b'a' + file; 5000]).unwrap();
        }
    }
    let args = ["run", "src", destination];
    let mounted = Mount::image(&image, dir.path(mount));
    // The filesystem's own folder is no part of the source.
    std::fs::remove_dir(dir.path(mount).join("lost+found")).unwrap();
    let child = dir.start(&[&args[..], &["--bwlimit", "300k"]].concat());
    until("some files are durable", || {
        dir.query_number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1") > 20
    });
    dir.python(CUT, &[mount]);
    let output = child.wait_with_output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("nothing is lost"), "{printed}");
    drop(mounted);
    let _mounted = Mount::image(&image, dir.path(mount));
    let lost: Vec<String> = dir
        .durable()
        .into_iter()
        .filter_map(|call| Some(call.strip_prefix("destination copy ")?.to_owned()))
        .filter(|path| {
            let read = |root: &str| std::fs::read(dir.path(root).join(path)).ok();
            read("src") != read(destination)
        })
        .collect();
    assert!(lost.is_empty(), "reported done, and lost: {lost:?}");
    let output = dir.expect_no_repeats(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    dir.expect_clean(destination);
    dir.compare_trees("src", destination);
}

#[test]
fn a_destination_that_becomes_read_only_ends_the_run_once() {
    let dir = TestDir::new();
    dir.make_tree("src", 60, 20);
    let _mounted = Mount::tmpfs(dir.path("mnt"), "64m");
    let args = ["run", "src", "mnt/dst"];
    let child = dir.start(&[&args[..], &["--bwlimit", "20k"]].concat());
    until("some files are there", || {
        dir.query_number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1") > 5
    });
    let remount = |option: &str| {
        let at = dir.path("mnt");
        let done = Command::new("mount").args(["-o", option]).arg(at).status();
        assert!(done.is_ok_and(|status| status.success()), "{option}");
    };
    // A file that is open for writing keeps the filesystem writable for a moment.
    until("it is read-only", || {
        let at = dir.path("mnt");
        let mut mount = Command::new("mount");
        let done = mount
            .args(["-o", "remount,ro"])
            .arg(at)
            .stderr(Stdio::null());
        done.status().is_ok_and(|status| status.success())
    });
    let output = child.wait_with_output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert_eq!(printed.matches("Read-only").count(), 1, "{printed}");
    assert!(printed.contains("run the same command again"), "{printed}");
    assert_eq!(dir.query_number("SELECT count(*) FROM failure"), 0);
    remount("remount,rw");
    let output = dir.expect_no_repeats(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    dir.compare_trees("src", "mnt/dst");
}

#[test]
fn an_interrupt_drains_and_leaves_a_resumable_state() {
    let dir = TestDir::new();
    dir.make_tree("src", 40, 10);
    let child = dir.start(&["run", "src", "dst", "--bwlimit", "20k"]);
    until("it copies", || {
        dir.query_number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1") > 0
    });
    let pid = child.id().to_string();
    let asked = Command::new("kill").args(["-INT", &pid]).status();
    assert!(asked.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(130), "{printed}");
    assert!(printed.contains("run the same command again"), "{printed}");
    dir.expect_clean("dst");
    let output = dir.expect_no_repeats(&["run", "src", "dst"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("resumed: 0 folders listed again"));
    dir.compare_trees("src", "dst");
}

#[test]
fn a_silent_server_does_not_delay_the_shutdown() {
    let dir = TestDir::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "s3://bucket?anonymous&endpoint=http://{}",
        silent.local_addr().unwrap()
    );
    let child = dir.start(&["plan", &url, "dst"]);
    let _asked = silent.accept().unwrap();
    let end = |signal: &str| {
        let sent = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    };
    end("-TERM");
    until("the first signal arrived", || {
        dir.query_number("SELECT count(*) FROM meta") > 0
    });
    end("-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output));
    assert!(
        text(&output).contains("run it again to go on"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_destination_that_cannot_be_made_is_named() {
    let dir = TestDir::new();
    dir.make_tree("src", 2, 2);
    std::os::unix::fs::symlink("nowhere/at-all", dir.path("dst")).unwrap();
    // Several tasks run into the failure; the one that is shown says why.
    for _ in 0..5 {
        let output = dir.expect_end(&["run", "src", "dst"]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("No such file or directory"), "{printed}");
    }
}
