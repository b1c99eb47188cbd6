//! `headworks fleet`: the gateways that share one set of limits.

use anyhow::Result;
use clap::Subcommand;
use headworks_gateway::{FleetAdmin, FleetConfig, FleetStatus, LimitShare, NodeStatus, Secrets};
use headworks_service::exit::Exit;

use crate::applications::schema;
use crate::arguments::Common;
use crate::overrides;
use crate::report::data;

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Show the nodes, the allocator, the share of every limit and differing configurations.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a node that has stopped. Its share goes to the others at once.
    ///
    /// A node that is alive stops granting, and joins anew within seconds. One that is cut off from
    /// the shared server keeps its share until it can reach it again: stop it first.
    Forget {
        /// The node's name, or the first digits of its token, as `status` shows them.
        node: String,
    },
}

pub(crate) fn run(command: &FleetCommand, common: &Common) -> Result<Exit> {
    let sources = overrides::sources(common)?;
    let config = schema().load(&sources)?.section::<FleetConfig>();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut fleet = FleetAdmin::new(&config, Secrets::from_env())?;
        match command {
            FleetCommand::Status { json } => {
                let status = fleet.status().await?;
                data(&match json {
                    true => format!("{}\n", serde_json::to_string_pretty(&status)?),
                    false => describe(&status),
                })?;
            }
            FleetCommand::Forget { node } => {
                let (name, token) = fleet.forget(node).await?;
                eprintln!("removed `{name}` ({token}); its share goes to the others");
            }
        }
        Ok(Exit::Done)
    })
}

fn describe(status: &FleetStatus) -> String {
    if status.nodes.is_empty() {
        return "no nodes: start a gateway with this `fleet.url`\n".to_owned();
    }
    let mut text = String::new();
    for node in &status.nodes {
        let token = node.token.get(..8).unwrap_or(&node.token);
        text += &format!("{:<24} {token}  {}\n", node.name, state(node));
        for share in &node.shares {
            text += &format!("    {}\n", describe_share(share));
        }
    }
    match status.allocator() {
        Some(name) => text += &format!("allocator: {name}\n"),
        None => text += "allocator: none at the moment\n",
    }
    for node in status.differing() {
        text += &format!(
            "configuration of {} differs from the allocator's: use the same limits on all nodes\n",
            node.name
        );
    }
    text
}

fn state(node: &NodeStatus) -> String {
    let state = match node {
        node if node.version.is_empty() => "sends reports that this program cannot read",
        node if node.is_leaving => "leaving",
        node if node.is_ready => "serving",
        _ => "waiting for a share",
    };
    let silent = node.silent_seconds.unwrap_or(0.0);
    match silent > 0.0 {
        true => format!("no report for {silent:.0} s; last: {state}"),
        false => state.to_owned(),
    }
}

fn describe_share(share: &LimitShare) -> String {
    let whose = match (share.scope, share.name.as_str()) {
        ("gateway", _) => "all requests".to_owned(),
        (scope, name) => format!("{scope} {name}"),
    };
    let unit = match share.limit {
        "concurrent" => " at once",
        "tokens" => " tokens/s",
        _ => " requests/s",
    };
    let value = share.value;
    match share.limit {
        "concurrent" => format!("{whose}: {value:.0}{unit}"),
        _ => format!("{whose}: {value:.1}{unit}"),
    }
}
