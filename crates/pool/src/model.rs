//! The hand-off, model-checked: thousands of interleavings of the lock, the waiters, the wakers and
//! a moving clock.
//!
//! Run with `cargo test -p headworks-pool --features shuttle --lib model`. A failing schedule is
//! printed and can be replayed.

use crate::driver::{Driver, Message, Runners, Task, Timer, WaiterId, Workers};
use headworks_core::{Config, Job, Lease, Limits, Outcome, Ticket, Time, Verdict};
use shuttle::future::{block_on, spawn};
use shuttle::thread;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

const SCHEDULES: usize = 10_000;

/// A driver with a clock that only the test moves.
struct Model {
    driver: Driver<usize>,
    seconds: AtomicU64,
    ran: AtomicUsize,
    ended: Arc<AtomicUsize>,
}

impl Model {
    fn new(runners: Runners, concurrent: u32) -> Arc<Self> {
        let limits = Limits {
            concurrent: Some(concurrent),
            ..Limits::default()
        };
        let config = Config {
            limits,
            ..Config::default()
        };
        let ended = Arc::new(AtomicUsize::new(0));
        let counter = ended.clone();
        let listener = Box::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let workers = Workers::new(0, 0);
        let driver = Driver::new(config, Time::ZERO, runners, workers, listener);
        Arc::new(Model {
            driver: driver.expect("a good configuration"),
            seconds: AtomicU64::new(0),
            ran: AtomicUsize::new(0),
            ended,
        })
    }

    fn now(&self) -> Time {
        Time::from_secs(self.seconds.load(Ordering::SeqCst))
    }

    fn submit(&self, payload: usize) -> bool {
        self.driver
            .submit(self.now(), Job::new(payload), None)
            .is_ok()
    }

    /// Time passes, and the timer calls.
    fn pass_a_second(&self) {
        self.seconds.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        let now = self.now();
        let timer = self.driver.poll_timer(now, Waker::noop());
        let sleeps = matches!(timer, Timer::At { at, .. } if at.is_none_or(|at| at > now));
        assert!(sleeps, "the timer would spin: {timer:?} at {now}");
    }

    async fn message(&self, waiter: WaiterId) -> Message<usize> {
        poll_fn(|context| {
            let message = self.driver.poll_waiter(waiter, context.waker());
            message.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// A worker as in `worker.rs`, with the handler's part done by counting.
    async fn work(self: Arc<Self>) {
        let waiter = self.driver.add_worker();
        let mut done: Option<(Lease<Task<usize>>, Outcome, Verdict)> = None;
        loop {
            let next = self.driver.finish_and_next(self.now(), waiter, done.take());
            let next = match next {
                Some(next) => next,
                None => self.message(waiter).await,
            };
            let Message::Granted(lease) = next else { break };
            self.ran.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            done = Some((lease, Outcome::DONE, Verdict::Fine));
        }
        self.driver.remove_worker(self.now(), waiter);
    }

    async fn acquire(&self) -> (WaiterId, Lease<Task<usize>>) {
        let entered = self.driver.enter(self.now(), Job::new(()));
        let (waiter, _) = entered.expect("there is room");
        match self.message(waiter).await {
            Message::Granted(lease) => (waiter, lease),
            other => panic!("granted, not {other:?}"),
        }
    }

    fn give_back(&self, waiter: WaiterId, lease: Lease<Task<usize>>) {
        let (outcome, verdict) = (Outcome::DONE, Verdict::Fine);
        self.driver
            .give_back(self.now(), waiter, lease, outcome, verdict);
    }

    /// Waits until nothing runs or waits.
    fn drained(&self) {
        if let Some(waiter) = self.driver.wait_until_drained() {
            block_on(self.message(waiter));
            self.driver.remove_waiter(waiter);
        }
    }

    fn all_free(&self) {
        let view = self.driver.core(self.now(), |core| core.inspect());
        assert_eq!((view.running, view.waiting, view.delayed), (0, 0, 0));
    }
}

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

#[test]
fn every_job_runs_once_and_every_worker_leaves() {
    check(|| {
        let model = Model::new(Runners::Workers, 2);
        let workers: Vec<_> = (0..2).map(|_| spawn(model.clone().work())).collect();
        let submitters: Vec<_> = (0..2)
            .map(|n| {
                let model = model.clone();
                thread::spawn(move || assert!(model.submit(2 * n) && model.submit(2 * n + 1)))
            })
            .collect();
        for submitter in submitters {
            submitter.join().expect("it does not panic");
        }
        model.drained();
        model.driver.close(model.now());
        for worker in workers {
            block_on(worker).expect("it leaves");
        }
        assert_eq!(model.ran.load(Ordering::SeqCst), 4);
        model.all_free();
    });
}

#[test]
fn a_worker_that_leaves_loses_no_job() {
    check(|| {
        let model = Model::new(Runners::Workers, 2);
        let workers: Vec<_> = (0..2).map(|_| spawn(model.clone().work())).collect();
        let scaler = {
            let model = model.clone();
            thread::spawn(move || model.driver.stop_idle_worker(model.now()))
        };
        for n in 0..3 {
            assert!(model.submit(n));
        }
        scaler.join().expect("it does not panic");
        model.drained();
        model.driver.close(model.now());
        for worker in workers {
            block_on(worker).expect("it leaves");
        }
        assert_eq!(model.ran.load(Ordering::SeqCst), 3);
        model.all_free();
    });
}

#[test]
fn permits_pass_from_caller_to_caller() {
    check(|| {
        let model = Model::new(Runners::Callers, 1);
        let holders = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (model, holders) = (model.clone(), holders.clone());
                spawn(async move {
                    let (waiter, lease) = model.acquire().await;
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                    thread::yield_now();
                    holders.fetch_sub(1, Ordering::SeqCst);
                    model.give_back(waiter, lease);
                })
            })
            .collect();
        for caller in callers {
            block_on(caller).expect("it ends");
        }
        model.all_free();
    });
}

/// Polls once and leaves, however far it came.
async fn hesitate(model: &Model, job: Job<()>) {
    let entered: Result<(WaiterId, Ticket), _> = model.driver.enter(model.now(), job);
    let Ok((waiter, ticket)) = entered else {
        return;
    };
    let once = poll_fn(|context| Poll::Ready(model.driver.poll_waiter(waiter, context.waker())));
    let once = once.await;
    thread::yield_now();
    match once {
        Some(Message::Granted(lease)) => model.give_back(waiter, lease),
        Some(_) => model.driver.remove_waiter(waiter),
        None => model.driver.abandon(model.now(), waiter, ticket),
    }
}

#[test]
fn a_caller_that_leaves_takes_no_permit_with_it() {
    check(|| {
        let model = Model::new(Runners::Callers, 1);
        let stays = {
            let model = model.clone();
            spawn(async move {
                let (waiter, lease) = model.acquire().await;
                thread::yield_now();
                model.give_back(waiter, lease);
            })
        };
        let leaves: Vec<_> = (0..2)
            .map(|_| {
                let model = model.clone();
                spawn(async move { hesitate(&model, Job::new(())).await })
            })
            .collect();
        for task in leaves {
            block_on(task).expect("it ends");
        }
        block_on(stays).expect("it was granted");
        model.all_free();
    });
}

/// Expiry, cancellation and grant race each other while the clock moves; callers without a deadline
/// are granted.
#[test]
fn callers_that_expire_as_they_leave_lose_no_other_waiter() {
    check(|| {
        let model = Model::new(Runners::Callers, 1);
        let patient: Vec<_> = (0..2)
            .map(|_| {
                let model = model.clone();
                spawn(async move {
                    let (waiter, lease) = model.acquire().await;
                    thread::yield_now();
                    model.give_back(waiter, lease);
                })
            })
            .collect();
        let hasty: Vec<_> = (0..2)
            .map(|_| {
                let model = model.clone();
                spawn(async move {
                    hesitate(&model, Job::new(()).expire_at(Time::from_secs(1))).await;
                })
            })
            .collect();
        let clock = {
            let model = model.clone();
            thread::spawn(move || {
                model.pass_a_second();
                model.pass_a_second();
            })
        };
        clock.join().expect("it does not panic");
        for task in hasty.into_iter().chain(patient) {
            block_on(task).expect("it ends");
        }
        model.all_free();
    });
}

#[test]
fn a_drain_hands_back_what_no_worker_has() {
    check(|| {
        let model = Model::new(Runners::Workers, 1);
        let worker = spawn(model.clone().work());
        let submitter = {
            let model = model.clone();
            thread::spawn(move || usize::from(model.submit(1)) + usize::from(model.submit(2)))
        };
        model.driver.drain(model.now());
        let admitted = submitter.join().expect("it does not panic");
        model.drained();
        model.driver.close(model.now());
        block_on(worker).expect("it leaves");
        let known = model.ran.load(Ordering::SeqCst) + model.ended.load(Ordering::SeqCst);
        assert_eq!(known, admitted, "run or handed back, once");
        model.all_free();
    });
}

#[test]
fn a_drain_tells_every_caller() {
    check(|| {
        let model = Model::new(Runners::Callers, 1);
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let model = model.clone();
                spawn(async move {
                    let Ok((waiter, _)) = model.driver.enter(model.now(), Job::new(())) else {
                        return;
                    };
                    match model.message(waiter).await {
                        Message::Granted(lease) => model.give_back(waiter, lease),
                        Message::Denied(_) => model.driver.remove_waiter(waiter),
                        other => panic!("granted or denied, not {other:?}"),
                    }
                })
            })
            .collect();
        model.driver.drain(model.now());
        model.drained();
        for caller in callers {
            block_on(caller).expect("it has its answer");
        }
        model.all_free();
    });
}

#[test]
fn a_lost_worker_leaves_its_slot() {
    check(|| {
        let model = Model::new(Runners::Workers, 1);
        let lost = {
            let model = model.clone();
            thread::spawn(move || {
                let waiter = model.driver.add_worker();
                // The worker's task is aborted here, whatever it was given.
                drop(model.driver.finish_and_next(model.now(), waiter, None));
                model.driver.remove_worker(model.now(), waiter);
            })
        };
        assert!(model.submit(1));
        lost.join().expect("it does not panic");
        let worker = spawn(model.clone().work());
        assert!(model.submit(2));
        model.drained();
        model.driver.close(model.now());
        block_on(worker).expect("it leaves");
        assert!(model.ran.load(Ordering::SeqCst) >= 1);
        model.all_free();
    });
}
