//! The limit exchange in Valkey or Redis.
//!
//! One hash has everything, and one Lua script per tick reads and changes it. The server is as
//! durable as it is configured to be; whatever it loses, it loses whole, and the next allocator
//! recognises that. Keys have a time to live that only tidies up after a fleet that is gone.

mod decode;
mod link;
mod scripts;

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::LimitExchange;
use super::facts::{FactChange, check, milliseconds};
use super::lease::{LEASE, Lease, LeaseStep, Watch};
use super::types::{AllocatorView, ExchangeStatus, Publication, Report, TickReply, limit_body};
use crate::clock::BootInstant;
use crate::error::{Error, Result};
use crate::node::NodeToken;
use crate::secrets::Secrets;
use crate::url::ValkeyUrl;
use link::ValkeyLink;
use scripts::Scripts;

/// A fleet that is gone for this long is tidied up.
const SECONDS_TO_LIVE: u32 = 7 * 24 * 3600;

/// The limit exchange of a Valkey or Redis server. It has a connection of its own.
#[derive(Debug)]
pub struct ValkeyExchange {
    link: ValkeyLink,
    scripts: Scripts,
    key: String,
    name: String,
    node: NodeToken,
    replaced: Vec<NodeToken>,
    watch: Watch,
    /// A lease that stood still for long enough to be taken over.
    stale: Option<Lease>,
    facts_seen: Option<String>,
}

impl ValkeyExchange {
    /// Opens the exchange for the node with this token. `name` is shown to people.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(
        url: ValkeyUrl,
        secrets: &Secrets,
        name: impl Into<String>,
        node: NodeToken,
    ) -> Result<ValkeyExchange> {
        // The tag in braces keeps all keys of a fleet on one server of a cluster.
        let key = format!("{{{}}}:exchange", url.prefix());
        Ok(ValkeyExchange {
            link: ValkeyLink::new(url, secrets)?,
            scripts: Scripts::new(),
            key,
            name: name.into(),
            node,
            replaced: Vec::new(),
            watch: Watch::new(LEASE),
            stale: None,
            facts_seen: None,
        })
    }

    /// Lets candidates wait for another time than 3 s. All nodes of a fleet must use the same.
    #[must_use]
    pub fn lease_time(mut self, time: Duration) -> ValkeyExchange {
        self.watch = Watch::new(time);
        self
    }

    /// Sets the time for a connection and for an answer. Default 3 s.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> ValkeyExchange {
        self.link.timeout = time;
        self
    }

    async fn tick(&mut self, report: Report) -> Result<TickReply> {
        let echoed = report.echoed.check()?;
        limit_body("a report", &report.body)?;
        let sent = BootInstant::now();
        let renewal = milliseconds(self.watch.elapsed(LeaseStep::Renew, sent));
        let takeover = milliseconds(self.watch.elapsed(LeaseStep::TakeOver, sent));
        let (holder, beat) = match self.stale {
            Some(Lease {
                holder: Some(holder),
                beat,
            }) => (holder.to_string(), beat.to_string()),
            _ => (String::new(), String::new()),
        };
        let known = self.watch.known_epoch().map(|epoch| epoch.to_string());
        let mut call = self.scripts.tick.key(&self.key);
        call.arg(self.node.to_string())
            .arg(&self.name)
            .arg(echoed.epoch)
            .arg(echoed.number)
            .arg(report.body.as_ref())
            .arg(holder)
            .arg(beat)
            .arg(renewal)
            .arg(takeover)
            .arg(SECONDS_TO_LIVE)
            // No version is equal to a space.
            .arg(self.facts_seen.as_deref().unwrap_or(" "))
            .arg(known.unwrap_or_default());
        for old in &self.replaced {
            call.arg(old.to_string());
        }
        let answer = self.link.call(&call).await?;
        let answer = decode::tick(answer).ok_or_else(|| self.link.malformed())?;
        let Some(answer) = answer else {
            return Err(Error::Fenced);
        };
        self.replaced.clear();
        let found = answer.found.map(|lease| lease.lease);
        let step = self.watch.step(self.node, found, sent);
        self.stale = found.filter(|_| step == LeaseStep::TakeOver);
        // Without a version, nobody has told anything since the server started empty.
        let seen = self
            .facts_seen
            .as_ref()
            .is_some_and(|seen| !seen.is_empty());
        let facts_lost = seen && answer.version.is_empty();
        let changed = self.facts_seen.as_ref() != Some(&answer.version) && !facts_lost;
        if !facts_lost {
            self.facts_seen = Some(answer.version);
        }
        Ok(TickReply {
            sent,
            allocation: answer.allocation,
            facts: answer.facts.filter(|_| changed),
            facts_lost,
            allocator: match &answer.held {
                Some(_) => Some(self.node),
                None => found.and_then(|lease| lease.holder),
            },
            view: self.view(sent, answer.held, answer.reports, answer.grants),
        })
    }

    fn view(
        &mut self,
        sent: BootInstant,
        held: Option<decode::FoundLease>,
        mut reports: decode::Reports,
        grants: Option<Vec<super::RaisedGrant>>,
    ) -> Option<AllocatorView> {
        let Some(held) = held else {
            self.watch.not_held();
            return None;
        };
        self.watch.held(sent, held.epoch);
        self.watch.observe_reports(&mut reports, sent);
        Some(AllocatorView {
            epoch: held.epoch,
            number: held.number,
            emptied: held.emptied,
            reports: reports.into_iter().map(|(report, _)| report).collect(),
            grants,
        })
    }

    async fn publish(&mut self, publication: Publication) -> Result<()> {
        publication.check()?;
        let mut call = self.scripts.publish.key(&self.key);
        call.arg(self.node.to_string())
            .arg(publication.stamp.epoch)
            .arg(publication.stamp.number)
            .arg(SECONDS_TO_LIVE);
        for allocated in &publication.allocations {
            call.arg(allocated.node.to_string())
                .arg(u8::from(allocated.raised))
                .arg(allocated.body.as_ref());
        }
        if self.link.call_for_word(&call).await? == "ok" {
            return Ok(());
        }
        Err(Error::LeaseLost {
            epoch: publication.stamp.epoch,
        })
    }

    async fn change_facts(&mut self, changes: Vec<FactChange>) -> Result<()> {
        check(&changes)?;
        let mut call = self.scripts.facts.key(&self.key);
        call.arg(NodeToken::random().to_string())
            .arg(SECONDS_TO_LIVE);
        for change in &changes {
            let lasts = change.lasts.map(|time| milliseconds(time).to_string());
            call.arg(&change.key)
                .arg(if change.body.is_some() { "set" } else { "drop" })
                .arg(change.body.as_deref().unwrap_or_default())
                .arg(lasts.unwrap_or_default());
        }
        self.link.call_for_word(&call).await?;
        Ok(())
    }

    async fn status(&mut self) -> Result<ExchangeStatus> {
        let call = self.scripts.status.key(&self.key);
        let answer = self.link.call(&call).await?;
        let (lease, reports) = decode::status(answer).ok_or_else(|| self.link.malformed())?;
        Ok(ExchangeStatus {
            epoch: lease.map_or(0, |lease| lease.epoch),
            number: lease.map_or(0, |lease| lease.number),
            allocator: lease.and_then(|lease| lease.lease.holder),
            reports: reports.into_iter().map(|(report, _)| report).collect(),
        })
    }

    async fn remove(&mut self, node: NodeToken, how: &str) -> Result<()> {
        let mut call = self.scripts.remove.key(&self.key);
        call.arg(node.to_string()).arg(how);
        self.link.call_for_word(&call).await?;
        Ok(())
    }
}

impl LimitExchange for ValkeyExchange {
    fn node(&self) -> NodeToken {
        self.node
    }

    fn rejoin(&mut self, node: NodeToken) {
        self.replaced.push(std::mem::replace(&mut self.node, node));
        self.facts_seen = None;
    }

    fn tick(&mut self, report: Report) -> BoxFuture<'_, Result<TickReply>> {
        ValkeyExchange::tick(self, report).boxed()
    }

    fn publish(&mut self, publication: Publication) -> BoxFuture<'_, Result<()>> {
        ValkeyExchange::publish(self, publication).boxed()
    }

    fn change_facts(&mut self, changes: Vec<FactChange>) -> BoxFuture<'_, Result<()>> {
        ValkeyExchange::change_facts(self, changes).boxed()
    }

    fn status(&mut self) -> BoxFuture<'_, Result<ExchangeStatus>> {
        ValkeyExchange::status(self).boxed()
    }

    fn forget(&mut self, node: NodeToken) -> BoxFuture<'_, Result<()>> {
        self.remove(node, "forget").boxed()
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<()>> {
        async {
            self.remove(self.node, "leave").await?;
            self.watch.not_held();
            Ok(())
        }
        .boxed()
    }
}
