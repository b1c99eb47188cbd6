//! A registered node and the task that sends its heartbeats.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::membership::{JoinCause, Membership};
use super::registry::{self, Member};
use super::timing::Timing;
use super::token::NodeToken;
use crate::clock::BootInstant;
use crate::error::{Error, Result};
use crate::postgres::schema::{Schema, Step};
use crate::postgres::{DatabaseIdentity, Link, Postgres, Timeouts};
use crate::silence::Silence;
use crate::tables;

/// How a node joins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JoinOptions {
    /// Its name in lists, usually the host's.
    pub name: String,
    /// The application's description of it; at most 64 KiB.
    pub info: Bytes,
    /// The intervals of heartbeats.
    pub timing: Timing,
    /// The timeouts of its connection.
    pub timeouts: Timeouts,
    /// The schema steps that the program knows. Tests of upgrades pretend to be another version.
    pub steps: &'static [Step],
}

impl JoinOptions {
    /// Options with defaults for everything but the name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> JoinOptions {
        JoinOptions {
            name: name.into(),
            info: Bytes::new(),
            timing: Timing::default(),
            timeouts: Timeouts::default().with_statement(Duration::from_secs(3)),
            steps: tables::STEPS,
        }
    }
}

/// A process that is registered in the database. Its task sends heartbeats over a connection of its
/// own, and rejoins when it has to. Dropping the node ends the task without leaving.
#[derive(Debug)]
pub struct Node {
    membership: watch::Receiver<Membership>,
    members: watch::Receiver<Arc<Vec<Member>>>,
    info: watch::Sender<Bytes>,
    leave: watch::Sender<bool>,
    task: JoinHandle<Result<()>>,
}

impl Node {
    /// Brings the schema up to date, registers the node and starts its heartbeats.
    ///
    /// # Errors
    /// When the database cannot be reached, belongs to something else, or needs a newer program.
    pub async fn join(server: &Postgres, options: JoinOptions) -> Result<Node> {
        options.timing.check()?;
        limit_info(&options.info)?;
        let (info, said) = watch::channel(options.info.clone());
        let (leave, leaving) = watch::channel(false);
        let mut beating = Heartbeats {
            link: server.link("heartbeat", options.timeouts),
            schema: server.schema().to_owned(),
            options,
            said,
            leaving,
            silences: HashMap::new(),
            stale: Vec::new(),
            contract_pending: false,
        };
        let first = beating.join(JoinCause::Started).await?;
        let (publish_membership, membership) = watch::channel(first);
        let (publish_members, members) = watch::channel(Arc::default());
        let task = tokio::spawn(beating.run(publish_membership, publish_members));
        Ok(Node {
            membership,
            members,
            info,
            leave,
            task,
        })
    }

    /// The current membership. It is replaced when the node rejoins.
    #[must_use]
    pub fn membership(&self) -> Membership {
        self.membership.borrow().clone()
    }

    /// Receives every new membership.
    #[must_use]
    pub fn memberships(&self) -> watch::Receiver<Membership> {
        self.membership.clone()
    }

    /// Receives the registered nodes, as of every heartbeat.
    #[must_use]
    pub fn members(&self) -> watch::Receiver<Arc<Vec<Member>>> {
        self.members.clone()
    }

    /// Replaces what the application says about the node, from the next heartbeat on.
    ///
    /// # Errors
    /// When it is larger than 64 KiB.
    pub fn set_info(&self, info: Bytes) -> Result<()> {
        limit_info(&info)?;
        self.info.send_replace(info);
        Ok(())
    }

    /// Leaves the fleet: the membership ends and the node is removed at once.
    ///
    /// # Errors
    /// When the database does not answer; then others find the node lost after a while.
    pub async fn leave(mut self) -> Result<()> {
        self.membership().end();
        self.leave.send_replace(true);
        match (&mut self.task).await {
            Ok(left) => left,
            Err(_) => Err(Error::Fenced),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.membership().end();
        self.task.abort();
    }
}

const MAX_INFO: usize = 64 << 10;

fn limit_info(info: &Bytes) -> Result<()> {
    if info.len() <= MAX_INFO {
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "a node's info",
        size: info.len(),
        limit: MAX_INFO,
    })
}

/// The state of the task.
struct Heartbeats {
    link: Link,
    schema: String,
    options: JoinOptions,
    said: watch::Receiver<Bytes>,
    leaving: watch::Receiver<bool>,
    silences: HashMap<NodeToken, Silence<i64>>,
    /// Tokens of this node whose rows the next join removes.
    stale: Vec<NodeToken>,
    contract_pending: bool,
}

/// The result of a heartbeat.
enum Beat {
    Registered(Vec<Member>),
    Rejoin(JoinCause),
}

impl Heartbeats {
    /// Registers under a new token, in place of earlier ones.
    async fn join(&mut self, cause: JoinCause) -> Result<Membership> {
        let schema = schema(&self.schema, &self.options);
        let version = schema.apply(&mut self.link).await?;
        self.contract_pending = version.contract_pending;
        self.silences.clear();
        let token = NodeToken::random();
        let info = self.said.borrow().clone();
        let sent = BootInstant::now();
        let transaction = self.link.begin().await?;
        schema.check(&transaction).await?;
        // Only the rows: the exchange keeps the share until the new token's first report.
        registry::remove_rows(&transaction, schema.name, &self.stale).await?;
        // If the answer to the commit is lost, the next attempt removes this row.
        self.stale.push(token);
        let name = &self.options.name;
        registry::insert(
            &transaction,
            schema.name,
            token,
            name,
            schema.known(),
            &info,
        )
        .await?;
        let identity = DatabaseIdentity::read_in(&transaction).await?;
        transaction.commit().await?;
        self.stale.clear();
        tracing::info!(%token, ?cause, "joined the fleet");
        let timing = self.options.timing;
        Ok(Membership::new(token, cause, identity, timing, sent))
    }

    async fn run(
        mut self,
        membership: watch::Sender<Membership>,
        members: watch::Sender<Arc<Vec<Member>>>,
    ) -> Result<()> {
        loop {
            if !self.pause(&membership).await {
                let token = membership.borrow().token();
                return self.remove(token).await;
            }
            let current = membership.borrow().clone();
            let sent = BootInstant::now();
            match self.beat(&current).await {
                Ok(Beat::Registered(mut found)) => {
                    current.renew(sent);
                    self.observe(&mut found);
                    self.contract().await;
                    members.send_replace(Arc::new(found));
                }
                Ok(Beat::Rejoin(cause)) => {
                    // Ended first: nothing may happen under the old token any more.
                    current.end();
                    if !self.stale.contains(&current.token()) {
                        self.stale.push(current.token());
                    }
                    match self.join(cause).await {
                        Ok(new) => {
                            membership.send_replace(new);
                        }
                        Err(error) => tracing::warn!(%error, "cannot rejoin the fleet"),
                    }
                }
                Err(error) => tracing::warn!(%error, "a heartbeat failed"),
            }
        }
    }

    /// Waits until the next heartbeat is due; returns false when the node leaves.
    async fn pause(&mut self, membership: &watch::Sender<Membership>) -> bool {
        let age = BootInstant::now().since(membership.borrow().sent());
        let due = self.options.timing.heartbeat.saturating_sub(age);
        // After a failure, the link's own backoff sets the pace; this bounds errors without one.
        let due = due.max(self.options.timing.heartbeat / 50);
        tokio::select! {
            left = self.leaving.wait_for(|leave| *leave) => {
                drop(left);
                false
            }
            () = tokio::time::sleep(due) => true,
        }
    }

    async fn beat(&mut self, current: &Membership) -> Result<Beat> {
        let info = self.said.borrow().clone();
        let schema = self.schema.clone();
        let transaction = self.link.begin().await?;
        // Behind a pooler the database can change without a new connection, so every heartbeat
        // compares.
        if DatabaseIdentity::read_in(&transaction).await? != *current.identity() {
            return Ok(Beat::Rejoin(JoinCause::DatabaseChanged));
        }
        if !registry::beat(&transaction, &schema, current.token(), &info).await? {
            return Ok(Beat::Rejoin(JoinCause::Fenced));
        }
        let members = registry::list(&transaction, &schema).await?;
        transaction.commit().await?;
        Ok(Beat::Registered(members))
    }

    /// Notes who is silent.
    fn observe(&mut self, members: &mut [Member]) {
        let now = BootInstant::now();
        let Timing { lost_after, .. } = self.options.timing;
        let gap = self.options.timing.longest_gap();
        let mut seen = HashMap::with_capacity(members.len());
        for member in members {
            let mut silence = self
                .silences
                .remove(&member.token)
                .unwrap_or_else(|| Silence::new(member.beat, now));
            member.silent = silence.observe(member.beat, now, gap);
            member.lost = member.silent >= lost_after;
            seen.insert(member.token, silence);
        }
        self.silences = seen;
    }

    /// Applies contracting steps once no older node is registered.
    async fn contract(&mut self) {
        if !self.contract_pending {
            return;
        }
        match schema(&self.schema, &self.options)
            .apply(&mut self.link)
            .await
        {
            Ok(version) => self.contract_pending = version.contract_pending,
            Err(error) => tracing::warn!(%error, "cannot upgrade the schema"),
        }
    }

    async fn remove(&mut self, token: NodeToken) -> Result<()> {
        let schema = self.schema.clone();
        let transaction = self.link.begin().await?;
        registry::remove(&transaction, &schema, token, None).await?;
        transaction.commit().await
    }
}

fn schema<'a>(name: &'a str, options: &JoinOptions) -> Schema<'a> {
    Schema {
        name,
        fleet: name,
        steps: options.steps,
    }
}
