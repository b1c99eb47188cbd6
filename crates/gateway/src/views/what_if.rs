//! What-if comparison: replays the requests of the last minutes under other settings.
//!
//! The scheduler itself runs under a virtual clock. It gets the requests at the times at which they
//! arrived, and each is served for as long as it really was. See `docs/adr/0010`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use headworks_core::{
    Class, Config, ConfigError, Core, Cost, Event, Flow, Job, Lease, Outcome, Time, Verdict,
};
use headworks_service::panel::{Comparison, Prediction, Unit};

/// How far back the comparison reaches.
pub(super) const SPAN: Duration = Duration::from_secs(600);

/// One recorded request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayedRequest {
    pub(super) at: Time,
    pub(super) class: Class,
    pub(super) flow: Flow,
    pub(super) estimate: Cost,
    /// Actual cost, if known.
    pub(super) actual_cost: Option<Cost>,
    /// Service time.
    pub(super) took: Duration,
    pub(super) timeout: Duration,
}

/// Gives requests without a service time of their own, because they were not served to the end, the
/// median of the others.
pub(super) fn with_service_times(arrivals: Vec<(ReplayedRequest, bool)>) -> Vec<ReplayedRequest> {
    let times = arrivals.iter().filter(|(_, known)| *known);
    let usual = quantile(
        &times.map(|(arrival, _)| arrival.took).collect::<Vec<_>>(),
        0.5,
    );
    let timed = |(arrival, known): (ReplayedRequest, bool)| ReplayedRequest {
        took: if known { arrival.took } else { usual },
        ..arrival
    };
    arrivals.into_iter().map(timed).collect()
}

/// Result of a class.
#[derive(Clone, Debug, Default)]
struct ClassResult {
    offered: u64,
    waits: Vec<Duration>,
    rejected: u64,
    tokens: u64,
}

/// Compares two scheduler settings on the same requests.
pub(super) fn compare(
    arrivals: &[ReplayedRequest],
    now: &Config,
    then: &Config,
) -> Result<Prediction, ConfigError> {
    let (before, after) = (replay(arrivals, now)?, replay(arrivals, then)?);
    let all = |results: &[ClassResult]| {
        results
            .iter()
            .map(|result| result.tokens)
            .sum::<u64>()
            .max(1)
    };
    let tokens = (all(&before), all(&after));
    let mut compared = Vec::new();
    for (level, (now, then)) in before.iter().zip(&after).enumerate() {
        if now.offered == 0 {
            continue;
        }
        let mut add = |what: &str, unit, now: f64, then: f64| {
            compared.push(Comparison {
                name: format!("P{level} {what}"),
                unit,
                now,
                then,
            });
        };
        let wait = |result: &ClassResult, part| quantile(&result.waits, part).as_secs_f64();
        add("p50 wait", Unit::Seconds, wait(now, 0.5), wait(then, 0.5));
        add("p90 wait", Unit::Seconds, wait(now, 0.9), wait(then, 0.9));
        add(
            "rejected",
            Unit::Count,
            now.rejected as f64,
            then.rejected as f64,
        );
        let share = |result: &ClassResult, all: u64| 100.0 * result.tokens as f64 / all as f64;
        let shares = (share(now, tokens.0), share(then, tokens.1));
        add("token share", Unit::Percent, shares.0, shares.1);
    }
    let summary = match arrivals {
        [] => "no request in the last ten minutes: nothing to compare".to_owned(),
        some => format!(
            "replay of the last {} requests under the current and the changed settings",
            some.len()
        ),
    };
    Ok(Prediction { summary, compared })
}

/// Replays the requests. All upstreams count as one: which upstream served a request says little
/// about which one would have.
fn replay(arrivals: &[ReplayedRequest], config: &Config) -> Result<Vec<ClassResult>, ConfigError> {
    let mut config = config.clone();
    // Without targets, the limits of upstreams do not apply; those of the whole gateway do.
    config.targets.clear();
    let mut run = Replay {
        arrivals,
        results: vec![ClassResult::default(); config.classes.len()],
        core: Core::new(config, Time::ZERO)?,
        served: Vec::new(),
        ends: BinaryHeap::new(),
    };
    let mut next = 0;
    while let Some(now) = run.next_moment(arrivals.get(next)) {
        run.end(now);
        while arrivals.get(next).is_some_and(|arrival| arrival.at <= now) {
            run.arrive(now, next);
            next += 1;
        }
        run.serve(now);
    }
    Ok(run.results)
}

struct Replay<'a> {
    arrivals: &'a [ReplayedRequest],
    core: Core<usize>,
    results: Vec<ClassResult>,
    /// Requests being served, by index. `ends` has the time at which each is done.
    served: Vec<Option<Lease<usize>>>,
    ends: BinaryHeap<Reverse<(Time, usize)>>,
}

impl Replay<'_> {
    fn next_moment(&self, coming: Option<&ReplayedRequest>) -> Option<Time> {
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        let moments = [coming.map(|arrival| arrival.at), end, self.core.wake_at()];
        moments.into_iter().flatten().min()
    }

    fn end(&mut self, now: Time) {
        while let Some(&Reverse((at, place))) = self.ends.peek()
            && at <= now
        {
            self.ends.pop();
            if let Some(lease) = self.served[place].take() {
                let cost = self.arrivals[lease.payload].actual_cost;
                self.core
                    .finish(now, lease, Outcome::Done { cost }, Verdict::Fine);
            }
        }
    }

    fn arrive(&mut self, now: Time, number: usize) {
        let arrival = &self.arrivals[number];
        let Some(result) = self.results.get_mut(usize::from(arrival.class.0)) else {
            return;
        };
        result.offered += 1;
        let job = Job::new(number)
            .class(arrival.class)
            .flow(arrival.flow)
            .cost(arrival.estimate)
            .expire_at(now + arrival.timeout);
        result.rejected += u64::from(self.core.submit(now, job).is_err());
    }

    fn serve(&mut self, now: Time) {
        while let Some(lease) = self.core.next(now) {
            let arrival = &self.arrivals[lease.payload];
            let result = &mut self.results[usize::from(arrival.class.0)];
            result.waits.push(lease.waited);
            result.tokens += arrival.actual_cost.unwrap_or(arrival.estimate).0;
            self.ends
                .push(Reverse((now + arrival.took, self.served.len())));
            self.served.push(Some(lease));
        }
        while let Some(event) = self.core.poll_event() {
            if let Event::Expired { job, .. } | Event::Shed { job, .. } = event {
                self.results[usize::from(job.class.0)].rejected += 1;
            }
        }
    }
}

fn quantile(waits: &[Duration], part: f64) -> Duration {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() as f64 * part) as usize;
    let place = place.min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_core::{ClassConfig, Limits, Policy};

    /// Two classes whose load together is twice the capacity.
    fn load() -> Vec<ReplayedRequest> {
        let arrival = |n: u64| ReplayedRequest {
            at: Time::from_millis(n * 10),
            class: Class((n % 2) as u8),
            flow: Flow(1),
            estimate: Cost(10),
            actual_cost: None,
            took: Duration::from_millis(20),
            timeout: Duration::from_secs(60),
        };
        (0..400).map(arrival).collect()
    }

    fn config(weights: [u32; 2]) -> Config {
        Config {
            policy: Policy::Wfq,
            classes: weights.map(ClassConfig::weight).into(),
            limits: Limits {
                concurrent: Some(1),
                ..Limits::default()
            },
            ..Config::default()
        }
    }

    #[test]
    fn a_larger_weight_waits_less() {
        let answer = compare(&load(), &config([1, 1]), &config([3, 1])).unwrap();
        let found = |name: &str| {
            let row = answer.compared.iter().find(|row| row.name == name);
            row.map(|row| (row.now, row.then)).unwrap()
        };
        let (now, then) = found("P0 p50 wait");
        assert!(then < now / 2.0, "{now} s, then {then} s");
        let (now, then) = found("P1 p50 wait");
        assert!(then > now, "{now} s, then {then} s");
    }

    #[test]
    fn nothing_came() {
        let answer = compare(&[], &config([1, 1]), &config([3, 1])).unwrap();
        assert!(answer.compared.is_empty() && answer.summary.contains("nothing to compare"));
    }
}
