//! A job that an older version planned.

use super::support::{TestDir, script};

fn planned() -> TestDir {
    let dir = TestDir::new();
    script("older.py", &[], &dir.path(""));
    assert_eq!(dir.query_number("PRAGMA user_version"), 2);
    dir
}

#[test]
fn is_resumed_where_it_was() {
    let dir = planned();
    // A read-only command reports how to upgrade.
    let printed = dir.expect(2, &["status"]);
    assert!(printed.contains("older version 2"), "{printed}");
    let output = dir.expect_no_repeats(&["copy"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let is_listing = |call: &&String| call.contains(" list ");
    assert_eq!(dir.calls().iter().find(is_listing), None);
    dir.expect(0, &["verify"]);
    dir.expect(0, &["plan", "src", "dst"]);
    dir.expect(0, &["copy", "--delete=permanent", "--max-delete=2"]);
    dir.compare_trees("src", "dst");
    dir.expect_clean("dst");
}

#[test]
fn notices_later_changes_in_its_next_pass() {
    let dir = planned();
    dir.expect(0, &["run", "src", "dst"]);
    std::fs::write(dir.path("src/same/a"), "no longer alike").unwrap();
    dir.expect(0, &["run", "src", "dst"]);
    let now = std::fs::read_to_string(dir.path("dst/same/a")).unwrap();
    assert_eq!(now, "no longer alike");
    dir.expect_clean("dst");
}
