//! Nodes in network namespaces of their own, which are cut off from the server and not from the
//! upstream.

use super::*;

fn partitions(on_loss: &str) {
    let folder = Folder::new();
    let script = format!("{}/tests/clients/partitions.py", env!("CARGO_MANIFEST_DIR"));
    let output = std::process::Command::new("unshare")
        .args(["-rnm", "python3", &script, env!("CARGO_BIN_EXE_headworks")])
        .arg(folder.path())
        .arg(on_loss)
        .arg(if is_full() { "60" } else { "6" })
        .output()
        .expect("util-linux is installed");
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    eprintln!("{text}");
    assert!(output.status.success(), "{on_loss}: {text}\n{errors}");
}

#[test]
fn limits_hold_across_partitions_where_shares_are_kept() {
    partitions("keep");
}

#[test]
fn limits_hold_across_partitions_where_shares_are_reclaimed() {
    partitions("closed");
}
