//! A backup of the database, restored on another server.

use super::*;

/// A fleet of two processes, and its commands.
struct Restored<'a> {
    folder: &'a Folder,
    nodes: Vec<Node>,
}

impl<'a> Restored<'a> {
    async fn start(folder: &'a Folder, config: &str) -> Restored<'a> {
        let nodes: Vec<Node> = ["n1", "n2"]
            .map(|name| Node::start(folder, name, config))
            .into();
        all_ready(&nodes).await;
        Restored { folder, nodes }
    }

    fn command(&self, args: &[&str]) -> support::Ended {
        let args = [&["--config", "n1.toml", "gateway"], args].concat();
        let output = self
            .folder
            .headworks(&args)
            .env("PGPASSWORD", PASSWORD)
            .output();
        let ended = support::Ended::from(output.unwrap());
        assert_eq!(ended.code, Some(0), "{ended}");
        ended
    }

    fn add_key(&self, id: &str) -> String {
        let made = self.command(&["key", "add", "--tenant", "t", "--id", id]);
        made.stdout.trim().to_owned()
    }

    /// Requests and tokens that are booked.
    fn usage(&self) -> (u64, u64) {
        let listed = self.command(&["usage", "--format", "json"]);
        let rows: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
        let sum = |name: &str| {
            let rows = rows.as_array().unwrap().iter();
            rows.map(|row| row[name].as_u64().unwrap_or(0)).sum::<u64>()
        };
        (sum("requests"), sum("input_tokens") + sum("output_tokens"))
    }

    /// The first line of the answer of a node.
    async fn ask(&self, node: usize, key: &str) -> String {
        let body = r#"{"model":"a","max_tokens":1,"messages":[{"role":"user","content":"a"}]}"#;
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = ask(&mut None, self.nodes[node].address, &request).await;
        answer.expect("an answer").0
    }

    /// Waits until every node answers a key like that.
    async fn answers(&self, key: &str, expected: &str) {
        for node in 0..self.nodes.len() {
            let deadline = Instant::now() + seconds(120);
            loop {
                let first = self.ask(node, key).await;
                if first.contains(expected) {
                    break;
                }
                assert!(Instant::now() < deadline, "{first}, expected {expected}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Stops every node in order, so that all usage is booked.
    fn stop(&mut self) {
        for mut node in self.nodes.drain(..) {
            node.end("-TERM");
            node.child.wait().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_has_keys_budgets_and_usage() {
    let (first, folder) = (PostgresServer::start(), Folder::new());
    let upstream = Upstream::start(Duration::ZERO).await;
    let config_of = |server: &PostgresServer| config(&server.url(), &upstream, "", &rate_limits());
    let mut fleet = Restored::start(&folder, &config_of(&first)).await;
    let (kept, revoked) = (fleet.add_key("kept"), fleet.add_key("revoked"));
    fleet.answers(&kept, " 200 ").await;
    fleet.answers(&revoked, " 200 ").await;
    for turn in 0..20 {
        assert!(fleet.ask(turn % 2, &kept).await.contains(" 200 "));
    }
    fleet.stop();
    let before = fleet.usage();
    assert!(before.0 >= 24 && before.1 >= 48, "{before:?}");
    // A request has two tokens: one more fits into the budget.
    let budget = (before.1 + 2).to_string();
    fleet.command(&["tenant", "set", "t", "--tokens-per-day", &budget]);
    let backup = first.dump();
    // A change after the backup is lost with the server.
    fleet.command(&["key", "revoke", "revoked"]);
    drop(first);

    let second = PostgresServer::start();
    second.restore(&backup);
    let mut fleet = Restored::start(&folder, &config_of(&second)).await;
    assert_eq!(fleet.usage(), before, "nothing is lost or booked twice");
    assert!(fleet.ask(0, "hw-unknown").await.contains(" 401 "));
    // The revocation came after the backup.
    assert!(fleet.ask(0, &revoked).await.contains(" 200 "));
    // The budget counts what was used before the backup, at every node.
    fleet.answers(&kept, " 429 ").await;
    fleet.stop();
    let after = fleet.usage();
    assert!(after.0 > before.0 && after.1 >= before.1 + 2, "{after:?}");
}
