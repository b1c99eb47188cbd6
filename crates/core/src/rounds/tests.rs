use super::*;

fn secs(s: u64) -> Time {
    Time::from_secs(s)
}

fn go_on<N: Clone>(rounds: &mut Rounds<N>, now: Time) -> Advanced {
    let leave = Leave::alone(rounds.position());
    rounds.advance(now, leave)
}

fn paged(window: usize) -> Rounds<u64> {
    Rounds::new(RoundsConfig {
        window,
        ..RoundsConfig::default()
    })
}

#[test]
fn not_seeded_is_waiting_and_never_complete() {
    let mut r: Rounds<u64> = Rounds::default();
    assert_eq!(r.next(secs(1)), None);
    assert_eq!(go_on(&mut r, secs(2)), Advanced::NotYet);
    assert_eq!(r.state(), State::Waiting);
    assert_eq!(r.load(0, [1]), Loaded::Stale);
    assert!(!r.position().has_closed(0));
}

#[test]
fn seeded_with_nothing_is_complete_at_once() {
    let mut r: Rounds<u64> = Rounds::default();
    r.seed(secs(0), Discovered::none()).unwrap();
    assert!(r.is_completed() && r.position().has_closed(0));
    assert_eq!(
        r.seed(secs(0), Discovered::none()),
        Err(RoundsError::AlreadySeeded)
    );
}

#[test]
fn a_round_is_entered_only_when_the_last_has_closed_and_with_leave_for_it() {
    let mut r = Rounds::default();
    r.seed(secs(0), vec![1, 2].into()).unwrap();
    let early = Leave::alone(r.position());
    let a = r.next(secs(0)).unwrap();
    let b = r.next(secs(0)).unwrap();
    assert_eq!(
        r.finish(secs(1), a.id, vec![3].into()),
        Settled::Done { closed: false }
    );
    assert_eq!(r.next(secs(1)), None, "round 1 is not leased yet");
    assert_eq!(go_on(&mut r, secs(1)), Advanced::NotYet);
    assert_eq!(
        r.finish(secs(2), b.id, Discovered::none()),
        Settled::Done { closed: true }
    );
    assert_eq!(r.next(secs(2)), None);
    assert_eq!(r.advance(secs(2), early), Advanced::Entered(1));
    assert_eq!(r.advance(secs(2), early), Advanced::NotYet);
    let c = r.next(secs(2)).unwrap();
    assert_eq!((c.node, c.round), (3, 1));
    assert_eq!(
        r.finish(secs(3), c.id, Discovered::none()),
        Settled::Done { closed: true }
    );
    assert!(r.is_completed());
    let ended: Vec<u64> = r.all_progress().map(|p| p.ended).collect();
    assert_eq!(ended, [2, 1]);
}

#[test]
fn leave_for_another_round_is_stale() {
    let mut r = Rounds::default();
    r.seed(secs(0), vec![1].into()).unwrap();
    let old = Leave::alone(r.position());
    for _ in 0..2 {
        let lease = r.next(secs(0)).unwrap();
        let _ = r.finish(secs(0), lease.id, vec![1].into());
        if r.position().round == 0 {
            assert_eq!(r.advance(secs(0), old), Advanced::Entered(1));
        }
    }
    assert_eq!(r.advance(secs(0), old), Advanced::Stale);
}

#[test]
fn a_paged_round_closes_only_when_all_declared_have_ended() {
    let mut r = paged(4);
    r.seed(secs(0), Discovered::Count(10)).unwrap();
    let mut store = 0..10u64;
    let mut ended = 0;
    while !r.is_completed() {
        if let Some(want) = r.wants() {
            assert!(want.room <= 4);
            let mut page = store.by_ref().take(want.room);
            assert_eq!(r.load(want.round, &mut page), Loaded::Taken(want.room));
        }
        let lease = r.next(secs(0)).unwrap();
        ended += 1;
        let closed = ended == 10;
        assert_eq!(
            r.finish(secs(0), lease.id, Discovered::none()),
            Settled::Done { closed }
        );
    }
    assert_eq!(r.wants(), None);
}

#[test]
fn load_takes_no_more_than_there_is_room_for() {
    let mut r = paged(3);
    r.seed(secs(0), Discovered::Count(5)).unwrap();
    let mut store = 0..9u64;
    assert_eq!(r.load(1, &mut store), Loaded::Stale);
    assert_eq!(r.load(0, &mut store), Loaded::Taken(3));
    assert_eq!(r.load(0, &mut store), Loaded::Taken(0));
    while let Some(lease) = r.next(secs(0)) {
        let _ = r.finish(secs(0), lease.id, Discovered::none());
    }
    assert_eq!(r.load(0, &mut store), Loaded::Taken(2));
    assert_eq!(store, 5..9, "nothing was taken and dropped");
}

#[test]
fn a_stale_lease_settles_nothing() {
    let mut r = Rounds::default();
    r.seed(secs(0), vec![1].into()).unwrap();
    let old = r.next(secs(0)).unwrap();
    assert_eq!(r.reclaim(secs(1), old.id), Settled::Delayed(secs(1)));
    let new = r.next(secs(1)).unwrap();
    assert_eq!((new.node, new.attempt), (1, 2));
    assert_eq!(r.finish(secs(2), old.id, vec![7].into()), Settled::Stale);
    assert_eq!(r.fail(secs(2), old.id), Settled::Stale);
    assert_eq!(r.retry(secs(2), old.id, secs(3)), Settled::Stale);
    assert_eq!(
        r.finish(secs(2), new.id, Discovered::none()),
        Settled::Done { closed: true }
    );
    assert_eq!(
        r.finish(secs(2), new.id, Discovered::none()),
        Settled::Stale
    );
    assert!(r.is_completed());
}

#[test]
fn a_retry_wakes_when_due_and_goes_first() {
    let mut r = Rounds::default();
    r.seed(secs(0), vec![1, 2].into()).unwrap();
    let a = r.next(secs(0)).unwrap();
    assert_eq!(r.retry(secs(0), a.id, secs(5)), Settled::Delayed(secs(5)));
    assert_eq!(r.wake_at(), None, "node 2 can be leased already");
    assert_eq!(r.progress().delayed, 1);
    r.tick(secs(5));
    let again = r.next(secs(5)).unwrap();
    assert_eq!((again.node, again.attempt), (1, 2));
    assert_eq!(
        r.retry(secs(5), again.id, secs(9)),
        Settled::Delayed(secs(9))
    );
    r.next(secs(5)).unwrap();
    assert_eq!(r.wake_at(), Some(secs(9)));
    r.tick(secs(9));
    assert_eq!(r.wake_at(), None, "a driver without a free worker sleeps");
}

#[test]
fn a_node_fails_when_its_own_budget_is_spent() {
    let mut r = Rounds::default();
    r.seed(secs(0), vec![1, 2].into()).unwrap();
    let a = r.next(secs(100)).unwrap();
    assert_eq!(
        r.retry(secs(100), a.id, secs(160)),
        Settled::Delayed(secs(160))
    );
    let b = r.next(secs(150)).unwrap();
    assert_eq!(
        r.retry(secs(150), b.id, secs(200)),
        Settled::Delayed(secs(200)),
        "a late first failure has its full budget"
    );
    let a = r.next(secs(160)).unwrap();
    assert_eq!(
        r.retry(secs(160), a.id, secs(161)),
        Settled::Failed { closed: false }
    );
    let b = r.next(secs(200)).unwrap();
    assert_eq!(
        r.retry(secs(200), b.id, secs(211)),
        Settled::Failed { closed: true },
        "a time beyond the budget is not waited for"
    );
    assert!(r.is_completed());
    assert_eq!(r.progress().failed, 2);
}

#[test]
fn time_spent_paused_does_not_spend_the_budget() {
    let mut r = Rounds::default();
    r.seed(secs(0), vec![1].into()).unwrap();
    let a = r.next(secs(0)).unwrap();
    assert_eq!(r.retry(secs(0), a.id, secs(10)), Settled::Delayed(secs(10)));
    r.pause(secs(5));
    assert_eq!(r.wake_at(), None);
    assert_eq!(r.next(secs(20)), None);
    r.resume(secs(1000));
    let a = r.next(secs(1000)).unwrap();
    assert_eq!(
        r.retry(secs(1001), a.id, secs(1055)),
        Settled::Delayed(secs(1055))
    );
}

#[test]
fn paused_work_settles_and_may_complete() {
    let mut r = Rounds::default();
    r.seed(secs(0), vec![1].into()).unwrap();
    let a = r.next(secs(0)).unwrap();
    r.pause(secs(0));
    let _ = r.finish(secs(1), a.id, vec![2].into());
    assert_eq!(r.state(), State::Paused);
    assert_eq!(go_on(&mut r, secs(1)), Advanced::NotYet);
    r.resume(secs(2));
    assert_eq!(go_on(&mut r, secs(2)), Advanced::Entered(1));
    let b = r.next(secs(2)).unwrap();
    r.pause(secs(2));
    let _ = r.finish(secs(2), b.id, Discovered::none());
    assert_eq!(r.state(), State::Completed);
}

#[test]
fn a_pass_begins_at_the_shallowest_depth_and_reaches_deeper_pending_nodes() {
    let mut r: Rounds<u64> = Rounds::default();
    r.start_pass(secs(0), 2, Discovered::Count(1)).unwrap();
    r.declare(secs(0), 4, vec![44].into()).unwrap();
    assert_eq!(r.load(2, [22]), Loaded::Taken(1));
    let a = r.next(secs(0)).unwrap();
    let _ = r.finish(secs(0), a.id, Discovered::none());
    assert_eq!(r.state(), State::Running, "depth 4 is still to come");
    assert_eq!(go_on(&mut r, secs(0)), Advanced::Entered(3));
    assert!(r.position().closed, "round 3 has no nodes");
    assert_eq!(go_on(&mut r, secs(0)), Advanced::Entered(4));
    let b = r.next(secs(0)).unwrap();
    assert_eq!((b.node, b.round), (44, 4));
    let _ = r.fail(secs(0), b.id);
    assert!(r.is_completed());
    assert_eq!(
        r.declare(secs(0), 5, vec![1].into()),
        Err(RoundsError::NoPass)
    );
    r.start_pass(secs(1), 4, vec![44].into()).unwrap();
    assert_eq!(r.pass(), 2);
    assert_eq!(
        r.start_pass(secs(1), 4, vec![44].into()),
        Err(RoundsError::PassRunning { round: 4 })
    );
}

#[test]
fn after_a_stop_nothing_is_leased_and_a_new_pass_shuts_out_old_leases() {
    let mut r = Rounds::default();
    r.seed(secs(0), vec![1, 2, 3].into()).unwrap();
    let a = r.next(secs(0)).unwrap();
    let b = r.next(secs(0)).unwrap();
    r.stop(secs(0));
    assert_eq!(r.next(secs(0)), None);
    assert_eq!(
        r.finish(secs(0), a.id, Discovered::none()),
        Settled::Done { closed: false }
    );
    r.start_pass(secs(1), 0, vec![2, 3].into()).unwrap();
    assert_eq!(r.finish(secs(1), b.id, Discovered::none()), Settled::Stale);
    assert_eq!(r.progress().declared, 2);
}

#[test]
fn withdrawn_nodes_are_not_waited_for() {
    let mut r: Rounds<u64> = paged(2);
    r.seed(secs(0), Discovered::Count(5)).unwrap();
    assert_eq!(r.load(0, [1, 2]), Loaded::Taken(2));
    assert!(matches!(
        r.withdraw(secs(0), 0, 4),
        Err(RoundsError::NotOutside { outside: 3, .. })
    ));
    let a = r.next(secs(0)).unwrap();
    let b = r.next(secs(0)).unwrap();
    let _ = r.finish(secs(0), a.id, Discovered::Count(2));
    let _ = r.finish(secs(0), b.id, Discovered::none());
    r.withdraw(secs(0), 0, 3).unwrap();
    assert!(r.position().closed && !r.is_completed());
    r.withdraw(secs(0), 1, 2).unwrap();
    assert!(r.is_completed());
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut r = Rounds::default();
    r.seed(secs(50), vec![1].into()).unwrap();
    let a = r.next(secs(10)).unwrap();
    assert_eq!(
        r.retry(secs(10), a.id, secs(20)),
        Settled::Delayed(secs(50))
    );
    assert!(r.next(secs(0)).is_some());
}

#[test]
fn delayed_nodes_do_not_keep_room_from_being_used() {
    let mut r = paged(8);
    r.seed(secs(0), Discovered::Count(20)).unwrap();
    assert_eq!(r.load(0, 0..6), Loaded::Taken(6));
    assert_eq!(
        r.wants(),
        None,
        "more than half in use, and something is ready"
    );
    while let Some(lease) = r.next(secs(0)) {
        let _ = r.retry(secs(0), lease.id, secs(30));
    }
    let want = r.wants().unwrap();
    assert_eq!((want.round, want.room), (0, 2));
}
