//! Two nodes share a limit of 100 requests per second by their demand.
//!
//! ```sh
//! cargo run -p headworks-fleet --example limits                    # starts a PostgreSQL
//! cargo run -p headworks-fleet --example limits postgres://me@localhost/fleet
//! ```
//!
//! Reports and allocations are opaque to the exchange. Here a report is the demand of a node as
//! text, and an allocation its rate. A real allocator also waits until a node has given up its
//! share before it raises another one: that is `headworks_core::Shares`.

use headworks_fleet::postgres::Postgres;
use headworks_fleet::testing::PostgresServer;
use headworks_fleet::{
    Allocated, AllocatorView, JoinOptions, LimitExchange, Node, PostgresExchange, Publication,
    Report, Result, Secrets, Stamp,
};

const LIMIT: u64 = 100;

/// Divides the limit by demand.
fn allocate(view: &AllocatorView) -> Publication {
    let demand = |body: &[u8]| -> u64 {
        let text = std::str::from_utf8(body).unwrap_or_default();
        text.parse().unwrap_or(0)
    };
    let all: u64 = view.reports.iter().map(|r| demand(&r.body)).sum();
    let share = |body: &[u8]| LIMIT * demand(body) / all.max(1);
    Publication {
        stamp: Stamp::new(view.epoch, view.number + 1),
        allocations: view
            .reports
            .iter()
            .map(|report| Allocated {
                node: report.node,
                body: share(&report.body).to_string().into(),
                raised: true,
            })
            .collect(),
    }
}

/// One node: what it wants, and what it got.
struct Member {
    node: Node,
    exchange: PostgresExchange,
    demand: u64,
    applied: Stamp,
    rate: u64,
}

impl Member {
    async fn join(server: &Postgres, name: &str, demand: u64) -> Result<Member> {
        let node = Node::join(server, JoinOptions::new(name)).await?;
        Ok(Member {
            exchange: PostgresExchange::new(server, node.membership().token()),
            node,
            demand,
            applied: Stamp::default(),
            rate: 0,
        })
    }

    async fn tick(&mut self) -> Result<()> {
        let report = Report {
            echoed: self.applied,
            body: self.demand.to_string().into(),
        };
        let reply = self.exchange.tick(report).await?;
        if let Some(allocation) = reply.allocation {
            self.applied = allocation.stamp;
            let text = std::str::from_utf8(&allocation.body).unwrap_or_default();
            self.rate = text.parse().unwrap_or(0);
        }
        if let Some(view) = reply.view {
            self.exchange.publish(allocate(&view)).await?;
        }
        Ok(())
    }
}

/// Returns the rates of two nodes with demands of 30 and 90 requests per second.
pub(crate) async fn share_limit(server: &Postgres) -> Result<[u64; 2]> {
    let mut first = Member::join(server, "first", 30).await?;
    let mut second = Member::join(server, "second", 90).await?;
    for _ in 0..4 {
        first.tick().await?;
        second.tick().await?;
    }
    let rates = [first.rate, second.rate];
    for mut member in [first, second] {
        member.exchange.leave().await?;
        member.node.leave().await?;
    }
    Ok(rates)
}

#[allow(dead_code, reason = "a test runs the example as a module")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (server, _postgres) = match std::env::args().nth(1) {
        Some(url) => (Postgres::new(url.parse()?, Secrets::from_env())?, None),
        None => {
            let postgres = PostgresServer::start();
            (postgres.client(), Some(postgres))
        }
    };
    let [first, second] = share_limit(&server).await?;
    println!("first: {first}/s, second: {second}/s, together {LIMIT}/s");
    Ok(())
}
