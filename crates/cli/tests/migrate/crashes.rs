//! Killed at every point that matters, and at random: it finishes, nothing is lost, nothing is done
//! twice.

use super::deep::make_chain;
use super::support::{Place, is_full, text, until};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// How a run gets to the points that it is killed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The kernel copies.
    Direct,
    /// The bytes pass through us.
    Streamed,
    /// Something is at the destination only, or in the way.
    Delete,
}

impl Way {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Way::Direct => &["run", "src", "dst"],
            Way::Streamed => &["run", "src", "dst", "--checksum"],
            Way::Delete => &["run", "src", "dst", "--delete=quarantine"],
        }
    }
}

/// Every point there is, and the way to it.
const POINTS: [(&str, Way); 27] = [
    ("before-schema-commit", Way::Direct),
    ("after-schema-commit", Way::Direct),
    ("before-job-commit", Way::Direct),
    ("after-job-commit", Way::Direct),
    ("before-control-commit", Way::Direct),
    ("after-control-commit", Way::Direct),
    ("before-commit", Way::Direct),
    ("after-commit", Way::Direct),
    ("before-sync", Way::Direct),
    ("after-sync", Way::Direct),
    ("after-mkdir", Way::Direct),
    ("before-batch", Way::Direct),
    ("temp-made", Way::Direct),
    ("before-rename", Way::Direct),
    ("after-rename", Way::Direct),
    ("after-batch", Way::Direct),
    ("before-node-rename", Way::Direct),
    ("after-node-rename", Way::Direct),
    ("before-link-rename", Way::Direct),
    ("after-link-rename", Way::Direct),
    ("after-settle", Way::Direct),
    ("before-part", Way::Direct),
    ("before-part", Way::Streamed),
    ("after-part", Way::Streamed),
    ("before-upload-rename", Way::Streamed),
    ("after-upload-rename", Way::Streamed),
    ("after-put-away", Way::Delete),
];

/// Small files, links, and one file of three parts with holes.
fn make(place: &Place) {
    place.make_tree("src", 6, 4);
    let big = std::fs::File::create(place.path("src/f0/big")).unwrap();
    big.set_len(150 << 20).unwrap();
    for island in [0, 70 << 20, 149 << 20] {
        std::os::unix::fs::FileExt::write_all_at(&big, b"island", island).unwrap();
    }
    std::fs::hard_link(place.path("src/f0/big"), place.path("src/f1/big too")).unwrap();
    std::os::unix::fs::symlink("big", place.path("src/f0/link")).unwrap();
}

/// A destination that had another tree before: more files, and files where there are folders now.
fn make_old(place: &Place) {
    place.make_tree("dst", 12, 2);
    std::fs::remove_dir_all(place.path("dst/f2")).unwrap();
    std::fs::write(place.path("dst/f2"), "a file in the way").unwrap();
}

/// Kills a run at a point; whether it got there.
fn kill_at(place: &Place, point: &str, time: usize, way: Way) -> bool {
    let mut command = place.command(way.flags());
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

/// Runs to the end what was killed, and has it judged.
fn finish(place: &Place, way: Way) {
    // Killed after its last commit it was done, and the same command begins a new pass.
    let output = match place.stage().as_str() {
        "done" => place.expect_end(way.flags()),
        _ => place.expect_no_repeats(way.flags()),
    };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let kept = place.path("dst/.headworks-quarantine");
    if way == Way::Delete {
        assert!(kept.join("pass-1/f2").exists(), "it was not kept");
        std::fs::remove_dir_all(kept).unwrap();
        // Taking it away changed the time of the root, which a new pass mends.
        place.expect(0, &["run", "src", "dst"]);
    }
    place.judge("src", "dst");
    place.expect_clean("dst");
}

/// Each of some points, once; in the long form each time that it is passed.
fn kill_at_each(points: impl Iterator<Item = &'static (&'static str, Way)>) {
    let place = Place::new();
    make(&place);
    for &(point, way) in points {
        for time in 1.. {
            place.forget();
            if way == Way::Delete {
                make_old(&place);
            }
            println!("{point}:{time} {way:?}");
            if !kill_at(&place, point, time, way) {
                break;
            }
            finish(&place, way);
            if !is_full() {
                break;
            }
        }
    }
}

#[test]
fn killed_at_every_point_of_a_direct_copy_it_finishes() {
    kill_at_each(POINTS.iter().filter(|(_, way)| *way == Way::Direct));
}

#[test]
fn killed_at_every_point_of_a_streamed_copy_or_a_deletion_it_finishes() {
    kill_at_each(POINTS.iter().filter(|(_, way)| *way != Way::Direct));
}

#[test]
fn killed_between_any_two_groups_it_finishes() {
    let place = Place::new();
    make(&place);
    let times = if is_full() { 1..=60 } else { 2..=6 };
    for (time, point) in times.zip(["before-commit", "after-commit"].iter().cycle()) {
        place.forget();
        if !kill_at(&place, point, time, Way::Direct) {
            break;
        }
        finish(&place, Way::Direct);
    }
}

/// Deep on both sides, deeper on one of them, and nothing at the destination: both sides of the
/// plan then stand at other depths when it is cut off.
#[test]
fn killed_between_any_two_groups_of_a_deep_tree_it_finishes() {
    let place = Place::new();
    let (levels, step) = if is_full() { (300, 7) } else { (16, 3) };
    make_chain(&place, "src", levels);
    make_chain(&place, "src/0000000000/beside", levels / 3);
    for depth in [0, levels / 2, levels] {
        for time in (1..).step_by(step) {
            place.forget();
            make_chain(&place, "dst", depth);
            let point = ["before-commit", "after-commit"][time / step % 2];
            println!("{point}:{time} over {depth} levels");
            let mut command = place.command(Way::Direct.flags());
            command.env("HEADWORKS_FAILPOINT", format!("{point}:{time}"));
            if place.expect_end_of(command).status.code().is_some() {
                assert!(time > 20, "only {time} groups");
                break;
            }
            finish(&place, Way::Direct);
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
fn a_large_file_goes_on_where_it_was_with_its_hash() {
    let place = Place::new();
    make(&place);
    assert!(kill_at(&place, "after-part", 2, Way::Streamed));
    let told = place.expect(0, Way::Streamed.flags());
    assert!(
        told.contains(
            "resumed: 0 folders listed again, 0 listings continued, 2 parts kept, 0 parts sent again"
        ),
        "{told}"
    );
    let manifest = place.run(&["report", "--manifest"]).stdout;
    std::fs::write(place.path("manifest"), manifest).unwrap();
    let mut check = std::process::Command::new("sha256sum");
    let checked = check
        .args(["-c", "--quiet", "../manifest"])
        .current_dir(place.path("dst"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", text(&checked));
    place.expect(0, &["verify", "--hash"]);
}

/// Over a plan and a copy that are slowed down so that they last.
#[test]
fn killed_at_random_nothing_durable_is_done_again() {
    let (kills, rate) = if is_full() { (50, "60k") } else { (6, "300k") };
    let place = Place::new();
    for folder in 0..60 {
        let path = place.path("src").join(format!("f{folder}"));
        std::fs::create_dir_all(&path).unwrap();
        for file in 0..20 {
            std::fs::write(path.join(format!("file-{file}")), vec![b'x'; 4000 + file]).unwrap();
        }
    }
    let words = [
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
        let done = place.durable();
        let _ = std::fs::remove_file(place.path("trace"));
        let mut command = place.command(&words);
        command
            .env("HEADWORKS_TRACE", place.path("trace"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // One half in the plan, which its limit makes last for seconds, the other in the copy.
        let most = if kill <= kills / 2 { 600 } else { 1500 };
        if kill > kills / 2 {
            until("it copies", || place.stage() == "copying");
        }
        // Not a wait for something: the moment of the kill is what is random.
        std::thread::sleep(Duration::from_millis(50 + (random >> 33) % most));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.code(), None, "kill {kill}: it had ended before");
        stages.insert(place.stage());
        for call in place.calls() {
            assert!(!done.contains(&call), "after kill {kill} again: {call}");
        }
    }
    assert!(
        stages.contains("planning") && stages.contains("copying"),
        "{stages:?}"
    );
    finish(&place, Way::Direct);
}
