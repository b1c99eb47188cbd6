//! Calls that a service rejects because of their time or their host.

use super::bucket::Bucket;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::test_server::{Received, Reply, TestServer, ok, variables};
use crate::error::ErrorKind;

const EMPTY: &str = "<ListBucketResult></ListBucketResult>";

fn open(storage: &TestServer) -> Bucket {
    let location = format!("s3://b?endpoint={}", storage.address);
    let keys = [
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    Bucket::open(location.as_bytes(), &variables(&keys)).unwrap()
}

/// A service in another year. It says so of a HEAD without a body.
async fn service_in_2001() -> TestServer {
    TestServer::start(|request: &Received| -> Reply {
        if request.header("x-amz-date").starts_with("2001") {
            return ok(EMPTY);
        }
        let body = "<Error><Code>RequestTimeTooSkewed</Code><Message>m</Message></Error>";
        let date = "date: Thu, 01 Mar 2001 00:00:00 GMT\r\n";
        (403, date, body.to_owned())
    })
    .await
}

#[tokio::test]
async fn a_wrong_clock_is_corrected_and_said() {
    let storage = service_in_2001().await;
    let bucket = open(&storage);
    assert!(!bucket.any_below(b"", b"").await.unwrap());
    assert!(!bucket.any_below(b"", b"").await.unwrap());
    assert_eq!(storage.received().len(), 3, "only the first is repeated");
    let notice = bucket.notices().pop().unwrap();
    assert!(notice.contains("ahead of that of the service"), "{notice}");
    let bucket = open(&storage);
    bucket.check().await.unwrap();
}

#[tokio::test]
async fn a_time_that_is_rejected_for_ever_is_explained() {
    let storage = TestServer::start(|_| {
        let body = "<Error><Code>RequestTimeTooSkewed</Code><Message>m</Message></Error>";
        (403, "", body.to_owned())
    })
    .await;
    let refused = open(&storage).any_below(b"", b"").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.to_string().contains("set the clock"), "{refused}");
}

#[tokio::test]
async fn a_temporary_redirect_is_followed_and_remembered() {
    let other = TestServer::start(|request: &Received| -> Reply {
        match request.header("authorization").contains("/eu-west-9/s3/") {
            true => ok(EMPTY),
            false => (400, "", String::new()),
        }
    })
    .await;
    let to = format!(
        "location: {}/b/?list-type=2\r\nx-amz-bucket-region: eu-west-9\r\n",
        other.address
    );
    let to: &'static str = Box::leak(to.into_boxed_str());
    let storage = TestServer::start(move |_| (307, to, String::new())).await;
    let bucket = open(&storage);
    for _ in 0..3 {
        assert!(!bucket.any_below(b"", b"").await.unwrap());
    }
    assert_eq!(storage.received().len(), 1);
    let hosts = other.received();
    assert_eq!(hosts.len(), 3);
    let host = other.address.trim_start_matches("http://");
    assert!(hosts.iter().all(|one| one.header("host") == host));
}

#[tokio::test]
async fn a_redirect_to_somebody_else_is_explained() {
    let to = "location: http://somebody.invalid/b/\r\n";
    let storage = TestServer::start(move |_| (307, to, String::new())).await;
    let refused = open(&storage).any_below(b"", b"").await.unwrap_err();
    let message = refused.to_string();
    assert!(
        message.contains("redirected to http://somebody.invalid"),
        "{message}"
    );
    assert!(message.contains("?endpoint="), "{message}");
}
