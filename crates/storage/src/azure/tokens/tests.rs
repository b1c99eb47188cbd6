use super::*;
use crate::azure::container::Container;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::test_server::{Received, TestServer, ok, outbound, variables};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A token service with another token every time.
async fn service(expiry: impl Fn() -> String + Send + Sync + 'static) -> TestServer {
    let issued = AtomicUsize::new(0);
    TestServer::start(move |_| {
        let number = issued.fetch_add(1, Ordering::Relaxed) + 1;
        ok(format!(r#"{{"access_token":"t{number}",{}}}"#, expiry()))
    })
    .await
}

fn tokens(source: Source) -> Tokens {
    let clients = Clients {
        proxied: outbound(),
        direct: outbound(),
    };
    Tokens {
        source,
        clients,
        current: Renewing::default(),
        chosen: OnceLock::new(),
    }
}

async fn token(pairs: &[(&str, &str)]) -> String {
    let tokens = tokens(source(&variables(pairs)));
    for _ in 0..3 {
        tokens.token().await.unwrap();
    }
    tokens.token().await.unwrap().to_str().unwrap().to_owned()
}

fn only(server: &TestServer) -> Received {
    let received = server.received();
    assert_eq!(
        received.len(),
        1,
        "one request for all tokens: {received:?}"
    );
    received[0].clone()
}

#[tokio::test]
async fn a_service_principal_sends_its_secret() {
    let entra = service(|| r#""expires_in":3599"#.to_owned()).await;
    let pairs = [
        ("AZURE_AUTHORITY_HOST", &*format!("{}/", entra.address)),
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_CLIENT_SECRET", "s/e+c"),
    ];
    assert_eq!(token(&pairs).await, "Bearer t1");
    let request = only(&entra);
    assert_eq!(request.line, "POST /tenant/oauth2/v2.0/token");
    for field in [
        "grant_type=client_credentials",
        "client_id=client",
        "client_secret=s%2Fe%2Bc",
        "scope=https%3A%2F%2Fstorage.azure.com%2F.default",
    ] {
        assert!(
            request.body.split('&').any(|one| one == field),
            "{field}: {}",
            request.body
        );
    }
}

#[tokio::test]
async fn a_workload_identity_sends_the_token_in_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "j.w.t\n").unwrap();
    let entra = service(|| r#""expires_in":3599"#.to_owned()).await;
    let pairs = [
        ("AZURE_AUTHORITY_HOST", &*entra.address),
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_FEDERATED_TOKEN_FILE", file.to_str().unwrap()),
    ];
    assert_eq!(token(&pairs).await, "Bearer t1");
    let request = only(&entra);
    let kind =
        "client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
    assert!(request.body.contains(kind), "{}", request.body);
    assert!(
        request.body.ends_with("client_assertion=j.w.t"),
        "{}",
        request.body
    );
}

#[tokio::test]
async fn the_identity_of_an_app_is_asked_with_its_secret() {
    let app = service(|| format!(r#""expires_on":"{}""#, now() + 3600)).await;
    let pairs = [
        ("IDENTITY_ENDPOINT", &*format!("{}/msi/token", app.address)),
        ("IDENTITY_HEADER", "let-me-in"),
        ("AZURE_CLIENT_ID", "assigned"),
    ];
    assert_eq!(token(&pairs).await, "Bearer t1");
    let request = only(&app);
    let line = "GET /msi/token?api-version=2019-08-01&resource=https%3A%2F%2Fstorage.azure.com&client_id=assigned";
    assert_eq!(request.line, line);
    assert_eq!(request.header("x-identity-header"), "let-me-in");
}

#[tokio::test]
async fn the_identity_of_a_machine_is_asked() {
    let imds = service(|| r#""expires_in":"3599""#.to_owned()).await;
    let pairs = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", &*imds.address)];
    assert_eq!(token(&pairs).await, "Bearer t1");
    let request = only(&imds);
    let line = "GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com";
    assert_eq!(request.line, line);
    assert_eq!(request.header("metadata"), "true");
}

#[tokio::test]
async fn the_tool_is_asked_where_no_machine_responds_and_kept() {
    let imds = TestServer::start(|_| (404, "", String::new())).await;
    let get = variables(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &imds.address)]);
    // Its token has nearly expired, so that it is asked again.
    let tool = r#"echo '{"accessToken":"from-az","expires_on":1}'"#;
    let tokens = tokens(Source::Ambient(super::imds(&get), tool));
    for _ in 0..3 {
        assert_eq!(tokens.token().await.unwrap(), "Bearer from-az");
    }
    assert_eq!(imds.received().len(), 1, "the machine is asked once");
}

#[tokio::test]
async fn without_any_identity_the_error_names_the_ways_out() {
    let imds = TestServer::start(|_| (404, "", String::new())).await;
    let get = variables(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &imds.address)]);
    let tool = "echo please log in >&2; exit 1";
    let refused = tokens(Source::Ambient(super::imds(&get), tool))
        .token()
        .await;
    let refused = refused.unwrap_err().to_string();
    for part in [
        "AZURE_STORAGE_KEY",
        "az login",
        "please log in",
        "?anonymous",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
}

#[tokio::test]
async fn a_token_that_expires_during_a_run_is_renewed_without_a_failure() {
    let entra = service(|| r#""expires_in":3599"#.to_owned()).await;
    let storage = TestServer::start(|request| match request.header("authorization") {
        // It expired early, as after a change of rights.
        "Bearer t1" => (
            401,
            "x-ms-error-code: InvalidAuthenticationInfo\r\n",
            String::new(),
        ),
        _ => ok("<EnumerationResults></EnumerationResults>"),
    })
    .await;
    let location = format!("azblob://account/container/?endpoint={}", storage.address);
    let environment = variables(&[
        ("AZURE_AUTHORITY_HOST", &entra.address),
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_CLIENT_SECRET", "secret"),
    ]);
    let container = Container::open(location.as_bytes(), &environment).unwrap();
    let checks = (0..20).map(|_| container.check());
    for checked in futures_util::future::join_all(checks).await {
        checked.unwrap();
    }
    assert_eq!(entra.received().len(), 2, "one renewal for all");
    assert!(storage.received().len() <= 40, "each call is repeated once");
}
