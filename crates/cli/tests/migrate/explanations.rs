//! Messages for users: the real cause, the path, advice that helps, the same for everybody.

use super::support::{TestDir, mount, text};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn write(dir: &TestDir, path: &str, text: &str) {
    let path = dir.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The file is gone when it is copied, the link has another target, and one is not to be changed:
/// none of these causes names a path by itself.
#[test]
fn every_failure_names_its_path_and_a_way_out_that_helps() {
    let dir = TestDir::new();
    write(&dir, "src/changed", "before");
    write(&dir, "src/folder-now", "a file");
    write(&dir, "src/immutable", "source");
    write(&dir, "dst/immutable", "the destination's");
    write(&dir, "dst/extra/old", "old");
    dir.expect(0, &["plan", "src", "dst"]);
    write(&dir, "src/changed", "after the plan");
    write(&dir, "dst/extra/new", "new");
    std::fs::remove_file(dir.path("src/folder-now")).unwrap();
    std::fs::create_dir(dir.path("src/folder-now")).unwrap();
    let args = ["copy", "--immutable", "--delete=quarantine"];
    let printed = dir.expect(3, &args);
    let failures: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("failed: "))
        .collect();
    assert_eq!(failures.len(), 4, "{printed}");
    for path in ["changed", "folder-now", "immutable", "extra"] {
        let named = failures.iter().any(|line| line.contains(path));
        assert!(named, "{path} is not named: {printed}");
    }
    // The pass copies what it listed; only the next one lists again.
    assert!(!printed.contains("migrate retry"), "{printed}");
    assert_eq!(printed.matches("next: ").count(), 4, "{printed}");
}

/// Owners are compared by root alone, since nobody else can set them. The report is about the run.
#[test]
fn a_report_does_not_depend_on_who_asks() {
    let dir = TestDir::new();
    write(&dir, "src/file", "text");
    std::os::unix::fs::chown(dir.path("src/file"), Some(1234), None).unwrap();
    dir.expect(0, &["plan", "src", "dst"]);
    dir.expect(0, &["copy"]);
    // Another owner: root sees a difference in the next plan, others would not.
    std::os::unix::fs::chown(dir.path("dst/file"), Some(4321), None).unwrap();
    dir.expect(0, &["plan", "src", "dst"]);
    let of_root = dir.expect(0, &["review", "--csv"]);
    assert!(of_root.contains("different (metadata)"), "{of_root}");
    for path in ["", "src", "src/file", "dst", "dst/file", "job.db"] {
        let everybody = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(dir.path(path), everybody).unwrap();
    }
    let mut command = dir.command(&["review", "--csv"]);
    let of_other = command.uid(65_534).output().unwrap();
    assert_eq!(text(&of_other), of_root);
}

/// Both sides of the copy run into the same failure; whichever is shown, it is the cause.
#[test]
fn a_destination_that_cannot_be_made_is_named() {
    for attempt in 0..10 {
        let dir = TestDir::new();
        dir.make_tree("src", 30, 3);
        std::fs::write(dir.path("file"), "no folder").unwrap();
        let printed = dir.expect(1, &["run", "src", "file/dst"]);
        assert!(printed.contains("Not a directory"), "{attempt}: {printed}");
        assert!(!printed.contains("state writer"), "{attempt}: {printed}");
    }
}

#[test]
fn a_full_state_disk_is_named() {
    let dir = TestDir::new();
    dir.make_tree("src", 400, 20);
    let state = dir.path("state");
    std::fs::create_dir(&state).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=512k", "tmpfs"], &state);
    let mut command = dir.command_with_state("state/job.db", &["run", "src", "dst"]);
    let output = command.output().unwrap();
    let _ = Command::new("umount").arg("-l").arg(&state).status();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("full"), "{printed}");
    assert!(!printed.contains("ended with work left"), "{printed}");
}

/// A terminal of 80 columns, on which a longer line would wrap and leave its rest behind.
#[test]
fn bars_fit_into_80_columns() {
    let dir = TestDir::new();
    let source = "synth://?seed=3&depth=2&dirs=9&files=30&size=10000&latency=20ms";
    let run = format!(
        "stty cols 80 rows 24; {} migrate run '{source}' dst --state job.db --workers 2",
        env!("CARGO_BIN_EXE_headworks")
    );
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &run, "typescript"])
        .current_dir(dir.path("."))
        .output()
        .expect("script is there");
    assert!(output.status.success(), "{}", text(&output));
    let widest = dir.python(WIDEST, &[]);
    let (width, line) = widest.split_once(' ').unwrap();
    assert!(line.contains("round") || line.contains(" of "), "{widest}");
    // Two bars, each padded to the width of the terminal.
    assert!(width.parse::<u32>().unwrap() <= 2 * 80, "{widest}");
}

/// Prints the longest line of a bar with its width.
const WIDEST: &str = r#"
import re
text = open("typescript", encoding="utf-8", errors="replace", newline="").read()
text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", text)
bars = [line.rstrip() for line in re.split(r"[\r\n]", text) if "█" in line or "░" in line]
longest = max(bars, key=len)
print(len(longest), longest)
"#;
