//! Looks at a fleet and changes it from outside, for `headworks fleet`.

use std::time::Duration;

use headworks_fleet::postgres::Postgres;
use headworks_fleet::{
    Error, FleetUrl, LimitExchange, NodeToken, PostgresExchange, Registry, Result, Secrets,
    ValkeyExchange,
};

use super::config::FleetConfig;
use super::connection::timeouts;
use super::facts::{FORGET, forgotten};
use super::status::{FleetStatus, Observer, describe};

/// The time between the two looks that show who is silent.
const LOOK: Duration = Duration::from_millis(700);

/// An operator's connection to a fleet. It is no node.
pub struct FleetAdmin {
    exchange: Box<dyn LimitExchange>,
    registry: Option<Registry>,
}

impl FleetAdmin {
    /// Prepares a connection to the fleet of this configuration.
    ///
    /// # Errors
    /// When no fleet is configured, or its address cannot be used.
    pub fn new(config: &FleetConfig, secrets: Secrets) -> Result<FleetAdmin> {
        let Some(url) = config.address()? else {
            let text = "no fleet is configured: set `fleet.url`";
            return Err(Error::Setting(text.to_owned()));
        };
        // Only nodes that tick are in the exchange, so this token is never seen.
        let token = NodeToken::random();
        match url {
            FleetUrl::Postgres(url) => {
                let server = Postgres::new(url, secrets)?;
                let exchange = PostgresExchange::with_timeouts(&server, token, timeouts());
                Ok(FleetAdmin {
                    exchange: Box::new(exchange),
                    registry: Some(Registry::new(&server)),
                })
            }
            FleetUrl::Valkey(url) => Ok(FleetAdmin {
                exchange: Box::new(ValkeyExchange::new(url, &secrets, "operator", token)?),
                registry: None,
            }),
            _ => Err(Error::Setting(
                "this kind of server is not known".to_owned(),
            )),
        }
    }

    /// Looks at the fleet. It looks twice, because one look does not show who is silent.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn status(&mut self) -> Result<FleetStatus> {
        let (mut observer, start) = (Observer::default(), tokio::time::Instant::now());
        let now = |at: tokio::time::Instant| headworks_core::Time::ZERO + (at - start);
        let first = self.exchange.status().await?;
        describe(&first, None, |node, number| {
            observer.silence(now(start), node, number)
        });
        tokio::time::sleep(LOOK).await;
        let (found, at) = (
            self.exchange.status().await?,
            now(tokio::time::Instant::now()),
        );
        let mut ages = std::collections::HashMap::new();
        if let Some(registry) = &mut self.registry {
            let members = registry.list().await?;
            ages.extend(members.into_iter().map(|one| (one.token, one.shown_age)));
        }
        let status = describe(&found, None, |node, number| {
            let silent = observer.silence(at, node, number)?;
            // The age of a heartbeat is up to five seconds old itself.
            match ages.get(&node) {
                Some(age) if !silent.is_zero() => Some(silent.max(*age)),
                _ => Some(silent),
            }
        });
        Ok(status)
    }

    /// Removes a node, by its token or its name. Its share goes to the others at once. If it is
    /// alive, it stops, and joins anew.
    ///
    /// Returns the name and the token.
    ///
    /// # Errors
    /// When no node or more than one is meant, or the server does not answer.
    pub async fn forget(&mut self, node: &str) -> Result<(String, String)> {
        let (name, token) = self.find(node).await?;
        self.exchange.forget(token).await?;
        // The allocator may know it from grants alone, which it reads once.
        let change = forgotten(token).lasting(FORGET);
        self.exchange.change_facts(vec![change]).await?;
        Ok((name, token.to_string()))
    }

    async fn find(&mut self, node: &str) -> Result<(String, NodeToken)> {
        let status = self.exchange.status().await?;
        let mut known: Vec<(String, NodeToken)> = status
            .reports
            .into_iter()
            .map(|report| (report.name, report.node))
            .collect();
        if let Some(registry) = &mut self.registry {
            let members = registry.list().await?;
            known.extend(members.into_iter().map(|one| (one.name, one.token)));
        }
        known.sort();
        known.dedup();
        let meant = known.iter().filter(|(name, token)| {
            let is_token = node.len() >= 6 && token.to_string().starts_with(node);
            name == node || is_token
        });
        let meant: Vec<&(String, NodeToken)> = meant.collect();
        match meant.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(Error::Setting(format!(
                "no node `{node}` in the fleet: `headworks fleet status` lists the nodes"
            ))),
            several => {
                let tokens = several.iter().map(|(_, token)| token.to_string());
                let tokens: Vec<String> = tokens.collect();
                Err(Error::Setting(format!(
                    "{} nodes are called `{node}`: name the token instead, one of {}",
                    tokens.len(),
                    tokens.join(", ")
                )))
            }
        }
    }
}
