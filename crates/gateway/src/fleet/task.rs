//! The task that exchanges reports for allocations, four times per second.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headworks_core::shares::FleetLimits;
use headworks_fleet::{AllocatorView, BootInstant, Error, Report, Stamp, TickReply};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::allocator::Allocator;
use super::connection::Connection;
use super::facts::SharedFacts;
use super::names::Names;
use super::state::Fleet;
use super::status::{self, Observer};
use super::wire::ShareMessage;
use crate::active_config::ActiveConfig;
use crate::shared::Shared;

/// The interval of exchanges.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// The interval at which the whole fleet is looked at, for people.
const STATUS: Duration = Duration::from_secs(2);
/// How long a node that leaves tries to say so.
const LEAVE: Duration = Duration::from_secs(3);

/// Exchanges reports for allocations until shutdown, and leaves.
pub(super) async fn run(
    shared: Arc<Shared>,
    fleet: Arc<Fleet>,
    joined: Option<Connection>,
    stop: CancellationToken,
) {
    let joined = match joined {
        Some(joined) => joined,
        None => match stop.run_until_cancelled(reach(&fleet)).await {
            Some(joined) => joined,
            None => return,
        },
    };
    let active = shared.active.load_full();
    fleet.join(joined.exchange.node(), &shared.permits);
    let mut exchanger = Exchanger {
        names: Names::new(shared.seed, &active),
        active,
        connection: joined,
        allocator: Allocator::default(),
        limits: FleetLimits::from(&**shared.in_force.load()),
        generation: None,
        echoed: Stamp::default(),
        facts: SharedFacts::default(),
        observer: Observer::default(),
        look_at: Instant::now(),
        failing: false,
        shared,
        fleet,
    };
    exchanger.exchange_until(&stop).await;
    exchanger.leave().await;
}

/// Tries to join until it succeeds.
async fn reach(fleet: &Fleet) -> Connection {
    let mut last = String::new();
    loop {
        match Connection::open(fleet).await {
            Ok(Some(joined)) => {
                tracing::info!("reached the shared server of the fleet");
                return joined;
            }
            Ok(None) => std::future::pending().await,
            Err(error) => {
                let text = error.to_string();
                if last != text {
                    tracing::warn!(error = text, "cannot join the fleet yet; retrying");
                    last = text;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Stops granting when no exchange has succeeded for too long, with `on_loss = "closed"`. It is a
/// task of its own, so that a server which hangs cannot hold it up.
pub(super) async fn watch_deadline(
    shared: Arc<Shared>,
    fleet: Arc<Fleet>,
    stop: CancellationToken,
) {
    let watch = async {
        loop {
            let left = fleet.deadline().map(|at| at.since(fleet.clock.now()));
            // The runtime's clock stands still while the machine is suspended, so it is not
            // trusted for long.
            let nap = left.unwrap_or(TICK).clamp(Duration::from_millis(5), TICK);
            tokio::time::sleep(nap).await;
            fleet.expire(&shared.permits);
        }
    };
    let _: Option<()> = stop.run_until_cancelled(watch).await;
}

/// One side of the exchange.
struct Exchanger {
    shared: Arc<Shared>,
    fleet: Arc<Fleet>,
    connection: Connection,
    names: Names,
    /// The configuration whose names are known.
    active: Arc<ActiveConfig>,
    allocator: Allocator,
    /// The limits that the allocator divides, and their generation.
    limits: FleetLimits,
    generation: Option<u64>,
    /// The last allocation that was applied.
    echoed: Stamp,
    facts: SharedFacts,
    observer: Observer,
    look_at: Instant,
    failing: bool,
}

impl Exchanger {
    async fn exchange_until(&mut self, stop: &CancellationToken) {
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep_until(next) => {}
            }
            // Exchanges that took long are not made up for.
            next = (next + TICK).max(Instant::now());
            self.exchange().await;
        }
    }

    /// Gives the share back at once, and the slots as the running requests end. A server that is
    /// away does not hold up the shutdown.
    async fn leave(mut self) {
        self.fleet.leave(&self.shared.permits);
        loop {
            let began = Instant::now();
            let said = self.exchange().await;
            let running = self.shared.permits.inspect().running;
            if running == 0 {
                break;
            }
            if !said {
                tracing::debug!(
                    running,
                    "leaving the fleet; the shared server does not answer"
                );
            }
            sleep_until(began + TICK).await;
        }
        match tokio::time::timeout(LEAVE, self.connection.leave()).await {
            Ok(Ok(())) => tracing::info!("left the fleet"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot leave the fleet"),
            Err(_) => tracing::warn!("cannot leave the fleet: the shared server does not answer"),
        }
    }

    /// One exchange. Returns whether it succeeded.
    async fn exchange(&mut self) -> bool {
        self.follow_membership(false);
        self.follow_config();
        // A process that was stopped reports what it has now.
        self.fleet.expire(&self.shared.permits);
        let report = self.report();
        match self.connection.exchange.tick(report).await {
            Ok(reply) => {
                self.succeeded();
                self.received(reply).await;
                true
            }
            Err(Error::Fenced) => {
                self.fleet.fence(&self.shared.permits);
                self.allocator.reset();
                self.follow_membership(true);
                false
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    fn report(&self) -> Report {
        let observed = self.shared.permits.observe();
        let report = self.fleet.report(&observed);
        let mut message = self.names.name_report(&report);
        message.fingerprint = self.fleet.fingerprint();
        message.ready = self.fleet.is_ready();
        message.program = env!("CARGO_PKG_VERSION").into();
        (message.hints_since, message.hints) = self.fleet.outbox.hints(report.number);
        Report {
            echoed: self.echoed,
            body: message.encode().into(),
        }
    }

    /// Takes a new token after this node was removed, or the database replaced.
    fn follow_membership(&mut self, fenced: bool) {
        let Some(new) = self.connection.new_token(fenced) else {
            return;
        };
        tracing::info!(token = %new.token, lost_share = new.lost_share, "rejoined the fleet");
        self.allocator.reset();
        if new.lost_share {
            self.echoed = Stamp::default();
            self.fleet.join(new.token, &self.shared.permits);
        } else {
            self.fleet.rejoin(new.token, &self.shared.permits);
        }
    }

    /// Takes names and limits of a configuration that was reloaded.
    fn follow_config(&mut self) {
        let active = self.shared.active.load_full();
        if !Arc::ptr_eq(&active, &self.active) {
            self.names.learn(&active);
            self.active = active;
        }
        if let Some((generation, limits)) = self.fleet.limits_since(self.generation) {
            let settings = self.fleet.share_settings();
            self.allocator.set_limits(&limits, settings);
            (self.generation, self.limits) = (Some(generation), limits);
        }
    }

    fn succeeded(&mut self) {
        self.fleet.counts.exchanges.fetch_add(1, Ordering::Relaxed);
        if std::mem::take(&mut self.failing) {
            tracing::info!("exchanging limits with the fleet again");
        }
    }

    fn failed(&mut self, error: &Error) {
        self.fleet.counts.failures.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(%error, "cannot exchange limits with the fleet; retrying");
        }
    }

    async fn received(&mut self, reply: TickReply) {
        let allocation =
            reply.allocation.as_ref().and_then(|allocation| {
                match ShareMessage::decode(&allocation.body) {
                    Ok(message) => Some((allocation.stamp, self.names.number_allocation(&message))),
                    Err(error) => {
                        tracing::warn!(%error, "cannot read the allocation of this node");
                        None
                    }
                }
            });
        if let Some((_, allocation)) = &allocation {
            self.fleet.outbox.read(allocation.seen);
        }
        let applied = allocation.as_ref().map(|(_, allocation)| allocation);
        let in_force = self
            .fleet
            .receive(reply.sent, applied, &self.shared.permits);
        if let Some((stamp, allocation)) = &allocation {
            // One that was not applied is not echoed: the exchange would drop the grant that is
            // in force.
            if allocation.stamp == in_force {
                self.echoed = *stamp;
            }
        }
        if let Some(facts) = &reply.facts {
            self.facts.receive(facts, &self.shared, &self.fleet);
            for node in self.facts.forgotten() {
                self.allocator.forget(node);
            }
        }
        if reply.facts_lost {
            tracing::warn!("the shared server has lost what the fleet knew: telling it again");
            self.facts.republish(&self.fleet);
        }
        let allocates = reply.view.is_some();
        self.fleet
            .counts
            .allocates
            .store(allocates, Ordering::Relaxed);
        match reply.view {
            Some(view) => self.allocate(&view).await,
            None => self.allocator.reset(),
        }
        self.facts.share_suspensions(&self.shared, &self.fleet);
        self.send_facts().await;
        self.update_status(reply.allocator).await;
    }

    async fn allocate(&mut self, view: &AllocatorView) {
        let now = self.fleet.clock.at(BootInstant::now());
        let settings = self.fleet.share_settings();
        let steps = self
            .allocator
            .allocate(now, view, &mut self.names, &self.limits, settings);
        self.facts.decide(&self.shared, &self.fleet, &steps.hints);
        for node in steps.forget {
            tracing::warn!(%node, "a node has been silent for too long: its share goes to the others");
            if let Err(error) = self.connection.exchange.forget(node).await {
                tracing::warn!(%node, %error, "cannot remove a lost node");
                return;
            }
        }
        let Some(prepared) = steps.publish else {
            return;
        };
        let stamp = prepared.publication.stamp;
        match self
            .connection
            .exchange
            .publish(prepared.publication.clone())
            .await
        {
            Ok(()) => {
                self.fleet
                    .counts
                    .publications
                    .fetch_add(1, Ordering::Relaxed);
                self.allocator.published(prepared);
            }
            Err(error) => {
                tracing::debug!(%error, "an allocation was not published");
                self.allocator.not_published(stamp);
            }
        }
    }

    /// Removes nodes on an operator's word, and changes shared facts.
    async fn send_facts(&mut self) {
        for node in self.fleet.outbox.take_forgotten() {
            if let Err(error) = self.connection.exchange.forget(node).await {
                tracing::warn!(%node, %error, "cannot remove a node");
            }
        }
        let changes = self.fleet.outbox.take_changes();
        if changes.is_empty() {
            return;
        }
        if let Err(error) = self.connection.exchange.change_facts(changes.clone()).await {
            if error.is_temporary() {
                self.fleet.outbox.put_back(changes);
            } else {
                tracing::warn!(%error, "cannot share a fact with the fleet");
            }
        }
    }

    /// Looks at the whole fleet, for the console and the metrics.
    async fn update_status(&mut self, allocator: Option<headworks_fleet::NodeToken>) {
        if Instant::now() < self.look_at {
            return;
        }
        self.look_at = Instant::now() + STATUS;
        match self.connection.exchange.status().await {
            Ok(mut found) => {
                found.allocator = found.allocator.or(allocator);
                let now = self.fleet.clock.now();
                let own = self.connection.exchange.node();
                let fleet = status::describe(&found, Some(own), |node, number| {
                    self.observer.silence(now, node, number)
                });
                self.observer.keep(&found);
                fleet.warn_about_mismatch(&mut self.observer);
                *self.fleet.status.lock() = Some(fleet);
            }
            Err(error) => tracing::debug!(%error, "cannot look at the fleet"),
        }
    }
}
