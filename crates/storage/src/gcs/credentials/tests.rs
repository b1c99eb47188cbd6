use super::*;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::percent;
use crate::cloud::test_server::{Received, TestServer, ok, outbound, time_in, variables};
use crate::gcs::bucket::Bucket;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder with the file of an account.
struct AccountFile(tempfile::TempDir);

impl AccountFile {
    fn new(account: &serde_json::Value) -> AccountFile {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("account.json"), account.to_string()).unwrap();
        AccountFile(dir)
    }

    fn credentials(&self, more: &[(&str, &str)]) -> Result<Credentials> {
        let path = self.0.path().join("account.json");
        let file = ("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap());
        let clients = Clients {
            proxied: outbound(),
            direct: outbound(),
        };
        Credentials::find(&variables(&[&[file], more].concat()), false, clients)
    }
}

async fn token(credentials: &Credentials) -> String {
    let token = credentials.token().await.unwrap().unwrap();
    token.to_str().unwrap().to_owned()
}

fn field(request: &Received, name: &str) -> String {
    let mut pairs = request
        .body
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(key, _)| *key == name).map(|(_, value)| value);
    let value = percent::decode(value.unwrap_or_default().as_bytes());
    String::from_utf8(value).unwrap()
}

/// Google's token services, and a provider of other tokens.
async fn google() -> TestServer {
    let issued = AtomicUsize::new(0);
    TestServer::start(move |request| {
        let number = issued.load(Ordering::Relaxed) + 1;
        match request.line.as_str() {
            "POST /sts" => ok(format!(
                r#"{{"access_token":"federated{number}","expires_in":3600,"token_type":"Bearer"}}"#
            )),
            "POST /user" => ok(r#"{"access_token":"user","expires_in":3600}"#),
            "POST /impersonate" => {
                issued.fetch_add(1, Ordering::Relaxed);
                let until = time_in(3600);
                ok(format!(
                    r#"{{"accessToken":"account{number}","expireTime":"{until}"}}"#
                ))
            }
            "GET /provider?a=b" => ok(r#"{"id_token":"from-url"}"#),
            _ => (404, "", String::new()),
        }
    })
    .await
}

fn external(google: &TestServer, source: &serde_json::Value) -> serde_json::Value {
    serde_json::json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{}/sts", google.address),
        "credential_source": source,
    })
}

#[tokio::test]
async fn a_token_in_a_file_is_exchanged() {
    let google = google().await;
    let dir = tempfile::tempdir().unwrap();
    let subject = dir.path().join("subject");
    for (text, format) in [
        ("j.w.t\n", serde_json::json!({"type": "text"})),
        (
            r#"{"t":"j.w.t"}"#,
            serde_json::json!({"type": "json", "subject_token_field_name": "t"}),
        ),
    ] {
        std::fs::write(&subject, text).unwrap();
        let source = serde_json::json!({"file": subject, "format": format});
        let file = AccountFile::new(&external(&google, &source));
        let credentials = file.credentials(&[]).unwrap();
        for _ in 0..3 {
            assert_eq!(token(&credentials).await, "Bearer federated1");
        }
        let request = google.received().pop().unwrap();
        assert_eq!(field(&request, "subject_token"), "j.w.t");
        assert_eq!(field(&request, "audience"), "//iam.googleapis.com/pool");
        assert_eq!(field(&request, "scope"), SCOPE);
        let grant = "urn:ietf:params:oauth:grant-type:token-exchange";
        assert_eq!(field(&request, "grant_type"), grant);
    }
    assert_eq!(google.count("POST /sts"), 2, "once per account");
}

#[tokio::test]
async fn a_token_from_a_url_is_exchanged_and_an_account_impersonated() {
    let google = google().await;
    let source = serde_json::json!({
        "url": format!("{}/provider?a=b", google.address),
        "headers": {"Metadata": "True"},
        "format": {"type": "json", "subject_token_field_name": "id_token"},
    });
    let mut account = external(&google, &source);
    account["service_account_impersonation_url"] = format!("{}/impersonate", google.address).into();
    account["service_account_impersonation"] = serde_json::json!({"token_lifetime_seconds": 900});
    let file = AccountFile::new(&account);
    assert_eq!(
        token(&file.credentials(&[]).unwrap()).await,
        "Bearer account1"
    );
    let [provider, sts, impersonate] = &google.received()[..] else {
        panic!("{:?}", google.received())
    };
    assert_eq!(provider.header("metadata"), "True");
    assert_eq!(field(sts, "subject_token"), "from-url");
    assert_eq!(field(sts, "scope"), impersonation::EXCHANGE_SCOPE);
    assert_eq!(impersonate.header("authorization"), "Bearer federated1");
    let body: serde_json::Value = serde_json::from_str(&impersonate.body).unwrap();
    assert_eq!(body["scope"][0], SCOPE);
    assert_eq!(body["lifetime"], "900s");
}

#[tokio::test]
async fn a_request_that_aws_would_accept_is_exchanged() {
    let google = google().await;
    let machine = TestServer::start(|request| match request.line.as_str() {
        "PUT /latest/api/token" => ok("tok"),
        "GET /zone" if request.header("x-aws-ec2-metadata-token") == "tok" => ok("eu-north-1a"),
        "GET /latest/meta-data/iam/security-credentials/" => ok("role"),
        "GET /latest/meta-data/iam/security-credentials/role" => {
            ok(r#"{"AccessKeyId":"AKID","SecretAccessKey":"s","Token":"session"}"#)
        }
        _ => (404, "", String::new()),
    })
    .await;
    let at = |path: &str| format!("{}{path}", machine.address);
    let source = serde_json::json!({
        "environment_id": "aws1",
        "region_url": at("/zone"),
        "url": at("/latest/meta-data/iam/security-credentials"),
        "regional_cred_verification_url":
            "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15",
    });
    let file = AccountFile::new(&external(&google, &source));
    let credentials = file.credentials(&[("HOME", "/nowhere")]).unwrap();
    assert_eq!(token(&credentials).await, "Bearer federated1");
    let subject = field(&google.received()[0], "subject_token");
    let subject = String::from_utf8(percent::decode(subject.as_bytes())).unwrap();
    let subject: serde_json::Value = serde_json::from_str(&subject).unwrap();
    let url = "https://sts.eu-north-1.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15";
    assert_eq!(
        (&subject["url"], &subject["method"]),
        (&url.into(), &"POST".into())
    );
    let headers = subject["headers"].as_array().unwrap();
    let header = |name: &str| {
        let found = headers.iter().find(|one| one["key"] == name);
        found.unwrap_or_else(|| panic!("{name}: {headers:?}"))["value"]
            .as_str()
            .unwrap()
    };
    assert_eq!(header("host"), "sts.eu-north-1.amazonaws.com");
    assert_eq!(
        header("x-goog-cloud-target-resource"),
        "//iam.googleapis.com/pool"
    );
    assert_eq!(header("x-amz-security-token"), "session");
    let authorization = header("authorization");
    assert!(
        authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"),
        "{authorization}"
    );
    assert!(
        authorization.contains("/eu-north-1/sts/aws4_request"),
        "{authorization}"
    );
    let signed = "SignedHeaders=host;x-amz-date;x-amz-security-token;x-goog-cloud-target-resource";
    assert!(authorization.contains(signed), "{authorization}");
}

fn impersonated(google: &TestServer) -> serde_json::Value {
    serde_json::json!({
        "type": "impersonated_service_account",
        "service_account_impersonation_url": format!("{}/impersonate", google.address),
        "delegates": ["by-way-of"],
        "source_credentials": {
            "type": "authorized_user",
            "client_id": "c", "client_secret": "s", "refresh_token": "r",
            "token_uri": format!("{}/user", google.address),
        },
    })
}

#[tokio::test]
async fn a_user_impersonates_an_account() {
    let google = google().await;
    let file = AccountFile::new(&impersonated(&google));
    assert_eq!(
        token(&file.credentials(&[]).unwrap()).await,
        "Bearer account1"
    );
    let request = google.received().pop().unwrap();
    assert_eq!(request.header("authorization"), "Bearer user");
    let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(
        (&body["delegates"][0], &body["lifetime"]),
        (&"by-way-of".into(), &"3600s".into())
    );
}

#[tokio::test]
async fn the_account_of_a_machine_is_asked() {
    let machine = TestServer::start(|_| ok(r#"{"access_token":"m","expires_in":3600}"#)).await;
    let host = machine.address.strip_prefix("http://").unwrap();
    let clients = Clients {
        proxied: outbound(),
        direct: outbound(),
    };
    let environment = variables(&[("GCE_METADATA_HOST", host), ("HOME", "/nowhere")]);
    let credentials = Credentials::find(&environment, false, clients).unwrap();
    assert_eq!(token(&credentials).await, "Bearer m");
    assert_eq!(machine.received()[0].header("metadata-flavor"), "Google");
}

#[test]
fn an_incomplete_or_unknown_file_is_refused_without_its_content() {
    for account in [
        serde_json::json!({"type": "external_account", "audience": "top-secret"}),
        serde_json::json!({"type": "gdch_service_account", "private_key": "top-secret"}),
        serde_json::json!(["top-secret"]),
    ] {
        let refused = AccountFile::new(&account).credentials(&[]).err().unwrap();
        let refused = refused.to_string();
        assert!(!refused.contains("top-secret"), "{refused}");
    }
}

#[tokio::test]
async fn a_token_that_expires_during_a_run_is_renewed_without_a_failure() {
    let google = google().await;
    let storage = TestServer::start(|request| match request.header("authorization") {
        "Bearer account1" => (401, "", "{}".to_owned()),
        _ => ok("{}"),
    })
    .await;
    let file = AccountFile::new(&impersonated(&google));
    let path = file.0.path().join("account.json");
    let environment = variables(&[("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap())]);
    let location = format!("gs://b?endpoint={}", storage.address);
    let bucket = Bucket::open(location.as_bytes(), &environment).unwrap();
    let checks = (0..20).map(|_| bucket.check());
    for checked in futures_util::future::join_all(checks).await {
        checked.unwrap();
    }
    assert_eq!(google.count("POST /impersonate"), 2, "one renewal for all");
    assert!(storage.received().len() <= 40, "each call is repeated once");
}

fn service_account(google: &TestServer) -> serde_json::Value {
    serde_json::json!({
        "type": "service_account",
        "client_email": "robot@project.invalid",
        "private_key_id": "key-1",
        "private_key": include_str!("../../../tests/keys/service-account.pem"),
        "token_uri": format!("{}/token", google.address),
    })
}

/// Returns the claims of a JWT whose signature is right.
fn verified_claims(assertion: &str) -> serde_json::Value {
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    let json = |text: &str| serde_json::from_slice::<serde_json::Value>(&decode(text)).unwrap();
    assert_eq!(
        json(header),
        serde_json::json!({"alg": "RS256", "typ": "JWT", "kid": "key-1"})
    );
    let supported = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let scheme = rustls::SignatureScheme::RSA_PKCS1_SHA256;
    let mut found = supported.mapping.iter();
    let (_, algorithms) = found.find(|(one, _)| *one == scheme).unwrap();
    let key = include_bytes!("../../../tests/keys/service-account.pub");
    let verified = algorithms[0].verify_signature(key, signed.as_bytes(), &decode(signature));
    assert!(verified.is_ok(), "the signature is wrong");
    json(claims)
}

#[tokio::test]
async fn a_service_account_signs_its_request() {
    let google = TestServer::start(|_| ok(r#"{"access_token":"robot","expires_in":3600}"#)).await;
    let file = AccountFile::new(&service_account(&google));
    let credentials = file.credentials(&[]).unwrap();
    let before = now();
    assert_eq!(token(&credentials).await, "Bearer robot");
    assert_eq!(token(&credentials).await, "Bearer robot");
    let received = google.received();
    assert_eq!(received.len(), 1, "the token is kept");
    let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
    assert_eq!(field(&received[0], "grant_type"), grant);
    let claims = verified_claims(&field(&received[0], "assertion"));
    assert_eq!(claims["iss"], "robot@project.invalid");
    assert_eq!(claims["scope"], SCOPE);
    assert_eq!(claims["aud"], format!("{}/token", google.address));
    let issued = claims["iat"].as_i64().unwrap();
    assert!((before..=now()).contains(&issued), "{issued}");
    assert_eq!(claims["exp"].as_i64().unwrap(), issued + 3600);
    assert_eq!(credentials.notice(), None);
}

#[tokio::test]
async fn a_wrong_clock_is_corrected_and_said() {
    let google = TestServer::start(|request| {
        let claims = verified_claims(&field(request, "assertion"));
        let issued = claims["iat"].as_i64().unwrap();
        // The first of March, 2001.
        if issued.abs_diff(983_404_800) < 3600 {
            return ok(r#"{"access_token":"robot","expires_in":3600}"#);
        }
        let body = r#"{"error":"invalid_grant","error_description":"Invalid JWT"}"#;
        let date = "date: Thu, 01 Mar 2001 00:00:00 GMT\r\n";
        (400, date, body.to_owned())
    })
    .await;
    let file = AccountFile::new(&service_account(&google));
    let credentials = file.credentials(&[]).unwrap();
    assert_eq!(token(&credentials).await, "Bearer robot");
    assert_eq!(google.received().len(), 2, "only the first is repeated");
    let notice = credentials.notice().unwrap();
    assert!(notice.contains("ahead of that of the service"), "{notice}");
}

#[tokio::test]
async fn a_refused_key_is_not_taken_for_a_wrong_clock() {
    let google = TestServer::start(|_| {
        let body = r#"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#;
        (400, "", body.to_owned())
    })
    .await;
    let file = AccountFile::new(&service_account(&google));
    let refused = file.credentials(&[]).unwrap().token().await.unwrap_err();
    assert!(
        refused.to_string().contains("Invalid JWT Signature."),
        "{refused}"
    );
    assert_eq!(google.received().len(), 1);
}
