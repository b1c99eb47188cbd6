//! A destination that is full, a storage that goes away, a power cut, an orderly stop: clear words,
//! and it goes on afterwards.

use super::support::{Mount, Place, mount, text, until};
use std::process::Command;

#[test]
fn a_destination_that_fills_up_while_copying_is_a_clear_error_and_resumable() {
    let place = Place::new();
    let full = place.path("dst");
    let _mount = Mount::tmpfs(full.clone(), "1m");
    // By their bytes they fit, by the blocks that they take they do not.
    place.make_tree("src", 40, 10);
    place.expect(0, &["plan", "src", "dst"]);
    let told = place.expect(1, &["copy"]);
    assert!(
        told.contains("No space left") && told.contains("run the same command again"),
        "{told}"
    );
    let copied = place.number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1");
    assert!(copied > 0, "nothing was kept of what did fit");
    mount(&["-o", "remount,size=16m"], &full);
    let output = place.expect_no_repeats(&["copy"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    place.judge("src", "dst");
    place.expect_clean("dst");
}

#[test]
fn a_destination_without_room_is_refused_before_anything_is_written() {
    let place = Place::new();
    let full = place.path("dst");
    let _mount = Mount::tmpfs(full.clone(), "1m");
    std::fs::create_dir(place.path("src")).unwrap();
    std::fs::write(place.path("src/large"), vec![1; 2 << 20]).unwrap();
    let told = place.expect(1, &["run", "src", "dst"]);
    assert!(told.contains("cannot start the copy"), "{told}");
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 0);
}

#[test]
fn a_source_that_goes_away_again_and_again_is_gone_on_with() {
    let tree = "synth://?seed=5&depth=4&dirs=3&files=2&size=1k";
    let clean = Place::new();
    clean.expect(0, &["run", tree, "dst"]);
    let place = Place::new();
    let source = format!("{tree}&gone=60");
    let mut outages = 0;
    loop {
        let output = place.expect_no_repeats(&["run", &source, "dst"]);
        let told = text(&output);
        match output.status.code() {
            Some(0) => break,
            Some(1) => assert!(
                told.contains("went away") && told.contains("run the same command again"),
                "{told}"
            ),
            other => panic!("{other:?}: {told}"),
        }
        outages += 1;
        assert!(outages < 60, "it gets nowhere: {told}");
    }
    assert!(outages >= 3, "{outages} outages");
    assert_eq!(clean.nodes(), place.nodes());
    place.expect_clean("dst");
}

/// Everything that was not synced is gone, as after a power cut; the state file, on another disk,
/// is not.
const CUT: &str = "
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))
";

#[test]
fn what_is_done_by_the_state_file_survives_a_power_cut_of_the_destination() {
    let place = Place::new();
    let image = place.path("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "mkfs.ext4 is there"
    );
    for folder in 0..30 {
        let path = place.path("src").join(format!("f{folder}"));
        std::fs::create_dir_all(&path).unwrap();
        for file in 0..10 {
            std::fs::write(path.join(format!("{file}")), vec![b'a' + file; 5000]).unwrap();
        }
    }
    let words = ["run", "src", "mnt/dst"];
    let mounted = Mount::image(&image, place.path("mnt"));
    let child = place.start(&[&words[..], &["--bwlimit", "300k"]].concat());
    until("some files are durable", || {
        place.number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1") > 20
    });
    place.python(CUT, &["mnt"]);
    let output = child.wait_with_output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("nothing is lost"), "{told}");
    drop(mounted);
    let _mounted = Mount::image(&image, place.path("mnt"));
    let lost: Vec<String> = place
        .durable()
        .into_iter()
        .filter_map(|call| Some(call.strip_prefix("destination copy ")?.to_owned()))
        .filter(|path| {
            let read = |root: &str| std::fs::read(place.path(root).join(path)).ok();
            read("src") != read("mnt/dst")
        })
        .collect();
    assert!(lost.is_empty(), "reported done, and lost: {lost:?}");
    let output = place.expect_no_repeats(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    place.judge("src", "mnt/dst");
    place.expect_clean("mnt/dst");
}

#[test]
fn an_interrupt_drains_and_leaves_a_resumable_state() {
    let place = Place::new();
    place.make_tree("src", 40, 10);
    let child = place.start(&["run", "src", "dst", "--bwlimit", "20k"]);
    until("it copies", || {
        place.number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1") > 0
    });
    let pid = child.id().to_string();
    let asked = Command::new("kill").args(["-INT", &pid]).status();
    assert!(asked.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("run the same command again"), "{told}");
    place.expect_clean("dst");
    let output = place.expect_no_repeats(&["run", "src", "dst"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("resumed: 0 folders listed again"));
    place.judge("src", "dst");
}

#[test]
fn a_far_side_that_never_answers_does_not_hold_up_the_end() {
    let place = Place::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "s3://bucket?anonymous&endpoint=http://{}",
        silent.local_addr().unwrap()
    );
    let child = place.start(&["plan", &url, "dst"]);
    let _asked = silent.accept().unwrap();
    let end = |signal: &str| {
        let sent = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    };
    end("-TERM");
    until("it heard the first", || {
        place.number("SELECT count(*) FROM meta") > 0
    });
    end("-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("run it again to go on"),
        "{}",
        text(&output)
    );
}
