//! The peak memory of a plan for large trees.

use super::Options;
use super::trees::WorkDir;
use crate::report::Report;
use std::process::Command;

pub(super) fn measure(options: &Options, dir: &WorkDir, report: &mut Report) {
    let wide = format!("synth://?seed=1&depth=0&files={}", options.wide);
    // A hundred folders in each of a hundred, and as many files in each as needed.
    let each = options.nodes / 10_101;
    let many = format!("synth://?seed=1&depth=2&dirs=100&files={each}");
    for workers in ["8", "64"] {
        for (name, tree, most) in [
            (
                format!("{} entries in one folder", options.wide),
                &wide,
                100.0,
            ),
            (format!("{} nodes", options.nodes), &many, 150.0),
        ] {
            let what = format!("peak memory, {name}, {workers} workers");
            let peak = peak(dir, tree, workers);
            report.row(&what, "MB", peak, None);
            report.bound(what, peak, most);
        }
    }
}

/// Returns the peak memory in megabytes of a process that plans a copy of a tree to an empty
/// folder.
fn peak(dir: &WorkDir, tree: &str, workers: &str) -> f64 {
    dir.remove("state");
    let this = std::env::current_exe().expect("this program is a file");
    let output = Command::new(this)
        .args(["migrate", "--role", "plan", tree])
        .args([dir.path("nothing"), dir.path("state")])
        .arg(workers)
        .output()
        .expect("this program can be started");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let kilobytes: f64 = told.trim().parse().unwrap_or_else(|_| {
        let args = String::from_utf8_lossy(&output.stderr).into_owned();
        panic!("the plan of {tree} failed: {args}")
    });
    dir.remove("state");
    kilobytes * 1024.0 / 1e6
}
