//! The hand-off, model-checked: thousands of interleavings of the lock, the seats and the wakers.
//!
//! Run with `cargo test -p headworks-pool --features shuttle --lib model`. A failing schedule is printed and can be replayed.

use crate::shell::{SeatId, Shell, Task, Word, Workers};
use headworks_core::{Config, Job, Lease, Limits, Outcome, Ticket, Time, Verdict};
use shuttle::future::{block_on, spawn};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

const SCHEDULES: usize = 20_000;
const NOW: Time = Time::from_secs(1);

fn shell(concurrent: u32, ended: &Arc<AtomicUsize>) -> Arc<Shell<usize>> {
    let limits = Limits {
        concurrent: Some(concurrent),
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::default()
    };
    let ended = ended.clone();
    let listener = move |_| {
        ended.fetch_add(1, Ordering::SeqCst);
    };
    let workers = Workers::new(0, 0);
    Arc::new(Shell::new(config, NOW, workers, Box::new(listener)).expect("a good configuration"))
}

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

async fn word(shell: &Shell<usize>, seat: SeatId) -> Word<usize> {
    poll_fn(|context| match shell.poll_seat(seat, context.waker()) {
        Some(word) => Poll::Ready(word),
        None => Poll::Pending,
    })
    .await
}

/// A worker as in `worker.rs`, with the handler's part done by counting.
async fn work(shell: Arc<Shell<usize>>, ran: Arc<AtomicUsize>) {
    let seat = shell.hire();
    let mut done: Option<(Lease<Task<usize>>, Outcome, Verdict)> = None;
    loop {
        let next = match shell.turn(NOW, seat, done.take()) {
            Some(next) => next,
            None => word(&shell, seat).await,
        };
        match next {
            Word::Granted(lease) => {
                ran.fetch_add(1, Ordering::SeqCst);
                shuttle::thread::yield_now();
                done = Some((lease, Outcome::DONE, Verdict::Fine));
            }
            Word::Denied(_) | Word::Leave => break,
        }
    }
    shell.dismiss(NOW, seat);
}

async fn acquire(shell: &Shell<usize>) -> (SeatId, Lease<Task<usize>>) {
    let (seat, _) = shell.enter(NOW, Job::new(())).expect("there is room");
    match word(shell, seat).await {
        Word::Granted(lease) => (seat, lease),
        other => panic!("granted, not {other:?}"),
    }
}

/// Waits until nothing runs or waits.
fn drained(shell: &Shell<usize>) {
    block_on(poll_fn(|context| {
        match shell.poll_drained(context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
}

fn all_free(shell: &Shell<usize>) {
    let view = shell.core(NOW, |core| core.inspect());
    assert_eq!((view.running, view.waiting, view.delayed), (0, 0, 0));
}

#[test]
fn every_job_runs_once_and_every_worker_leaves() {
    check(|| {
        let (ran, ended) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let shell = shell(2, &ended);
        let workers: Vec<_> = (0..2)
            .map(|_| spawn(work(shell.clone(), ran.clone())))
            .collect();
        let submitters: Vec<_> = (0..2)
            .map(|n| {
                let shell = shell.clone();
                shuttle::thread::spawn(move || {
                    for m in 0..2 {
                        shell
                            .submit(NOW, Job::new(2 * n + m))
                            .expect("there is room");
                    }
                })
            })
            .collect();
        for submitter in submitters {
            submitter.join().expect("it does not panic");
        }
        block_on(poll_fn(|context| {
            match shell.poll_drained(context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        shell.close(NOW);
        for worker in workers {
            block_on(worker).expect("it leaves");
        }
        assert_eq!(ran.load(Ordering::SeqCst), 4);
        all_free(&shell);
    });
}

#[test]
fn a_worker_told_to_leave_loses_no_job() {
    check(|| {
        let (ran, ended) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let shell = shell(2, &ended);
        let workers: Vec<_> = (0..2)
            .map(|_| spawn(work(shell.clone(), ran.clone())))
            .collect();
        let scaler = {
            let shell = shell.clone();
            shuttle::thread::spawn(move || shell.dismiss_idle(NOW))
        };
        for n in 0..3 {
            shell.submit(NOW, Job::new(n)).expect("there is room");
        }
        scaler.join().expect("it does not panic");
        block_on(poll_fn(|context| {
            match shell.poll_drained(context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        shell.close(NOW);
        for worker in workers {
            block_on(worker).expect("it leaves");
        }
        assert_eq!(ran.load(Ordering::SeqCst), 3);
        all_free(&shell);
    });
}

#[test]
fn permits_pass_from_caller_to_caller() {
    check(|| {
        let shell = shell(1, &Arc::default());
        let holders = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (shell, holders) = (shell.clone(), holders.clone());
                spawn(async move {
                    let (seat, lease) = acquire(&shell).await;
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                    shuttle::thread::yield_now();
                    holders.fetch_sub(1, Ordering::SeqCst);
                    shell.give_back(NOW, seat, lease, Outcome::DONE, Verdict::Fine);
                })
            })
            .collect();
        for caller in callers {
            block_on(caller).expect("it ends");
        }
        all_free(&shell);
    });
}

/// Polls once and leaves, however far it came.
async fn hesitate(shell: &Shell<usize>) {
    let (seat, ticket): (SeatId, Ticket) = shell.enter(NOW, Job::new(())).expect("there is room");
    let once = poll_fn(|context| Poll::Ready(shell.poll_seat(seat, context.waker()))).await;
    shuttle::thread::yield_now();
    match once {
        Some(Word::Granted(lease)) => {
            shell.give_back(NOW, seat, lease, Outcome::Dropped, Verdict::Unknown);
        }
        Some(other) => panic!("granted, not {other:?}"),
        None => shell.abandon(NOW, seat, ticket),
    }
}

#[test]
fn a_caller_who_leaves_takes_no_permit_with_it() {
    check(|| {
        let shell = shell(1, &Arc::default());
        let stays = {
            let shell = shell.clone();
            spawn(async move {
                let (seat, lease) = acquire(&shell).await;
                shuttle::thread::yield_now();
                shell.give_back(NOW, seat, lease, Outcome::DONE, Verdict::Fine);
            })
        };
        let leaves: Vec<_> = (0..2)
            .map(|_| {
                let shell = shell.clone();
                spawn(async move { hesitate(&shell).await })
            })
            .collect();
        for task in leaves {
            block_on(task).expect("it ends");
        }
        block_on(stays).expect("it was granted");
        all_free(&shell);
    });
}

#[test]
fn a_drain_hands_back_what_no_worker_has() {
    check(|| {
        let (ran, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let shell = shell(1, &ended);
        let worker = spawn(work(shell.clone(), ran.clone()));
        let submitter = {
            let shell = shell.clone();
            shuttle::thread::spawn(move || {
                let admitted = |n| usize::from(shell.submit(NOW, Job::new(n)).is_ok());
                admitted(1) + admitted(2)
            })
        };
        shell.drain(NOW);
        let admitted = submitter.join().expect("it does not panic");
        drained(&shell);
        shell.close(NOW);
        block_on(worker).expect("it leaves");
        let known = ran.load(Ordering::SeqCst) + ended.load(Ordering::SeqCst);
        assert_eq!(known, admitted, "run or handed back, once");
        all_free(&shell);
    });
}

#[test]
fn a_drain_tells_every_caller() {
    check(|| {
        let shell = shell(1, &Arc::default());
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let shell = shell.clone();
                spawn(async move {
                    let Ok((seat, _)) = shell.enter(NOW, Job::new(())) else {
                        return;
                    };
                    match word(&shell, seat).await {
                        Word::Granted(lease) => {
                            shell.give_back(NOW, seat, lease, Outcome::DONE, Verdict::Fine);
                        }
                        Word::Denied(_) => shell.stand_up(seat),
                        Word::Leave => panic!("callers are not told to leave"),
                    }
                })
            })
            .collect();
        shell.drain(NOW);
        drained(&shell);
        for caller in callers {
            block_on(caller).expect("it has its answer");
        }
        all_free(&shell);
    });
}

#[test]
fn a_lost_worker_leaves_its_slot() {
    check(|| {
        let ended = Arc::new(AtomicUsize::new(0));
        let shell = shell(1, &ended);
        let lost = {
            let shell = shell.clone();
            shuttle::thread::spawn(move || {
                let seat = shell.hire();
                let word = shell.turn(NOW, seat, None);
                // The worker's task is aborted here, whatever it had.
                assert!(
                    !matches!(word, Some(Word::Denied(_))),
                    "workers are not denied"
                );
                shell.reclaim(NOW, seat);
                shell.dismiss(NOW, seat);
            })
        };
        shell.submit(NOW, Job::new(1)).expect("there is room");
        lost.join().expect("it does not panic");
        let ran = Arc::new(AtomicUsize::new(0));
        let worker = spawn(work(shell.clone(), ran.clone()));
        shell.submit(NOW, Job::new(2)).expect("there is room");
        block_on(poll_fn(|context| {
            match shell.poll_drained(context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        shell.close(NOW);
        block_on(worker).expect("it leaves");
        assert!(ran.load(Ordering::SeqCst) >= 1);
        all_free(&shell);
    });
}
