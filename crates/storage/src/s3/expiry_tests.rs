//! Keys that expire during a run.

use super::bucket::Bucket;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::test_server::{Received, Reply, TestServer, ok, time_in, variables};
use crate::error::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The keys that a machine's role has, by number.
fn role_keys(number: usize) -> String {
    let until = time_in(3600);
    format!(
        r#"{{"AccessKeyId":"id{number}","SecretAccessKey":"s","Token":"t{number}","Expiration":"{until}"}}"#
    )
}

/// A machine's metadata service with other keys every time.
async fn machine() -> TestServer {
    let fetched = AtomicUsize::new(0);
    TestServer::start(move |request| match request.line.as_str() {
        "PUT /latest/api/token" => ok("tok"),
        "GET /latest/meta-data/iam/security-credentials/" => ok("role"),
        _ => ok(role_keys(fetched.fetch_add(1, Ordering::Relaxed) + 1)),
    })
    .await
}

const ROLE: &str = "GET /latest/meta-data/iam/security-credentials/role";

/// A bucket that rejects the first keys like this.
async fn storage(code: &'static str) -> TestServer {
    TestServer::start(move |request: &Received| -> Reply {
        if request.header("x-amz-security-token") != "t1" {
            return ok("<ListBucketResult></ListBucketResult>");
        }
        let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
        (400, "", body)
    })
    .await
}

fn open(storage: &TestServer, machine: &TestServer) -> Bucket {
    let location = format!("s3://b?endpoint={}", storage.address);
    let environment = variables(&[
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &machine.address),
        ("AWS_REGION", "eu-north-1"),
    ]);
    Bucket::open(location.as_bytes(), &environment).unwrap()
}

/// Sends a call without the retries of temporary failures, which take their time.
async fn read_once(bucket: &Bucket) -> crate::Result<()> {
    let call = bucket.call("list", "list", b"", http::Method::GET);
    bucket.endpoint.read_once(bucket, &call).await.map(drop)
}

#[tokio::test]
async fn rejected_keys_are_fetched_anew_once_for_all_workers() {
    for code in ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"] {
        let (machine, storage) = (machine().await, storage(code).await);
        let bucket = Arc::new(open(&storage, &machine));
        let calls = (0..20).map(|_| {
            let bucket = bucket.clone();
            async move { bucket.any_below(b"", b"").await }
        });
        for done in futures_util::future::join_all(calls).await {
            assert!(!done.unwrap(), "{code}");
        }
        assert_eq!(machine.count(ROLE), 2, "{code}: one refresh for all");
        let calls = storage.received().len();
        assert!(
            calls <= 40,
            "{code}: each call is repeated once, not {calls}"
        );
    }
}

#[tokio::test]
async fn a_head_without_a_reason_is_repeated_with_new_keys() {
    let (machine, storage) = (machine().await, storage("").await);
    let bucket = open(&storage, &machine);
    bucket.check().await.unwrap();
    assert_eq!(machine.count(ROLE), 2);
    assert!(
        storage
            .received()
            .iter()
            .all(|one| one.line.starts_with("HEAD"))
    );
}

#[tokio::test]
async fn keys_that_are_rejected_for_ever_are_not_fetched_for_ever() {
    let machine = machine().await;
    let storage = TestServer::start(|_| {
        let body = "<Error><Code>InvalidToken</Code><Message>m</Message></Error>";
        (400, "", body.to_owned())
    })
    .await;
    let bucket = open(&storage, &machine);
    for _ in 0..10 {
        let refused = read_once(&bucket).await.unwrap_err();
        // The next keys of the machine may be accepted: that is worth another attempt.
        assert_eq!(refused.kind(), ErrorKind::Temporary);
    }
    assert_eq!(machine.count(ROLE), 2);
    assert_eq!(storage.received().len(), 11, "one of the calls is repeated");
}

#[tokio::test]
async fn a_profile_whose_keys_expired_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let write = |number: usize| {
        let keys = format!(
            "[default]\naws_access_key_id=id{number}\naws_secret_access_key=s\naws_session_token=t{number}\n"
        );
        std::fs::write(&file, keys).unwrap();
    };
    write(1);
    let storage = storage("ExpiredToken").await;
    let location = format!("s3://b?endpoint={}", storage.address);
    let environment = variables(&[
        ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap()),
        ("HOME", "/nowhere"),
    ]);
    let bucket = Bucket::open(location.as_bytes(), &environment).unwrap();
    let refused = read_once(&bucket).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Temporary);
    assert!(refused.to_string().contains("log in again"), "{refused}");
    // Another program logs in again.
    let bucket = Bucket::open(location.as_bytes(), &environment).unwrap();
    write(2);
    bucket.any_below(b"", b"").await.unwrap();
}
