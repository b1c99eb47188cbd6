//! Bookings in virtual time: they are shared fairly between flows, and they are kept.

use headworks_core::{
    Booking, Bound, Config, Core, Flow, Job, Lease, Limits, Outcome, Reason, Refused, Ticket, Time,
    Verdict,
};
use std::collections::VecDeque;
use std::time::Duration;

const SERVICE: Duration = Duration::from_millis(400);
const SLOTS: u32 = 4;
const PLACES: usize = 20;

const HONEST: Flow = Flow(1);
const FLOODING: Flow = Flow(2);

/// How the slots are freed.
#[derive(Clone, Copy, Debug)]
enum Slots {
    /// One after the other.
    Evenly,
    /// All together.
    Together,
}

/// A core before a far side that takes the same time for every job.
struct World {
    core: Core<u64>,
    now: Time,
    running: VecDeque<(Time, Lease<u64>)>,
}

impl World {
    /// Serves a full queue of one flow until the speed is known.
    fn start(slots: Slots, flow: Flow) -> World {
        let config = Config {
            bound: Bound::PerClass(PLACES),
            limits: Limits {
                concurrent: Some(SLOTS),
                ..Limits::default()
            },
            ..Config::default()
        };
        let mut world = World {
            core: Core::new(config, Time::ZERO).unwrap(),
            now: Time::ZERO,
            running: VecDeque::new(),
        };
        for _ in 0..SLOTS {
            world.submit(flow, None).unwrap();
            if let Slots::Evenly = slots {
                world.now += SERVICE / SLOTS;
            }
        }
        for _ in 0..100 {
            world.fill(flow);
            world.run_until(world.now + SERVICE / 4);
        }
        world.fill(flow);
        world
    }

    #[expect(clippy::result_large_err, reason = "it is the core's own, handed on")]
    fn submit(&mut self, flow: Flow, booking: Option<Booking>) -> Result<Ticket, Refused<u64>> {
        let job = Job::new(0).flow(flow).booking(booking);
        let submitted = self.core.submit(self.now, job);
        self.grant();
        submitted
    }

    fn grant(&mut self) {
        while let Some(lease) = self.core.next(self.now) {
            self.running.push_back((self.now + SERVICE, lease));
        }
        while self.core.poll_event().is_some() {}
    }

    fn fill(&mut self, flow: Flow) {
        while self.core.waiting() < PLACES as u64 {
            self.submit(flow, None).expect("there is room");
        }
    }

    fn run_until(&mut self, time: Time) {
        while self.running.front().is_some_and(|(end, _)| *end <= time) {
            let (end, lease) = self.running.pop_front().expect("one runs");
            self.now = end;
            self.core.finish(end, lease, Outcome::DONE, Verdict::Fine);
            self.grant();
        }
        self.now = time;
    }

    /// Submits jobs of a flow until one is refused, and returns what that is told.
    fn refused(&mut self, flow: Flow) -> Refused<u64> {
        loop {
            if let Err(refused) = self.submit(flow, None) {
                assert_eq!(refused.reason, Reason::Full);
                return refused;
            }
        }
    }
}

#[test]
fn a_flow_that_floods_does_not_inflate_the_hints_of_others() {
    for slots in [Slots::Evenly, Slots::Together] {
        let hint = |refusals: usize| {
            let mut world = World::start(slots, FLOODING);
            for _ in 0..refusals {
                world.refused(FLOODING);
            }
            world.refused(HONEST).retry_after.expect("a hint")
        };
        let (alone, beside) = (hint(0), hint(2_000));
        assert!(
            beside <= alone * 2,
            "{slots:?}: {alone:?} alone, {beside:?} beside a flood"
        );
    }
}

#[test]
fn a_flow_that_floods_leaves_bookings_to_others() {
    let mut world = World::start(Slots::Evenly, FLOODING);
    for _ in 0..2_000 {
        world.refused(FLOODING);
    }
    assert!(world.refused(HONEST).booking.is_some());
}

#[test]
fn bookings_of_one_flow_do_not_refuse_a_flow_that_has_nothing() {
    let mut world = World::start(Slots::Evenly, FLOODING);
    let told = (0..10 * PLACES).map(|_| world.refused(FLOODING).retry_after);
    let last = told.max().flatten().expect("a hint");
    // Nobody comes back. At the time of the last booking, half of the places are kept. In the
    // others, every flow has one job, so that nothing can be shed.
    world.run_until(world.now + last);
    for flow in 10.. {
        if world.core.waiting() == PLACES as u64 / 2 {
            break;
        }
        world.submit(Flow(flow), None).expect("there is room");
    }
    let newcomer = world.submit(HONEST, None);
    assert!(newcomer.is_ok(), "{newcomer:?}");
}

/// Some clients are refused and return `late` after the time that they are told, while others try
/// every millisecond. Returns how many are refused again.
fn refused_again(
    clients: usize,
    slots: Slots,
    phase: Duration,
    late: fn(Duration) -> Duration,
) -> usize {
    let mut world = World::start(slots, HONEST);
    world.run_until(world.now + phase);
    let mut returns: Vec<(Time, Option<Booking>)> = (0..clients)
        .map(|_| {
            let refused = world.refused(HONEST);
            let told = refused.retry_after.expect("a hint");
            assert!(refused.booking.is_some());
            (world.now + told + late(told), refused.booking)
        })
        .collect();
    returns.sort_unstable();
    let mut again = 0;
    for (at, booking) in returns {
        while world.now + Duration::from_millis(1) < at {
            world.run_until(world.now + Duration::from_millis(1));
            // These book nothing.
            let job = Job::new(0).flow(HONEST);
            let _ = world.core.submit_without_shedding(world.now, job);
        }
        world.run_until(at);
        again += usize::from(world.submit(HONEST, booking).is_err());
    }
    again
}

/// The jitter of the driver, and seconds that are rounded up.
fn at_most_so_late(told: Duration) -> Duration {
    let jittered = told + told / 10;
    Duration::from_secs(jittered.as_secs() + 1) - told
}

#[test]
fn a_client_that_returns_at_its_time_is_admitted() {
    for (clients, slots) in [1, 5]
        .into_iter()
        .flat_map(|clients| [Slots::Evenly, Slots::Together].map(|slots| (clients, slots)))
    {
        for phase in (0..400).step_by(37).map(Duration::from_millis) {
            let on_time = refused_again(clients, slots, phase, |_| Duration::ZERO);
            let late = refused_again(clients, slots, phase, at_most_so_late);
            assert_eq!(
                (on_time, late),
                (0, 0),
                "of {clients}, {slots:?}, {phase:?} after a grant"
            );
        }
    }
}
