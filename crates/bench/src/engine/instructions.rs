//! Instructions per job, counted by valgrind. The count does not depend on the load of the machine.
//!
//! The difference between a run of `2 n` jobs and a run of `n` is the cost of `n` jobs without the
//! set-up.

use super::ours;
use crate::report::Report;
use headworks_core::{Class, Core, Flow, Job, Outcome, TargetId, Time, Verdict};
use std::process::{Command, ExitCode};

const JOBS: u64 = 20_000;

/// Keeps `queued` jobs waiting and runs `jobs` through the core.
pub(crate) fn steps(spec: &str) -> ExitCode {
    let numbers: Vec<u64> = spec
        .split(',')
        .filter_map(|number| number.parse().ok())
        .collect();
    let [queued, flows, targets, jobs] = numbers[..] else {
        eprintln!("error: --steps takes QUEUED,FLOWS,TARGETS,JOBS");
        return ExitCode::from(2);
    };
    let mut core = prepared(queued, flows, targets);
    pass(&mut core, queued, flows, targets, jobs);
    ExitCode::SUCCESS
}

fn prepared(queued: u64, flows: u64, targets: u64) -> Core<u64> {
    let config = ours::config(targets as usize, 2 * queued as usize + 10);
    let mut core = Core::new(config, Time::ZERO).expect("a good configuration");
    // Every flow and target is used once before counting, so that the growth of tables does not
    // count.
    for class in 0..10 {
        for (flow, target) in (0..flows).flat_map(|flow| (0..targets).map(move |to| (flow, to))) {
            let job = Job::new(0)
                .class(Class(class))
                .flow(Flow(flow))
                .targets(TargetId::new(target as u32));
            core.submit(Time::ZERO, job).expect("there is room");
            let lease = core.next(Time::ZERO).expect("nothing is limited");
            core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
        }
    }
    for n in 0..queued {
        core.submit(Time::ZERO, ours::job(n, flows, targets))
            .expect("there is room");
    }
    core
}

fn pass(core: &mut Core<u64>, queued: u64, flows: u64, targets: u64, jobs: u64) {
    for n in queued..queued + jobs {
        let now = Time::from_nanos(n * 500);
        core.submit(now, ours::job(n, flows, targets))
            .expect("there is room");
        let lease = core.next(now).expect("nothing is limited");
        core.finish(now, lease, Outcome::DONE, Verdict::Fine);
    }
}

/// Numbers of queued jobs, flows and targets.
type Shape = (u64, u64, u64);

pub(crate) fn measure(report: &mut Report) {
    let shapes = [
        ("1,000 queued", (1_000, 10, 10)),
        ("1,000,000 queued", (1_000_000, 10, 10)),
        ("10 flows", (20_000, 10, 1)),
        ("10,000 flows", (20_000, 10_000, 1)),
        ("10 targets", (20_000, 1, 10)),
        ("10,000 targets", (20_000, 1, 10_000)),
    ];
    for pair in shapes.chunks(2) {
        let times = walls([pair[0].1, pair[1].1]);
        for ((name, (queued, flows, targets)), wall) in pair.iter().zip(times) {
            let count = |jobs| count(&format!("{queued},{flows},{targets},{jobs}"));
            let instructions = (count(2 * JOBS) - count(JOBS)) / JOBS as f64;
            report.row(
                &format!("instructions per job, {name}"),
                "",
                instructions,
                None,
            );
            report.row(&format!("time per job, {name}"), "ns", wall, None);
        }
    }
    let mut ratio = |what: &str, a: usize, b: usize, instructions: f64| {
        report.ratio(
            &format!("{what}, {}", shapes[a].0),
            &format!("{what}, {}", shapes[b].0),
            instructions,
        );
    };
    ratio("instructions per job", 1, 0, 1.3);
    ratio("instructions per job", 5, 4, 1.2);
}

/// Time per job in two configurations, measured in turns so that the load of the machine affects
/// both. A turn is long, because it begins with a cache full of the other's data.
fn walls(shapes: [Shape; 2]) -> [f64; 2] {
    let jobs = 1_000_000;
    let mut cores = shapes.map(|(queued, flows, targets)| {
        let mut core = prepared(queued, flows, targets);
        pass(&mut core, queued, flows, targets, jobs);
        core
    });
    let mut times = [vec![], vec![]];
    for round in 1..=7 {
        for ((core, shape), times) in cores.iter_mut().zip(shapes).zip(&mut times) {
            let (queued, flows, targets) = shape;
            let from = queued + round * jobs;
            let took = crate::measure::measure(jobs, || pass(core, from, flows, targets, jobs));
            times.push(took.wall);
        }
    }
    times.map(crate::measure::median)
}

fn count(spec: &str) -> f64 {
    let me = std::env::current_exe().expect("a running program has a path");
    let out = Command::new("valgrind")
        .args(["--tool=none", "--version"])
        .output();
    assert!(
        out.is_ok(),
        "valgrind is needed to count instructions: install it, or leave --instructions out"
    );
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(me)
        .args(["engine", "--steps", spec])
        .output()
        .expect("valgrind was just found");
    let said = String::from_utf8_lossy(&run.stderr);
    let total = said
        .lines()
        .rev()
        .find_map(|line| line.split("refs:").nth(1));
    let total = total.unwrap_or_else(|| panic!("valgrind did not count: {said}"));
    total.trim().replace(',', "").parse().expect("a number")
}
