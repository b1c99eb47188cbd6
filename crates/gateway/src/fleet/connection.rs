//! The connection to the shared server.

use std::time::Duration;

use headworks_fleet::postgres::{Postgres, Timeouts};
use headworks_fleet::{
    Error, FleetUrl, JoinCause, JoinOptions, LimitExchange, Membership, Node, NodeToken,
    PostgresExchange, Result, ValkeyExchange,
};
use tokio::sync::watch;

use super::state::Fleet;

/// The time for an answer to one statement. An exchange is worth little after a second.
const ANSWER: Duration = Duration::from_secs(2);
/// The time to connect, with TLS and authentication.
const CONNECT: Duration = Duration::from_secs(3);
/// The time for everything that happens at the start.
const JOIN: Duration = Duration::from_secs(15);

/// The registration in the fleet, and the exchange.
pub(super) struct Connection {
    pub(super) exchange: Box<dyn LimitExchange>,
    registration: Registration,
}

enum Registration {
    Postgres {
        node: Node,
        memberships: watch::Receiver<Membership>,
    },
    /// Valkey registers no nodes: a token is known by its reports.
    Valkey,
}

/// The next token of this node, and whether others may have its share.
pub(super) struct NewToken {
    pub(super) token: NodeToken,
    pub(super) lost_share: bool,
}

/// Statements of an exchange have little time, so that an outage is noticed soon.
pub(super) fn timeouts() -> Timeouts {
    let mut timeouts = Timeouts::default();
    timeouts.connect = CONNECT;
    timeouts.statement = ANSWER / 2;
    timeouts.lock = ANSWER / 2;
    timeouts.answer = ANSWER;
    timeouts
}

impl Connection {
    /// Connects and joins.
    ///
    /// # Errors
    /// When the server cannot be reached, rejects the connection or belongs to something else.
    pub(super) async fn open(fleet: &Fleet) -> Result<Option<Connection>> {
        let (secrets, name) = (fleet.secrets.clone(), fleet.name.as_str());
        let Some(url) = fleet.config.address()? else {
            return Ok(None);
        };
        let join = async {
            match url {
                FleetUrl::Postgres(url) => {
                    let server = Postgres::new(url, secrets)?;
                    Connection::join(&server, name).await
                }
                FleetUrl::Valkey(url) => {
                    let token = NodeToken::random();
                    let exchange = ValkeyExchange::new(url, &secrets, name, token)?;
                    let mut exchange = exchange.timeout(ANSWER);
                    // Finds out now whether the address and the password are right.
                    exchange.status().await?;
                    Ok(Connection {
                        exchange: Box::new(exchange),
                        registration: Registration::Valkey,
                    })
                }
                _ => Err(Error::Setting(
                    "this kind of server is not known".to_owned(),
                )),
            }
        };
        match tokio::time::timeout(JOIN, join).await {
            Ok(joined) => joined.map(Some),
            Err(_) => Err(Error::Timeout {
                server: "the shared server".to_owned(),
                after: JOIN,
            }),
        }
    }

    async fn join(server: &Postgres, name: &str) -> Result<Connection> {
        let node = Node::join(server, JoinOptions::new(name)).await?;
        let token = node.membership().token();
        let exchange = PostgresExchange::with_timeouts(server, token, timeouts());
        let mut memberships = node.memberships();
        memberships.mark_unchanged();
        Ok(Connection {
            exchange: Box::new(exchange),
            registration: Registration::Postgres { node, memberships },
        })
    }

    /// The token after this node has been registered anew, if it has. With `fenced`, the exchange
    /// has refused the current one.
    pub(super) fn new_token(&mut self, fenced: bool) -> Option<NewToken> {
        let new = match &mut self.registration {
            Registration::Postgres { memberships, .. } => {
                if !memberships.has_changed().unwrap_or(false) {
                    return None;
                }
                let membership = memberships.borrow_and_update();
                NewToken {
                    token: membership.token(),
                    lost_share: membership.cause() != JoinCause::DatabaseChanged,
                }
            }
            Registration::Valkey if fenced => NewToken {
                token: NodeToken::random(),
                lost_share: true,
            },
            Registration::Valkey => return None,
        };
        self.exchange.rejoin(new.token);
        Some(new)
    }

    /// Leaves: the share, the lease and the registration are given back at once.
    pub(super) async fn leave(mut self) -> Result<()> {
        let left = self.exchange.leave().await;
        if let Registration::Postgres { node, .. } = self.registration {
            node.leave().await?;
        }
        left
    }
}
