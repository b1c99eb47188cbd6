//! Kills at every relevant point, and at random: the job finishes, nothing is lost, and nothing is
//! done twice.

use super::deep::make_chain;
use super::support::{TestDir, is_full, text, until};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// How a run reaches the points at which it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyMode {
    /// The kernel copies.
    Direct,
    /// The bytes pass through the process.
    Streamed,
    /// The destination has extra or conflicting entries.
    Delete,
}

impl CopyMode {
    fn flags(self) -> &'static [&'static str] {
        match self {
            CopyMode::Direct => &["run", "src", "dst"],
            CopyMode::Streamed => &["run", "src", "dst", "--checksum"],
            CopyMode::Delete => &["run", "src", "dst", "--delete=quarantine"],
        }
    }
}

/// Every failpoint, and how it is reached.
const POINTS: [(&str, CopyMode); 27] = [
    ("before-schema-commit", CopyMode::Direct),
    ("after-schema-commit", CopyMode::Direct),
    ("before-job-commit", CopyMode::Direct),
    ("after-job-commit", CopyMode::Direct),
    ("before-control-commit", CopyMode::Direct),
    ("after-control-commit", CopyMode::Direct),
    ("before-commit", CopyMode::Direct),
    ("after-commit", CopyMode::Direct),
    ("before-sync", CopyMode::Direct),
    ("after-sync", CopyMode::Direct),
    ("after-mkdir", CopyMode::Direct),
    ("before-batch", CopyMode::Direct),
    ("temp-made", CopyMode::Direct),
    ("before-rename", CopyMode::Direct),
    ("after-rename", CopyMode::Direct),
    ("after-batch", CopyMode::Direct),
    ("before-node-rename", CopyMode::Direct),
    ("after-node-rename", CopyMode::Direct),
    ("before-link-rename", CopyMode::Direct),
    ("after-link-rename", CopyMode::Direct),
    ("after-settle", CopyMode::Direct),
    ("before-part", CopyMode::Direct),
    ("before-part", CopyMode::Streamed),
    ("after-part", CopyMode::Streamed),
    ("before-upload-rename", CopyMode::Streamed),
    ("after-upload-rename", CopyMode::Streamed),
    ("after-put-away", CopyMode::Delete),
];

/// Makes small files, links, and one file of three parts with holes.
fn make(dir: &TestDir) {
    dir.make_tree("src", 6, 4);
    let big = std::fs::File::create(dir.path("src/f0/big")).unwrap();
    big.set_len(150 << 20).unwrap();
    for island in [0, 70 << 20, 149 << 20] {
        std::os::unix::fs::FileExt::write_all_at(&big, b"island", island).unwrap();
    }
    std::fs::hard_link(dir.path("src/f0/big"), dir.path("src/f1/big too")).unwrap();
    std::os::unix::fs::symlink("big", dir.path("src/f0/link")).unwrap();
}

/// Makes a destination with another tree: more files, and files in place of folders.
fn make_old(dir: &TestDir) {
    dir.make_tree("dst", 12, 2);
    std::fs::remove_dir_all(dir.path("dst/f2")).unwrap();
    std::fs::write(dir.path("dst/f2"), "a file in the way").unwrap();
}

/// Kills a run at a failpoint. Returns whether it was reached.
fn kill_at(dir: &TestDir, point: &str, time: usize, mode: CopyMode) -> bool {
    let mut command = dir.command(mode.flags());
    let killed = command
        .env("HEADWORKS_FAILPOINT", format!("{point}:{time}"))
        .output()
        .unwrap();
    if killed.status.code().is_some() {
        assert!(time > 1, "{point} was not reached: {}", text(&killed));
        return false;
    }
    true
}

/// Finishes a killed run, and checks the result.
fn finish(dir: &TestDir, mode: CopyMode) {
    // Killed after its last commit, the pass was done, and the same command starts a new one.
    let output = match dir.stage().as_str() {
        "done" => dir.expect_end(mode.flags()),
        _ => dir.expect_no_repeats(mode.flags()),
    };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let kept = dir.path("dst/.headworks-quarantine");
    if mode == CopyMode::Delete {
        assert!(
            kept.join("pass-1/f2").exists(),
            "the file was not quarantined"
        );
        std::fs::remove_dir_all(kept).unwrap();
        // Removing it changed the time of the root, which a new pass restores.
        dir.expect(0, &["run", "src", "dst"]);
    }
    dir.compare_trees("src", "dst");
    dir.expect_clean("dst");
}

/// Kills at each failpoint once; in the full form every time that it is reached.
fn kill_at_each(points: impl Iterator<Item = &'static (&'static str, CopyMode)>) {
    let dir = TestDir::new();
    make(&dir);
    for &(point, mode) in points {
        for time in 1.. {
            dir.reset();
            if mode == CopyMode::Delete {
                make_old(&dir);
            }
            println!("{point}:{time} {mode:?}");
            if !kill_at(&dir, point, time, mode) {
                break;
            }
            finish(&dir, mode);
            if !is_full() {
                break;
            }
        }
    }
}

#[test]
fn killed_at_every_point_of_a_direct_copy_it_finishes() {
    kill_at_each(POINTS.iter().filter(|(_, mode)| *mode == CopyMode::Direct));
}

#[test]
fn killed_at_every_point_of_a_streamed_copy_or_a_deletion_it_finishes() {
    kill_at_each(POINTS.iter().filter(|(_, mode)| *mode != CopyMode::Direct));
}

#[test]
fn killed_between_any_two_groups_it_finishes() {
    let dir = TestDir::new();
    make(&dir);
    let times = if is_full() { 1..=60 } else { 2..=6 };
    for (time, point) in times.zip(["before-commit", "after-commit"].iter().cycle()) {
        dir.reset();
        if !kill_at(&dir, point, time, CopyMode::Direct) {
            break;
        }
        finish(&dir, CopyMode::Direct);
    }
}

/// Deep on both sides, deeper on one of them, and with an empty destination: the sides of the plan
/// are then at different depths when it is interrupted.
#[test]
fn killed_between_any_two_groups_of_a_deep_tree_it_finishes() {
    let dir = TestDir::new();
    let (levels, step) = if is_full() { (300, 7) } else { (16, 3) };
    make_chain(&dir, "src", levels);
    make_chain(&dir, "src/0000000000/beside", levels / 3);
    for depth in [0, levels / 2, levels] {
        for time in (1..).step_by(step) {
            dir.reset();
            make_chain(&dir, "dst", depth);
            let point = ["before-commit", "after-commit"][time / step % 2];
            println!("{point}:{time} over {depth} levels");
            let mut command = dir.command(CopyMode::Direct.flags());
            command.env("HEADWORKS_FAILPOINT", format!("{point}:{time}"));
            if dir.expect_end_of(command).status.code().is_some() {
                assert!(time > 20, "only {time} groups");
                break;
            }
            finish(&dir, CopyMode::Direct);
        }
    }
}

#[test]
fn no_failpoint_is_forgotten() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    let mut folders = vec![crates.join("migrate/src"), crates.join("storage/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let source = std::fs::read_to_string(entry.path()).unwrap();
            let calls = source.split("failpoint::hit(\"").skip(1);
            found.extend(calls.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    let known = POINTS.iter().map(|(point, _)| (*point).to_owned());
    assert_eq!(found, known.collect());
}

#[test]
fn a_large_file_is_resumed_with_its_hash() {
    let dir = TestDir::new();
    make(&dir);
    assert!(kill_at(&dir, "after-part", 2, CopyMode::Streamed));
    let printed = dir.expect(0, CopyMode::Streamed.flags());
    assert!(
        printed.contains(
            "resumed: 0 folders listed again, 0 listings continued, 2 parts kept, 0 parts sent again"
        ),
        "{printed}"
    );
    let manifest = dir.run(&["report", "--manifest"]).stdout;
    std::fs::write(dir.path("manifest"), manifest).unwrap();
    let mut check = std::process::Command::new("sha256sum");
    let checked = check
        .args(["-c", "--quiet", "../manifest"])
        .current_dir(dir.path("dst"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", text(&checked));
    dir.expect(0, &["verify", "--hash"]);
}

/// Over a plan and a copy that are slowed down.
#[test]
fn killed_at_random_nothing_durable_is_done_again() {
    let (kills, rate) = if is_full() { (50, "60k") } else { (6, "300k") };
    let dir = TestDir::new();
    for folder in 0..60 {
        let path = dir.path("src").join(format!("f{folder}"));
        std::fs::create_dir_all(&path).unwrap();
        for file in 0..20 {
            std::fs::write(path.join(format!("file-{file}")), vec![b'x'; 4000 + file]).unwrap();
        }
    }
    let args = [
        "run",
        "src",
        "dst",
        "--bwlimit",
        rate,
        "--requests",
        "20",
        "--workers",
        "2",
    ];
    let seed = std::process::id();
    println!("seed {seed}");
    let mut random = u64::from(seed);
    let mut stages = BTreeSet::new();
    for kill in 1..=kills {
        let done = dir.durable();
        let _ = std::fs::remove_file(dir.path("trace"));
        let mut command = dir.command(&args);
        command
            .env("HEADWORKS_TRACE", dir.path("trace"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // One half in the plan, which the limit slows down, the other half in the copy.
        let most = if kill <= kills / 2 { 600 } else { 1500 };
        if kill > kills / 2 {
            until("it copies", || dir.stage() == "copying");
        }
        // Not a wait for a condition: the time of the kill is random.
        std::thread::sleep(Duration::from_millis(50 + (random >> 33) % most));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.code(), None, "kill {kill}: it had ended before");
        stages.insert(dir.stage());
        for call in dir.calls() {
            assert!(!done.contains(&call), "after kill {kill} again: {call}");
        }
    }
    assert!(
        stages.contains("planning") && stages.contains("copying"),
        "{stages:?}"
    );
    finish(&dir, CopyMode::Direct);
}
