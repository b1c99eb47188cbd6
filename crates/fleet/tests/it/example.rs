//! The example does what it says.

#[path = "../../examples/limits.rs"]
mod limits;

use headworks_fleet::testing::PostgresServer;

#[tokio::test]
async fn two_nodes_share_a_limit() {
    let server = PostgresServer::start();
    assert_eq!(
        limits::share_limit(&server.client()).await.unwrap(),
        [25, 75]
    );
}
