//! The most memory that a plan takes, however many there are.

use super::Options;
use super::trees::Place;
use crate::report::Report;
use std::process::Command;

pub(super) fn measure(options: &Options, place: &Place, report: &mut Report) {
    let wide = format!("synth://?seed=1&depth=0&files={}", options.wide);
    // A hundred folders in each of a hundred, and as many files in each as it takes.
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
            let peak = peak(place, tree, workers);
            report.row(&what, "MB", peak, None);
            report.bound(what, peak, most);
        }
    }
}

/// In megabytes, of a process that plans to copy a tree to an empty place.
fn peak(place: &Place, tree: &str, workers: &str) -> f64 {
    place.forget("state");
    let this = std::env::current_exe().expect("this program is a file");
    let output = Command::new(this)
        .args(["migrate", "--role", "plan", tree])
        .args([place.path("nothing"), place.path("state")])
        .arg(workers)
        .output()
        .expect("this program can be started");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let kilobytes: f64 = told.trim().parse().unwrap_or_else(|_| {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        panic!("the plan of {tree} failed: {words}")
    });
    place.forget("state");
    kilobytes * 1024.0 / 1e6
}
