//! One simulated node: a real core, its share, and its calls.

use headworks_core::shares::{
    Allocation, FleetLimits, NodeId, NodeShare, Observed, OnLoss, Shares,
};
use headworks_core::{
    Config, Core, Event, Job, Lease, LocalLimits, Outcome, Reason, Time, Verdict,
};
use std::time::Duration;

/// The payload of a fleet's jobs: how long the call takes, and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// How long the upstream takes for it.
    pub takes: Duration,
    /// The number of its load.
    pub load: u32,
    /// Its number in its load.
    pub number: u64,
}

impl Call {
    /// A call that takes so long, and belongs to nobody.
    #[must_use]
    pub fn taking(takes: Duration) -> Call {
        Call {
            takes,
            load: 0,
            number: 0,
        }
    }
}

/// A job that has ended on a node.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The call.
    pub call: Call,
    /// The class.
    pub class: headworks_core::Class,
    /// The flow.
    pub flow: headworks_core::Flow,
    /// Its end.
    pub how: How,
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The upstream answered.
    Done,
    /// Its time was over before it started.
    Expired,
    /// It gave its place to another.
    Shed,
    /// Its node ended.
    Lost,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It serves.
    Up,
    /// It grants nothing more, and is gone when its calls have ended.
    Leaving,
    /// Its process has ended.
    Dead,
}

pub(super) struct Node {
    pub(super) state: NodeState,
    pub(super) core: Core<Call>,
    pub(super) share: NodeShare,
    /// The allocator that runs on this node.
    pub(super) shares: Option<Shares>,
    pub(super) calls: Vec<(Time, Lease<Call>)>,
    /// Calls of a process that has ended: the upstream works on.
    pub(super) orphans: Vec<(Time, Lease<Call>)>,
    pub(super) ended: Vec<Ended>,
    pub(super) connected: bool,
    pub(super) next_exchange: Time,
    /// This node's clock is ahead of the others by this.
    offset: Duration,
}

impl Node {
    pub(super) fn new(
        id: NodeId,
        config: &Config,
        limits: &FleetLimits,
        on_loss: OnLoss,
        offset: Duration,
        now: Time,
    ) -> Self {
        let mut core = Core::new(config.clone(), now + offset).expect("a scenario is checked");
        let share = NodeShare::new(id, limits.clone(), on_loss);
        core.set_limits(now + offset, share.local_limits());
        Node {
            state: NodeState::Up,
            core,
            share,
            shares: None,
            calls: Vec::new(),
            orphans: Vec::new(),
            ended: Vec::new(),
            connected: true,
            next_exchange: now,
            offset,
        }
    }

    /// The time on this node's clock.
    pub(super) fn clock(&self, now: Time) -> Time {
        now + self.offset
    }

    /// Submits a job. Without a reason, the node does not serve.
    pub(super) fn submit(&mut self, now: Time, job: Job<Call>) -> Result<(), Option<Reason>> {
        if self.state != NodeState::Up {
            return Err(None);
        }
        let clock = self.clock(now);
        let submitted = self.core.submit(clock, job);
        submitted.map(drop).map_err(|refused| Some(refused.reason))
    }

    fn note(&mut self, job: &Job<Call>, how: How) {
        self.ended.push(Ended {
            call: job.payload,
            class: job.class,
            flow: job.flow,
            how,
        });
    }

    fn note_events(&mut self) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Expired { job, .. } => self.note(&job, How::Expired),
                Event::Shed { job, .. } => self.note(&job, How::Shed),
                _ => {}
            }
        }
    }

    /// Ends the calls whose time has come.
    pub(super) fn finish_calls(&mut self, now: Time) {
        let clock = self.clock(now);
        self.orphans.retain(|(until, _)| *until > now);
        let (ended, running) = std::mem::take(&mut self.calls)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        self.calls = running;
        for (_, lease) in ended {
            self.ended.push(Ended::of(&lease, How::Done));
            self.core.finish(clock, lease, Outcome::DONE, Verdict::Fine);
        }
    }

    /// Starts every call that may start. Returns them.
    pub(super) fn grant(&mut self, now: Time) -> Vec<Started> {
        let clock = self.clock(now);
        let mut started = Vec::new();
        while let Some(lease) = self.core.next(clock) {
            started.push(Started::of(&lease));
            self.calls.push((now + lease.payload.takes, lease));
        }
        self.note_events();
        started
    }

    /// Stops when it has been cut off for too long, and aborts its calls if it is to.
    pub(super) fn expire(&mut self, now: Time, aborts: bool) {
        let clock = self.clock(now);
        if self.share.expire(clock) {
            self.core.set_limits(clock, self.share.local_limits());
            if aborts {
                for (_, lease) in std::mem::take(&mut self.calls) {
                    self.core
                        .finish(clock, lease, Outcome::Dropped, Verdict::Unknown);
                }
            }
        }
    }

    pub(super) fn report(&mut self, now: Time) -> headworks_core::shares::Report {
        let clock = self.clock(now);
        let observed = Observed::of(&self.core);
        match self.state {
            NodeState::Leaving => self.share.leave(&observed),
            _ => self.share.report(clock, &observed),
        }
    }

    pub(super) fn receive(&mut self, now: Time, sent: Time, allocation: Option<&Allocation>) {
        let (clock, sent) = (self.clock(now), self.clock(sent));
        if self.share.receive(clock, sent, allocation) && self.state == NodeState::Up {
            self.core.set_limits(clock, self.share.local_limits());
        }
    }

    /// Begins to leave: nothing is granted any more.
    pub(super) fn leave(&mut self, now: Time) {
        self.state = NodeState::Leaving;
        let clock = self.clock(now);
        self.core.drain(clock);
        while self.core.poll_event().is_some() {}
    }

    pub(super) fn kill(&mut self, aborts: bool) {
        self.state = NodeState::Dead;
        self.shares = None;
        let calls = std::mem::take(&mut self.calls);
        let lost = calls.iter().map(|(_, lease)| Ended::of(lease, How::Lost));
        self.ended.extend(lost);
        if !aborts {
            self.orphans.extend(calls);
        }
    }

    /// Calls at the upstream.
    pub(super) fn at_upstream(&self) -> impl Iterator<Item = &Lease<Call>> {
        let calls = self.calls.iter().chain(&self.orphans);
        calls.map(|(_, lease)| lease)
    }

    /// The limits that its core enforces.
    pub(super) fn in_force(&self) -> &LocalLimits {
        self.core.local_limits()
    }
}

impl Ended {
    fn of(lease: &Lease<Call>, how: How) -> Ended {
        Ended {
            call: lease.payload,
            class: lease.class,
            flow: lease.flow,
            how,
        }
    }
}

/// A call that a node started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// The node's place.
    pub node: usize,
    /// The class.
    pub class: headworks_core::Class,
    /// The flow.
    pub flow: headworks_core::Flow,
    /// The target.
    pub target: headworks_core::TargetId,
    /// The cost.
    pub cost: u64,
    /// How long it waited.
    pub waited: Duration,
}

impl Started {
    fn of(lease: &Lease<Call>) -> Self {
        Started {
            node: 0,
            class: lease.class,
            flow: lease.flow,
            target: lease.target,
            cost: lease.cost.0,
            waited: lease.waited,
        }
    }
}
