//! Whether the shared server of a fleet can be used.

use headworks_fleet::postgres::{Postgres, Timeouts};
use headworks_fleet::{FleetUrl, LimitExchange, NodeToken, Secrets, ValkeyExchange};
use headworks_gateway::FleetConfig;
use headworks_service::config::Config;

use super::TIMEOUT;
use super::finding::Finding;

pub(super) async fn examine(config: &Config) -> Option<Finding> {
    // A loaded configuration has an address that can be used, or none.
    let url = config.section::<FleetConfig>().address().ok().flatten()?;
    let subject = format!("fleet.url {url}");
    let answer = tokio::time::timeout(TIMEOUT, connect(url)).await;
    Some(match answer {
        Ok(Ok(())) => Finding::ok(subject, "it answers"),
        Ok(Err(error)) => Finding::problem(subject, error.to_string()),
        Err(_) => Finding::problem(subject, format!("no answer within {} s", TIMEOUT.as_secs())),
    })
}

async fn connect(url: FleetUrl) -> headworks_fleet::Result<()> {
    match url {
        FleetUrl::Postgres(url) => {
            let server = Postgres::new(url, Secrets::from_env())?;
            let mut link = server.link("doctor", Timeouts::default());
            link.begin().await?.commit().await?;
        }
        FleetUrl::Valkey(url) => {
            let secrets = Secrets::from_env();
            let token = NodeToken::random();
            let mut exchange = ValkeyExchange::new(url, &secrets, "doctor", token)?;
            exchange.status().await?;
        }
        _ => {}
    }
    Ok(())
}
