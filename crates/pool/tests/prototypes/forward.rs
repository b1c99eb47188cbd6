//! A tracker's forward plane: announces go on to other trackers, which are slow, refuse, or ask for patience.
//!
//! `stopped` ends what is under way for a peer. An announce that has not begun is taken back, and then that forwarder
//! is told nothing, for it never heard of the peer. One that runs goes on to its end, and `stopped` follows it.

use headworks_core::{
    Bound, Class, ClassConfig, Config, Disabled, Job, Key, KeySeed, OnSuspend, Policy, Reason,
    TargetConfig, TargetId, TargetState, Unservable,
};
use headworks_pool::{Cancel, Handler, Health, How, Notice, Pool, Report, Run, Workers};
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Announce,
    Completed,
    Stopped,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Peers,
    RetryIn(Duration),
    Busy,
    Timeout,
    NotFound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forward {
    hash: u32,
    forwarder: TargetId,
    peer: Ipv4Addr,
    event: Event,
    /// The forwarder may have heard of the peer. Kept in the payload, it survives retries.
    told: bool,
}

/// A forwarder was called, at that time.
type Call = (u64, u32, u32, Event);

#[derive(Default)]
struct Script {
    answers: Mutex<HashMap<TargetId, VecDeque<Answer>>>,
    calls: Mutex<Vec<Call>>,
}

struct Forwarders {
    script: Arc<Script>,
    start: Instant,
    notices: mpsc::UnboundedSender<Notice<Forward>>,
}

impl Forwarders {
    async fn call(&self, forward: &Forward, event: Event) -> Answer {
        let at = self.start.elapsed().as_secs();
        let peer = forward.peer.to_bits();
        self.script
            .calls
            .lock()
            .unwrap()
            .push((at, forward.hash, peer, event));
        sleep(Duration::from_millis(100)).await;
        let mut answers = self.script.answers.lock().unwrap();
        let next = answers
            .get_mut(&forward.forwarder)
            .and_then(VecDeque::pop_front);
        next.unwrap_or(Answer::Peers)
    }
}

impl Handler<Forward> for Forwarders {
    async fn run(&self, run: &mut Run<'_, Forward>) -> Report {
        let stopped = run.cancellation();
        if stopped.is_cancelled() && !run.payload.told {
            return Report::failed(); // granted, but taken back before it began
        }
        run.payload.told = true;
        let answer = self.call(&run.payload, run.payload.event).await;
        if stopped.is_cancelled() && run.payload.event != Event::Stopped {
            self.call(&run.payload, Event::Stopped).await;
            return Report::done();
        }
        match answer {
            Answer::Peers => Report::done(),
            // Longer than that counts as done until then.
            Answer::RetryIn(wait) if wait < Duration::from_secs(600) => Report::retry_in(wait),
            Answer::RetryIn(_) => Report::done(),
            Answer::Busy => {
                let wait = Duration::from_secs(300);
                Report::retry_in(wait).target(Health::Overloaded(wait))
            }
            Answer::Timeout => Report::retry(),
            Answer::NotFound => Report::failed().target(Health::Gone),
        }
    }

    fn notice(&self, notice: Notice<Forward>) {
        let _ = self.notices.send(notice);
    }
}

struct Plane {
    pool: Pool<Forward>,
    seed: KeySeed,
    script: Arc<Script>,
    notices: mpsc::UnboundedReceiver<Notice<Forward>>,
}

impl Plane {
    fn new(places: usize, forwarders: usize) -> Plane {
        let urgent = ClassConfig {
            displaces: Some(Class(2)),
            ..ClassConfig::weight(1)
        };
        let config = Config {
            policy: Policy::Strict,
            classes: vec![urgent, ClassConfig::weight(1), ClassConfig::weight(1)],
            bound: Bound::Shared(places),
            // More than there are places: who finds a target's own places taken displaces nobody.
            max_waiting: Some(places + 1),
            targets: vec![TargetConfig::default(); forwarders],
            on_suspend: OnSuspend::Delay,
            ..Config::default()
        };
        let (sender, notices) = mpsc::unbounded_channel();
        let script = Arc::new(Script::default());
        let forwarders = Forwarders {
            script: script.clone(),
            start: Instant::now(),
            notices: sender,
        };
        Plane {
            pool: Pool::new(config, Workers::new(1, 1), forwarders).expect("a good configuration"),
            seed: KeySeed::new(1, 2),
            script,
            notices,
        }
    }

    fn key(&self, forward: &Forward) -> Key {
        let Forward {
            hash,
            forwarder,
            peer,
            event,
            ..
        } = forward;
        self.seed.key(&(hash, forwarder, peer, event))
    }

    fn forward(
        &self,
        hash: u32,
        forwarder: u32,
        peer: u32,
        event: Event,
        first: bool,
    ) -> Result<(), Reason> {
        let forward = Forward {
            hash,
            forwarder: TargetId::new(forwarder),
            peer: Ipv4Addr::from_bits(peer),
            event,
            told: false,
        };
        if event == Event::Stopped {
            let announce = Forward {
                event: Event::Announce,
                ..forward
            };
            if let Some(ticket) = self.pool.find(self.key(&announce))
                && self.pool.cancel(ticket) != Cancel::Ended
            {
                return Ok(()); // the announce's own end tells the rest
            }
        }
        let class = match (event, first) {
            (Event::Stopped | Event::Completed, _) => Class(0),
            (Event::Announce, true) => Class(1),
            (Event::Announce, false) => Class(2),
        };
        let mut job = Job::new(forward)
            .class(class)
            .flow(self.seed.flow(&forward.peer))
            .targets(forward.forwarder)
            .key(self.key(&forward));
        if event == Event::Announce {
            // Of announces that wait for a time one is enough for all peers; an event must not be merged into one.
            job = job.delay_key(self.seed.key(&(hash, forwarder)));
        }
        self.pool
            .submit(job)
            .map(|_| ())
            .map_err(|refused| refused.reason)
    }

    fn answer(&self, forwarder: u32, answers: &[Answer]) {
        let answers = answers.iter().copied().collect();
        self.script
            .answers
            .lock()
            .unwrap()
            .insert(TargetId::new(forwarder), answers);
    }

    fn calls(&self) -> Vec<Call> {
        self.script.calls.lock().unwrap().clone()
    }

    fn ended(&mut self) -> Vec<(u32, Event, How)> {
        let ended = std::iter::from_fn(|| self.notices.try_recv().ok());
        let ended = ended.filter_map(|notice| match notice {
            Notice::Ended { payload, how, .. } => {
                Some((payload.peer.to_bits(), payload.event, how))
            }
            _ => None,
        });
        ended.collect()
    }
}

use Event::{Announce, Completed, Stopped};

#[tokio::test(start_paused = true)]
async fn events_go_first_and_take_the_place_of_a_reannounce() {
    let mut plane = Plane::new(3, 1);
    plane.pool.pause();
    assert_eq!(plane.forward(7, 0, 1, Announce, false), Ok(()));
    assert_eq!(
        plane.forward(7, 0, 1, Announce, false),
        Err(Reason::Duplicate)
    );
    assert_eq!(plane.forward(8, 0, 1, Announce, false), Ok(()));
    assert_eq!(plane.forward(9, 0, 2, Announce, true), Ok(()));
    assert_eq!(plane.forward(6, 0, 1, Completed, false), Ok(()));
    let ended = plane.ended();
    let [(1, Announce, How::Shed { .. })] = ended[..] else {
        panic!("the newest re-announce is shed, not {ended:?}")
    };
    plane.pool.resume();
    sleep(Duration::from_secs(1)).await;
    let order: Vec<_> = plane.calls().iter().map(|call| call.1).collect();
    assert_eq!(order, [6, 9, 7]);
}

#[tokio::test(start_paused = true)]
async fn retry_in_is_obeyed_and_of_two_for_a_hash_one_is_enough() {
    let mut plane = Plane::new(100, 1);
    let two = Answer::RetryIn(Duration::from_secs(120));
    plane.answer(
        0,
        &[
            two,
            two,
            Answer::Timeout,
            Answer::RetryIn(Duration::from_secs(3600)),
        ],
    );
    plane
        .forward(7, 0, 1, Announce, true)
        .expect("there is room");
    plane
        .forward(7, 0, 2, Announce, false)
        .expect("there is room");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(plane.ended(), [(2, Announce, How::Merged)]);
    sleep(Duration::from_secs(3600)).await;
    let times: Vec<_> = plane.calls().iter().map(|call| call.0).collect();
    assert_eq!(
        times,
        [0, 0, 120, 120],
        "then a timeout, a short pause, and done"
    );
    assert!(plane.ended().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_forwarder_that_is_busy_is_left_alone_for_five_minutes() {
    let mut plane = Plane::new(100, 2);
    plane.answer(0, &[Answer::Busy]);
    for hash in 1..=3 {
        plane
            .forward(hash, 0, hash, Announce, true)
            .expect("there is room");
    }
    plane
        .forward(9, 1, 9, Announce, true)
        .expect("there is room");
    sleep(Duration::from_secs(299)).await;
    let early: Vec<_> = plane.calls().iter().map(|call| call.1).collect();
    assert_eq!(early, [1, 9], "the other one goes on");
    sleep(Duration::from_secs(10)).await;
    let late: Vec<_> = plane.calls()[2..]
        .iter()
        .map(|call| (call.0, call.1))
        .collect();
    assert_eq!(late, [(300, 2), (300, 3), (300, 1)]);
    assert!(plane.ended().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_is_delayed_but_never_merged_away() {
    let mut plane = Plane::new(100, 1);
    let later = Answer::RetryIn(Duration::from_secs(400));
    plane.answer(0, &[later, Answer::Busy]);
    let announce = |hash, peer| plane.forward(hash, 0, peer, Announce, true);
    announce(7, 1).expect("there is room");
    sleep(Duration::from_secs(1)).await;
    announce(8, 2).expect("there is room");
    announce(7, 3).expect("there is room");
    let completed = plane.forward(7, 0, 4, Completed, false);
    completed.expect("there is room");
    sleep(Duration::from_secs(500)).await;
    assert_eq!(plane.ended(), [(3, Announce, How::Merged)]);
    let late: Vec<_> = plane.calls()[2..].iter().map(|call| call.2).collect();
    assert_eq!(late, [4, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_forwarder_that_is_gone_ends_its_jobs() {
    let mut plane = Plane::new(100, 2);
    plane.answer(0, &[Answer::NotFound]);
    plane
        .forward(1, 0, 1, Announce, true)
        .expect("there is room");
    plane
        .forward(2, 0, 2, Announce, true)
        .expect("there is room");
    sleep(Duration::from_secs(1)).await;
    let gone = How::Unservable(Unservable::NoTarget);
    assert_eq!(
        plane.ended(),
        [(1, Announce, How::Failed), (2, Announce, gone)]
    );
    assert_eq!(
        plane.forward(3, 0, 3, Announce, true),
        Err(Reason::NoTarget)
    );
    let reason = Disabled::Gone;
    assert_eq!(
        plane.pool.inspect().targets[0].state,
        TargetState::Disabled { reason }
    );
    assert_eq!(plane.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn stopped_takes_back_what_waits_and_follows_what_runs() {
    let mut plane = Plane::new(100, 2);
    plane
        .forward(1, 0, 1, Announce, true)
        .expect("there is room");
    plane
        .forward(1, 1, 1, Announce, true)
        .expect("there is room");
    sleep(Duration::from_millis(50)).await; // the first runs, the second waits for the worker
    for forwarder in 0..2 {
        plane
            .forward(1, forwarder, 1, Stopped, false)
            .expect("there is room");
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(plane.ended(), [(1, Announce, How::Cancelled)]);
    assert_eq!(plane.calls(), [(0, 1, 1, Announce), (0, 1, 1, Stopped)]);
    plane
        .forward(1, 0, 1, Stopped, false)
        .expect("there is room");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        plane.calls().len(),
        3,
        "nothing is under way: it goes as a job of its own"
    );
}
