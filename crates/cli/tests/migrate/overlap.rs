//! Copying that begins while the plan goes on: early, and with the same end as one after the other.

use super::support::{Place, text, until};

/// A folder of many pages, listed slowly; below it some more.
const LARGE: &str = "synth://?seed=4&depth=1&dirs=1&files=500&size=50-90&page=4&latency=25ms";

fn copied(place: &Place) -> i64 {
    place.number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1")
}

/// What one after the other ends in.
fn in_order(source: &str, prepare: impl Fn(&Place)) -> Vec<String> {
    let place = Place::new();
    prepare(&place);
    place.expect(0, &["plan", source, "dst"]);
    place.expect(0, &["copy"]);
    place.nodes()
}

/// Without the latency, which changes nothing but the time it takes.
fn at_once(source: &str) -> String {
    source.replace("&latency=25ms", "")
}

/// The classes of the same entries; the state file of one knows other settings of the source.
fn same_end(place: &Place, prepare: impl Fn(&Place)) {
    let (ours, theirs) = (place.nodes(), in_order(&at_once(LARGE), prepare));
    let differs = ours.iter().zip(&theirs).find(|(a, b)| a != b);
    assert_eq!(differs, None);
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn the_first_file_is_written_long_before_the_last_page_is_listed() {
    let place = Place::new();
    let output = place
        .command(&["run", LARGE, "dst"])
        .env("HEADWORKS_TRACE", place.path("trace"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let calls = place.calls();
    let written = calls
        .iter()
        .position(|call| call.starts_with("destination write "))
        .expect("something is written");
    let is_page = |call: &&String| *call == "source page ";
    let before = calls[..written].iter().filter(is_page).count();
    let all = calls.iter().filter(is_page).count();
    assert!(all > 60 && before < all * 3 / 4, "{before} of {all} pages");
    assert!(
        text(&output).contains("copied already"),
        "{}",
        text(&output)
    );
    // Nothing is written twice, and the destination is asked for its root once.
    let mut writes: Vec<&String> = calls
        .iter()
        .filter(|call| call.starts_with("destination write "))
        .collect();
    writes.sort();
    let count = writes.len();
    writes.dedup();
    assert_eq!(writes.len(), count);
    let is_root = |call: &&String| *call == "destination list ";
    // Once by the plan, and once by whoever verifies.
    assert!(calls.iter().filter(is_root).count() <= 2);
    same_end(&place, |_| {});
    place.expect_clean("dst");
}

/// Some of it is there, some of that is not as it should be.
fn prepare(place: &Place) {
    std::fs::create_dir(place.path("dst")).unwrap();
    let listed = Place::new();
    listed.expect(0, &["plan", &at_once(LARGE), "dst"]);
    for line in listed.nodes() {
        let fields: Vec<&str> = line.split(',').collect();
        if fields[1] == "file" && !fields[0].contains('/') && fields[0].ends_with('7') {
            std::fs::write(place.path("dst").join(fields[0]), "of another size").unwrap();
        }
    }
    std::fs::write(place.path("dst/only here"), "kept").unwrap();
}

#[test]
fn killed_while_it_plans_and_copies_it_ends_the_same_and_does_nothing_twice() {
    for is_empty in [true, false] {
        let place = Place::new();
        if !is_empty {
            prepare(&place);
        }
        for kill in 1..=2 {
            let before = copied(&place);
            let mut child = place
                .command(&["run", LARGE, "dst"])
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            until("it copies", || copied(&place) > before);
            child.kill().unwrap();
            child.wait().unwrap();
            // The first at least is early enough.
            assert!(kill > 1 || place.stage() == "planning");
        }
        let output = place.expect_no_repeats(&["run", LARGE, "dst"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        same_end(&place, |place| match is_empty {
            true => {}
            false => prepare(place),
        });
        place.expect_clean("dst");
        assert_eq!(place.number("SELECT count(*) FROM released"), 0);
    }
}

#[test]
fn asked_for_the_plan_first_nothing_is_written_while_it_is_made() {
    let place = Place::new();
    let output = place
        .command(&["run", LARGE, "dst", "--plan-first"])
        .env("HEADWORKS_TRACE", place.path("trace"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let calls = place.calls();
    let written = calls
        .iter()
        .position(|call| call.starts_with("destination write "));
    let listed = calls
        .iter()
        .rposition(|call| call.starts_with("source page"));
    assert!(listed < written, "{listed:?} {written:?}");
}
