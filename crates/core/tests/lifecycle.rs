//! How jobs end, are tried again, and are known meanwhile.

use headworks_core::{
    Bound, Cancelled, Config, Core, Cost, Event, Fault, Job, Key, Limits, OnSuspend, Outcome,
    Reason, Settled, TargetConfig, TargetId, TargetState, Time, Verdict,
};

fn start(config: Config) -> Core<u64> {
    Core::new(config, Time::ZERO).expect("a good configuration")
}

fn secs(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// To be tried again after a second.
fn again(now: Time, fault: Fault) -> Outcome {
    let at = now + std::time::Duration::from_secs(1);
    Outcome::RetryAt { fault, at }
}

#[test]
fn a_job_that_was_cancelled_while_it_ran_is_not_tried_again() {
    let mut core = start(Config::default());
    let ticket = core.submit(Time::ZERO, Job::new(1)).expect("room");
    let lease = core.next(Time::ZERO).expect("granted");
    assert_eq!(core.cancel(Time::ZERO, ticket), Cancelled::Running);
    let outcome = again(Time::ZERO, Fault::Temporary);
    let settled = core.finish(Time::ZERO, lease, outcome, Verdict::Unknown);
    assert_eq!(settled, Settled::Cancelled(1));
}

#[test]
fn a_job_that_runs_is_not_withdrawn() {
    let mut core = start(Config::default());
    let ticket = core.submit(Time::ZERO, Job::new(1)).expect("room");
    let lease = core.next(Time::ZERO).expect("granted");
    assert_eq!(core.withdraw(Time::ZERO, ticket), Cancelled::Running);
    let outcome = again(Time::ZERO, Fault::Temporary);
    let settled = core.finish(Time::ZERO, lease, outcome, Verdict::Unknown);
    assert_eq!(settled, Settled::Delayed(secs(1)), "as if nobody had asked");
}

#[test]
fn a_start_counted_from_the_submission_is_a_point_in_time() {
    let (now, three) = (secs(5), std::time::Duration::from_secs(3));
    let mut core = start(Config::default());
    for (job, due) in [
        (Job::new(1).start_in(three), secs(8)),
        (Job::new(2).start_in(three).start_at(secs(9)), secs(9)),
        (Job::new(3).start_in(three).start_at(secs(6)), secs(8)),
    ] {
        let payload = job.payload;
        let ticket = core.submit(now, job).expect("room");
        assert_eq!(core.wake_at(), Some(due), "{payload}: the later of both");
        assert!(matches!(core.cancel(now, ticket), Cancelled::Removed(job)
            if job.start_at == Some(due) && job.start_in.is_none()));
    }
    core.submit(now, Job::new(4).start_in(three)).expect("room");
    assert_eq!((core.delayed(), core.waiting()), (1, 0));
    assert!(core.next(secs(7)).is_none());
    assert_eq!(core.next(secs(8)).map(|lease| lease.payload), Some(4));
}

#[test]
fn waiting_for_an_overloaded_target_costs_no_attempt() {
    let mut core = start(Config::default());
    let job = Job::new(1).attempts(1);
    core.submit(Time::ZERO, job).expect("room");
    for second in 0..5 {
        let now = secs(second);
        let lease = core.next(now).expect("granted");
        let outcome = again(now, Fault::Overload);
        let settled = core.finish(now, lease, outcome, Verdict::Unknown);
        assert_eq!(settled, Settled::Delayed(secs(second + 1)));
    }
    let lease = core.next(secs(5)).expect("granted");
    let outcome = again(secs(5), Fault::Temporary);
    let settled = core.finish(secs(5), lease, outcome, Verdict::Unknown);
    assert_eq!(settled, Settled::Failed(1), "that was its only attempt");
}

#[test]
fn a_key_is_taken_until_its_job_has_ended() {
    let mut core = start(Config::default());
    let job = || Job::new(1).key(Key(7));
    let taken = |core: &mut Core<u64>| {
        let refused = core.submit(Time::ZERO, job()).expect_err("a duplicate");
        assert_eq!(refused.reason, Reason::Duplicate);
        core.find(Key(7))
    };
    let ticket = core.submit(Time::ZERO, job()).expect("room");
    assert_eq!(taken(&mut core), Some(ticket), "while it waits");
    let lease = core.next(Time::ZERO).expect("granted");
    assert_eq!(taken(&mut core), Some(ticket), "while it runs");
    core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
    assert_eq!(core.find(Key(7)), None);
    core.submit(Time::ZERO, job()).expect("the key is free");
}

#[test]
fn a_ticket_of_a_job_that_ended_names_no_later_one() {
    let mut core = start(Config::default());
    let ticket = core.submit(Time::ZERO, Job::new(1)).expect("room");
    assert!(matches!(
        core.cancel(Time::ZERO, ticket),
        Cancelled::Removed(_)
    ));
    core.submit(Time::ZERO, Job::new(2)).expect("room");
    assert_eq!(core.cancel(Time::ZERO, ticket), Cancelled::Ended);
    assert_eq!(core.waiting(), 1);
}

#[test]
fn a_drain_hands_back_everything_that_does_not_run() {
    let mut core = start(Config::default());
    core.submit(Time::ZERO, Job::new(0)).expect("room");
    let lease = core.next(Time::ZERO).expect("granted");
    core.submit(Time::ZERO, Job::new(1)).expect("room");
    let later = Job::new(2).start_at(secs(60));
    core.submit(Time::ZERO, later).expect("room");
    core.drain(Time::ZERO);
    let returned = std::iter::from_fn(|| core.poll_event()).map(|event| match event {
        Event::Returned { job, .. } => job.payload,
        other => panic!("{other:?}"),
    });
    assert_eq!(returned.collect::<Vec<_>>(), [1, 2]);
    let settled = core.finish(secs(1), lease, Outcome::DONE, Verdict::Fine);
    assert_eq!(settled, Settled::Done(0), "a running job may finish");
}

#[test]
fn a_job_that_is_due_takes_no_place_that_is_not_there() {
    let mut core = start(Config {
        bound: Bound::PerClass(1),
        limits: Limits {
            concurrent: Some(1),
            ..Limits::default()
        },
        ..Config::default()
    });
    core.submit(Time::ZERO, Job::new(0)).expect("room");
    let _running = core.next(Time::ZERO).expect("granted");
    core.submit(Time::ZERO, Job::new(1)).expect("room");
    let later = Job::new(2).start_at(secs(1));
    core.submit(Time::ZERO, later).expect("room");
    core.advance(secs(1));
    assert_eq!((core.waiting(), core.delayed()), (1, 1));
    assert!(matches!(core.poll_event(), Some(Event::Postponed { .. })));
}

#[test]
fn a_job_sent_elsewhere_does_not_go_back_after_a_reload() {
    let mut core = start(Config {
        targets: vec![TargetConfig::default(); 2],
        ..Config::default()
    });
    let both = [TargetId::new(0), TargetId::new(1)];
    let both = core.targets(&both).expect("they exist");
    core.submit(Time::ZERO, Job::new(1).targets(both))
        .expect("room");
    let lease = core.next(Time::ZERO).expect("granted");
    assert_eq!(lease.target, TargetId::new(0));
    // The other target is busier, so that the one that refused would be chosen.
    let job = Job::new(0).targets(TargetId::new(1));
    core.submit(Time::ZERO, job).expect("room");
    let _busy = core.next(Time::ZERO).expect("granted");
    core.finish(Time::ZERO, lease, Outcome::Elsewhere, Verdict::Unknown);
    let config = core.config().clone();
    core.reconfigure(Time::ZERO, config).expect("as before");
    let lease = core.next(Time::ZERO).expect("granted");
    assert_eq!((lease.payload, lease.target), (1, TargetId::new(1)));
}

#[test]
fn a_suspended_job_goes_to_a_target_that_can_serve_it_after_a_reload() {
    let mut config = Config {
        targets: vec![TargetConfig::default(); 2],
        on_suspend: OnSuspend::Delay,
        ..Config::default()
    };
    config.targets[1].limits.max_cost = Some(Cost(10));
    let mut core = start(config.clone());
    let both = [TargetId::new(0), TargetId::new(1)];
    let both = core.targets(&both).expect("they exist");
    let large = |payload| Job::new(payload).targets(both).cost(Cost(50));
    core.submit(Time::ZERO, large(1)).expect("room");
    let until = secs(600);
    core.set_target(
        Time::ZERO,
        TargetId::new(0),
        TargetState::Suspended { until },
    );
    let later = large(2).start_at(secs(30));
    core.submit(Time::ZERO, later).expect("room");
    assert_eq!((core.waiting(), core.delayed()), (0, 2));
    config.targets[1].limits.max_cost = None;
    core.reconfigure(secs(1), config).expect("as before");
    assert_eq!((core.waiting(), core.delayed()), (1, 1));
    let lease = core.next(secs(1)).expect("granted");
    assert_eq!((lease.payload, lease.target), (1, TargetId::new(1)));
    assert_eq!(core.wake_at(), Some(secs(30)), "it was not to start before");
}
