//! A job that an older program planned.

use super::support::{Place, script};

fn planned() -> Place {
    let place = Place::new();
    script("older.py", &[], &place.path(""));
    assert_eq!(place.number("PRAGMA user_version"), 2);
    place
}

#[test]
fn is_gone_on_with_where_it_was() {
    let place = planned();
    // Whoever only looks says what the way out is.
    let told = place.expect(2, &["status"]);
    assert!(told.contains("older version 2"), "{told}");
    let output = place.expect_no_repeats(&["copy"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let is_listing = |call: &&String| call.contains(" list ");
    assert_eq!(place.calls().iter().find(is_listing), None);
    place.expect(0, &["verify"]);
    place.expect(0, &["plan", "src", "dst"]);
    place.expect(0, &["copy", "--delete=permanent", "--max-delete=2"]);
    place.judge("src", "dst");
    place.expect_clean("dst");
}

#[test]
fn sees_what_changed_since_in_its_next_pass() {
    let place = planned();
    place.expect(0, &["run", "src", "dst"]);
    std::fs::write(place.path("src/same/a"), "no longer alike").unwrap();
    place.expect(0, &["run", "src", "dst"]);
    let now = std::fs::read_to_string(place.path("dst/same/a")).unwrap();
    assert_eq!(now, "no longer alike");
    place.expect_clean("dst");
}
