//! A server with a limit exchange, for the behaviour suite.

use std::sync::Mutex;
use std::time::Duration;

use headworks_fleet::postgres::{Postgres, Timeouts};
use headworks_fleet::testing::{PostgresServer, ValkeyServer, eventually};
use headworks_fleet::{
    JoinOptions, LimitExchange, Node, NodeToken, PostgresExchange, Report, Result, TickReply,
    Timing, ValkeyExchange,
};

/// No candidate takes over within a test.
pub(crate) const PATIENT: Duration = Duration::from_secs(3600);
/// Candidates take over after a moment.
pub(crate) const HASTY: Duration = Duration::from_millis(300);

pub(crate) type Exchange = Box<dyn LimitExchange>;

/// A server, as the suite needs it.
pub(crate) trait Stage {
    /// Grants survive a crash.
    const DURABLE: bool;

    async fn start() -> Self;
    /// A new node, with a lease that candidates wait for.
    async fn join(&self, name: &str, lease: Duration) -> Exchange;
    /// A node that waits for answers only for a moment.
    async fn join_impatient(&self, name: &str) -> Exchange;
    /// A token for a node that rejoins.
    async fn token(&self, name: &str) -> NodeToken;
    /// The server loses what it may lose, and goes on.
    fn crash(&mut self);
    fn pause(&self);
    fn unpause(&self);
}

pub(crate) struct PostgresStage {
    pub(crate) server: PostgresServer,
    client: Postgres,
    nodes: Mutex<Vec<Node>>,
}

impl Stage for PostgresStage {
    const DURABLE: bool = true;

    async fn start() -> PostgresStage {
        let server = PostgresServer::start();
        PostgresStage {
            client: server.client(),
            server,
            nodes: Mutex::default(),
        }
    }

    async fn join(&self, name: &str, lease: Duration) -> Exchange {
        let node = self.token(name).await;
        // The defaults are for machines that are not busy with fifteen other servers.
        let timeouts = Timeouts::default().with_statement(Duration::from_secs(20));
        let exchange = PostgresExchange::with_timeouts(&self.client, node, timeouts);
        Box::new(exchange.lease_time(lease))
    }

    async fn join_impatient(&self, name: &str) -> Exchange {
        let node = self.token(name).await;
        let mut timeouts = Timeouts::default();
        timeouts.answer = Duration::from_secs(1);
        timeouts.connect = Duration::from_secs(1);
        let exchange = PostgresExchange::with_timeouts(&self.client, node, timeouts);
        Box::new(exchange.lease_time(PATIENT))
    }

    async fn token(&self, name: &str) -> NodeToken {
        let mut options = JoinOptions::new(name);
        options.timing = Timing::scaled(1000.0);
        let node = Node::join(&self.client, options).await.unwrap();
        let token = node.membership().token();
        self.nodes.lock().unwrap().push(node);
        token
    }

    fn crash(&mut self) {
        self.server.crash();
        self.server.start_again();
    }

    fn pause(&self) {
        self.server.pause();
    }

    fn unpause(&self) {
        self.server.unpause();
    }
}

pub(crate) struct ValkeyStage {
    server: ValkeyServer,
}

impl ValkeyStage {
    fn exchange(&self, name: &str) -> ValkeyExchange {
        let url = self.server.url().parse().unwrap();
        let node = NodeToken::random();
        ValkeyExchange::new(url, &ValkeyServer::secrets(), name, node).unwrap()
    }
}

impl Stage for ValkeyStage {
    const DURABLE: bool = false;

    async fn start() -> ValkeyStage {
        let server = ValkeyServer::start();
        ValkeyStage { server }
    }

    async fn join(&self, name: &str, lease: Duration) -> Exchange {
        let exchange = self.exchange(name).timeout(Duration::from_secs(20));
        Box::new(exchange.lease_time(lease))
    }

    async fn join_impatient(&self, name: &str) -> Exchange {
        let exchange = self.exchange(name).timeout(Duration::from_secs(1));
        Box::new(exchange.lease_time(PATIENT))
    }

    async fn token(&self, _name: &str) -> NodeToken {
        NodeToken::random()
    }

    fn crash(&mut self) {
        self.server.crash_and_start();
    }

    fn pause(&self) {
        self.server.pause();
    }

    fn unpause(&self) {
        self.server.unpause();
    }
}

/// A tick that repeats temporary failures, as a node does.
pub(crate) async fn tick(exchange: &mut Exchange, report: Report) -> TickReply {
    let exchange = tokio::sync::Mutex::new(exchange);
    eventually("a tick succeeds", async || {
        let ticked: Result<TickReply> = exchange.lock().await.tick(report.clone()).await;
        match ticked {
            Ok(reply) => Some(reply),
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                None
            }
        }
    })
    .await
}
