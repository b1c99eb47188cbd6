//! Admission alone: from the request for a slot to the grant, without HTTP.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use headworks_core::{Class, Config, Cost, Flow, Job, Limits};
use headworks_pool::{Permit, Permits, Report as Ended};

use crate::measure::{measure, median};
use crate::report::Report;

const FREE: &str = "admission, a slot is free";
const QUEUED: &str = "admission, through the queue";
const TIMES: u64 = 100_000;

/// Measures the grant of a free slot and the grant through the queue.
pub(super) fn run(rounds: usize, report: &mut Report) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let _inside = runtime.enter();
    for (name, work, bound) in [
        (FREE, free as fn(&Permits), 1000.0),
        (QUEUED, queued, 2000.0),
    ] {
        let limits = Limits {
            concurrent: Some(1),
            ..Limits::default()
        };
        let config = Config {
            limits,
            ..Config::default()
        };
        let permits = Permits::new(config).expect("a good configuration");
        work(&permits);
        let took = (0..rounds).map(|_| measure(TIMES, || work(&permits)).wall);
        let took = median(took.collect());
        report.row(name, "ns", took, None);
        report.bound(format!("{name}, in ns"), took, bound);
    }
}

fn job(n: u64) -> Job<()> {
    Job::new(())
        .class(Class((n % 10) as u8))
        .flow(Flow(n % 20))
        .cost(Cost(1 + n % 1000))
}

fn granted(acquire: impl Future<Output = Result<Permit, headworks_pool::Denied>>) -> Permit {
    match pin!(acquire).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => permit.expect("nothing refuses it"),
        Poll::Pending => panic!("a free slot is not given"),
    }
}

/// Acquires and releases a free slot.
fn free(permits: &Permits) {
    for n in 0..TIMES {
        granted(permits.acquire(job(n))).finish(Ended::done());
    }
}

/// Acquires the only slot while it is taken, and releases it to the next in the queue.
fn queued(permits: &Permits) {
    let mut holder = granted(permits.acquire(job(0)));
    for n in 1..=TIMES {
        let mut next = Box::pin(permits.acquire(job(n)));
        let waits = next
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending();
        assert!(waits, "there is one slot");
        holder.finish(Ended::done());
        holder = granted(next);
    }
    holder.finish(Ended::done());
}
