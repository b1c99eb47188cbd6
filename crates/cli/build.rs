//! Embeds the version and commit into the binary.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=HEADWORKS_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // A package is built without a repository; its build script may name the commit.
    let named = std::env::var("HEADWORKS_COMMIT").ok();
    let commit = named.filter(|name| !name.is_empty()).or_else(head);
    let told = commit.map_or(version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo:rustc-env=HEADWORKS_VERSION={told}");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}

/// The commit of the checkout. Cargo rebuilds when another is checked out.
fn head() -> Option<String> {
    for name in ["HEAD", "logs/HEAD"] {
        let file = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&file).exists() {
            println!("cargo:rerun-if-changed={file}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
