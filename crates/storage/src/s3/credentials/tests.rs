use super::*;
use crate::cloud::test_server::{TestServer, ok, outbound, variables};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn clients() -> Clients {
    Clients {
        proxied: outbound(),
        direct: outbound(),
    }
}

fn find(pairs: &[(&str, &str)], profile: Option<&str>) -> Result<(Credentials, ProfileDefaults)> {
    Credentials::find(&variables(pairs), profile, false, clients())
}

/// Serves each response once to a request that starts with this line, and records the requests.
async fn fake_server(
    answers: Vec<(&'static str, &'static str)>,
) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        for (line, answer) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            while !request.contains("\r\n\r\n") {
                let mut bytes = [0; 4096];
                let count = stream.read(&mut bytes).await.unwrap();
                request.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            assert!(request.starts_with(line), "{request}");
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            requests.push(request);
        }
        requests
    });
    (address, served)
}

#[tokio::test]
async fn the_environment_goes_first_and_is_redacted() {
    let pairs = [
        ("AWS_ACCESS_KEY_ID", "id-e"),
        ("AWS_SECRET_ACCESS_KEY", "secret-e"),
        ("AWS_SESSION_TOKEN", "token-e"),
        ("AWS_REGION", "eu-north-1"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
    ];
    let (credentials, defaults) = find(&pairs, None).unwrap();
    let keys = credentials.keys().await.unwrap().unwrap();
    assert_eq!(
        (keys.id.as_str(), keys.token.as_deref()),
        ("id-e", Some("token-e"))
    );
    assert_eq!(defaults.region.as_deref(), Some("eu-north-1"));
    assert_eq!(defaults.endpoint.as_deref(), Some("http://127.0.0.1:1"));
    let debug = format!("{credentials:?} {keys:?} {:?}", credentials.source);
    assert!(!debug.contains("secret-e") && !debug.contains("token-e") && !debug.contains("id-e"));
}

#[tokio::test]
async fn keys_with_the_end_of_their_line_are_used_and_of_two_lines_refused() {
    let with = |token| {
        let pairs = [
            ("AWS_ACCESS_KEY_ID", "id-e\n"),
            ("AWS_SECRET_ACCESS_KEY", "secret-e\n"),
            ("AWS_SESSION_TOKEN", token),
        ];
        find(&pairs, None)
    };
    let keys = with("token-e\n").unwrap().0.keys().await.unwrap().unwrap();
    let token = keys.token.as_deref();
    assert_eq!(
        (&*keys.id, &*keys.secret, token),
        ("id-e", "secret-e", Some("token-e"))
    );
    let refused = with("token-e\nmore").err().unwrap().to_string();
    assert!(
        refused.contains("one line") && !refused.contains("token-e"),
        "{refused}"
    );
}

#[tokio::test]
async fn profiles_are_read_from_both_files() {
    let dir = tempfile::tempdir().unwrap();
    let (credentials, config) = (dir.path().join("credentials"), dir.path().join("config"));
    std::fs::write(&credentials, "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n[work]\naws_access_key_id=w\naws_secret_access_key=ws\naws_session_token=wt\n").unwrap();
    std::fs::write(&config, "# comment\n[profile work]\nregion = eu-central-1\ns3 =\n  region = nested\nendpoint_url = http://e\n[profile sso]\nsso_session = x\n[profile role]\nrole_arn = r\nsource_profile = work\naws_access_key_id = raw\naws_secret_access_key = raw\n[profile it's]\nrole_arn = r\n").unwrap();
    let files = [
        ("AWS_SHARED_CREDENTIALS_FILE", credentials.to_str().unwrap()),
        ("AWS_CONFIG_FILE", config.to_str().unwrap()),
    ];
    let (found, _) = find(&files, None).unwrap();
    assert_eq!(found.keys().await.unwrap().unwrap().id, "d");
    let (found, defaults) = find(&files, Some("work")).unwrap();
    let keys = found.keys().await.unwrap().unwrap();
    assert_eq!(
        (keys.secret.as_str(), keys.token.as_deref()),
        ("ws", Some("wt"))
    );
    assert_eq!(defaults.region.as_deref(), Some("eu-central-1"));
    assert_eq!(defaults.endpoint.as_deref(), Some("http://e"));
    let refused = find(&files, Some("nobody")).unwrap_err().to_string();
    assert!(
        refused.contains("nobody") && refused.contains("no such profile"),
        "{refused}"
    );
    // Single sign-on and roles are left to AWS's own tool; the raw keys beside a role are not used.
    for profile in ["sso", "role", "it's"] {
        let (found, _) = find(&files, Some(profile)).unwrap();
        let Source::Process(_, command) = &found.source else {
            panic!("{:?}", found.source)
        };
        let quoted = profile.replace('\'', r"'\''");
        assert!(
            command.ends_with(&format!("--profile '{quoted}'")),
            "{command}"
        );
        assert!(
            command.starts_with("aws configure export-credentials"),
            "{command}"
        );
    }
    // Keys in the environment precede AWS_PROFILE, and a profile in the location precedes both.
    let named = [
        files[0],
        files[1],
        ("AWS_PROFILE", "work"),
        ("AWS_ACCESS_KEY_ID", "e"),
        ("AWS_SECRET_ACCESS_KEY", "e"),
    ];
    let id = async |pairs: &[(&str, &str)], profile| {
        let (found, _) = find(pairs, profile).unwrap();
        found.keys().await.unwrap().unwrap().id.clone()
    };
    assert_eq!(id(&named, None).await, "e");
    assert_eq!(id(&named, Some("work")).await, "w");
    assert_eq!(id(&named[..3], None).await, "w");
    let missing = [("AWS_PROFILE", "nobody"), named[3], named[4]];
    assert_eq!(id(&missing, None).await, "e");
    assert!(
        find(&missing[..2], None).is_err(),
        "a key without its secret is not used"
    );
}

#[tokio::test]
async fn a_web_identity_is_exchanged_for_keys_that_are_kept_until_they_expire() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "j.w.t\n").unwrap();
    let answer = "<R><C><AccessKeyId>wi</AccessKeyId><SecretAccessKey>ws</SecretAccessKey><SessionToken>wt</SessionToken><Expiration>2199-01-01T00:00:00Z</Expiration></C></R>";
    let (address, served) =
        fake_server(vec![("POST /?Action=AssumeRoleWithWebIdentity", answer)]).await;
    let pairs = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_ENDPOINT_URL_STS", address.as_str()),
    ];
    let (credentials, _) = find(&pairs, None).unwrap();
    for _ in 0..3 {
        let keys = credentials.keys().await.unwrap().unwrap();
        assert_eq!(
            (keys.id.as_str(), keys.token.as_deref()),
            ("wi", Some("wt"))
        );
    }
    let requests = served.await.unwrap();
    assert!(
        requests[0].contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr"),
        "{}",
        requests[0]
    );
    assert!(
        requests[0].contains("WebIdentityToken=j.w.t&")
            || requests[0].contains("WebIdentityToken=j.w.t ")
    );
}

#[tokio::test]
async fn the_role_of_a_machine_is_fetched_again_before_it_expires() {
    let soon = r#"{"AccessKeyId":"m1","SecretAccessKey":"s","Token":"t","Expiration":"2001-01-01T00:00:00Z"}"#;
    let late = r#"{"AccessKeyId":"m2","SecretAccessKey":"s","Token":"t","Expiration":"2199-01-01T00:00:00Z"}"#;
    let (token, list, role) = (
        ("PUT /latest/api/token", "tok"),
        ("GET /latest/meta-data/iam/security-credentials/ ", "worker"),
        "GET /latest/meta-data/iam/security-credentials/worker",
    );
    let (address, served) =
        fake_server(vec![token, list, (role, soon), token, list, (role, late)]).await;
    let (credentials, _) = find(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &address)], None).unwrap();
    assert_eq!(credentials.keys().await.unwrap().unwrap().id, "m1");
    assert_eq!(credentials.keys().await.unwrap().unwrap().id, "m2");
    assert_eq!(credentials.keys().await.unwrap().unwrap().id, "m2");
    let requests = served.await.unwrap();
    assert!(
        requests[1]
            .to_lowercase()
            .contains("x-aws-ec2-metadata-token: tok")
    );
}

#[tokio::test]
async fn a_container_is_asked_with_its_token() {
    let answer = r#"{"AccessKeyId":"c","SecretAccessKey":"s"}"#;
    let (address, served) = fake_server(vec![("GET /creds", answer)]).await;
    let pairs = [
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            &*format!("{address}/creds"),
        ),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "let-me-in"),
    ];
    let (credentials, _) = find(&pairs, None).unwrap();
    assert_eq!(credentials.keys().await.unwrap().unwrap().id, "c");
    assert!(served.await.unwrap()[0].contains("let-me-in"));
}

#[tokio::test]
async fn without_credentials_the_error_names_the_way_out() {
    let refused = find(&[("AWS_EC2_METADATA_DISABLED", "true")], None)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("AWS_ACCESS_KEY_ID") && refused.contains("?anonymous"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_program_is_not_run_for_every_request_though_its_keys_expire_soon() {
    let dir = tempfile::tempdir().unwrap();
    let (config, runs) = (dir.path().join("config"), dir.path().join("runs"));
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(200);
    let printed =
        format!(r#"{{"Version":1,"AccessKeyId":"i","SecretAccessKey":"s","Expiration":"{soon}"}}"#);
    let command = format!("echo x >> {}; echo '{printed}'", runs.display());
    std::fs::write(
        &config,
        format!("[default]\ncredential_process = {command}\n"),
    )
    .unwrap();
    let files = [("AWS_CONFIG_FILE", config.to_str().unwrap())];
    let (credentials, _) = find(&files, None).unwrap();
    for _ in 0..5 {
        credentials.keys().await.unwrap();
    }
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "x\n");
}

#[tokio::test]
async fn a_program_of_the_profile_prints_keys() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config");
    let printed = r#"{"Version":1,"AccessKeyId":"id-p","SecretAccessKey":"secret-p","SessionToken":"token-p","Expiration":"2099-01-01T00:00:00Z"}"#;
    let lines = format!(
        "[profile good]\ncredential_process = echo '{printed}'\n[profile old]\ncredential_process = echo '{{}}' secret-q\n[profile bad]\ncredential_process = echo no such luck >&2; exit 3\n"
    );
    std::fs::write(&config, lines).unwrap();
    let config = config.to_str().unwrap();
    let files = [("AWS_CONFIG_FILE", config), ("HOME", "/nowhere")];
    let (credentials, _) = find(&files, Some("good")).unwrap();
    assert!(!format!("{:?}", credentials.source).contains("secret"));
    let keys = credentials.keys().await.unwrap().unwrap();
    let fields = (
        keys.id.as_str(),
        keys.secret.as_str(),
        keys.token.as_deref(),
    );
    assert_eq!(fields, ("id-p", "secret-p", Some("token-p")));
    assert_eq!(keys.expires, Some(4_070_908_800));
    for (profile, message) in [("old", "not JSON credentials"), ("bad", "no such luck")] {
        let (credentials, _) = find(&files, Some(profile)).unwrap();
        let refused = credentials.keys().await.unwrap_err().to_string();
        assert!(
            refused.contains(message) && refused.contains(profile),
            "{refused}"
        );
        assert!(!refused.contains("secret-q"), "{refused}");
    }
}

#[tokio::test]
async fn the_token_service_is_reached_through_the_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "j.w.t").unwrap();
    let answer = "<R><AccessKeyId>wi</AccessKeyId><SecretAccessKey>ws</SecretAccessKey><SessionToken>wt</SessionToken></R>";
    let proxy = TestServer::start(move |_| ok(answer)).await;
    let matcher = hyper_util::client::proxy::matcher::Matcher::builder()
        .http(proxy.address.clone())
        .build();
    let mut clients = clients();
    clients.proxied = headworks_outbound::Outbound::with_proxies(
        headworks_outbound::Settings::default(),
        matcher,
    )
    .unwrap();
    // The name exists for the proxy only.
    let pairs = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_ENDPOINT_URL_STS", "http://sts.invalid"),
    ];
    let found = Credentials::find(&variables(&pairs), None, false, clients);
    let keys = found.unwrap().0.keys().await.unwrap().unwrap();
    assert_eq!(keys.id, "wi");
    let received = proxy.received();
    assert!(
        received[0]
            .line
            .starts_with("POST http://sts.invalid/?Action=")
    );
}

#[tokio::test]
async fn the_token_service_of_the_region_is_asked() {
    let service = |pairs: &[(&str, &str)]| {
        let all = [
            pairs,
            &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/f"), ("HOME", "/nowhere")],
        ];
        match find(&all.concat(), None).unwrap().0.source {
            Source::WebIdentity(identity) => identity.service().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    let (role, china) = ("arn:aws:iam::1:role/r", "arn:aws-cn:iam::1:role/r");
    let region = ("AWS_REGION", "eu-north-1");
    assert_eq!(
        service(&[("AWS_ROLE_ARN", role), region]),
        "https://sts.eu-north-1.amazonaws.com"
    );
    assert_eq!(
        service(&[("AWS_ROLE_ARN", china)]),
        "https://sts.cn-north-1.amazonaws.com.cn"
    );
    let other = ("AWS_ENDPOINT_URL_STS", "http://h");
    assert_eq!(
        service(&[("AWS_ROLE_ARN", role), region, other]),
        "http://h"
    );
}

#[tokio::test]
async fn a_machine_with_the_first_version_of_its_service_is_asked_without_a_token() {
    let keys = r#"{"AccessKeyId":"m1","SecretAccessKey":"s","Token":"t"}"#;
    let machine = TestServer::start(move |request| match request.line.as_str() {
        "GET /latest/meta-data/iam/security-credentials/" => ok("worker"),
        "GET /latest/meta-data/iam/security-credentials/worker" => ok(keys),
        _ => (404, "", String::new()),
    })
    .await;
    let variable = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*machine.address);
    let (credentials, _) = find(&[variable], None).unwrap();
    assert_eq!(credentials.keys().await.unwrap().unwrap().id, "m1");
    let received = machine.received();
    assert!(
        received
            .iter()
            .all(|one| one.header("x-aws-ec2-metadata-token").is_empty())
    );
}

#[tokio::test]
async fn a_container_is_asked_with_the_token_that_its_file_has_now() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let container = TestServer::start(|_| {
        ok(r#"{"AccessKeyId":"c","SecretAccessKey":"s","Expiration":"2001-01-01T00:00:00Z"}"#)
    })
    .await;
    let pairs = [
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            &*format!("{}/v1/credentials", container.address),
        ),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            file.to_str().unwrap(),
        ),
    ];
    let (credentials, _) = find(&pairs, None).unwrap();
    for token in ["first", "second"] {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        credentials.keys().await.unwrap();
    }
    let received = container.received();
    let sent: Vec<_> = received
        .iter()
        .map(|one| one.header("authorization"))
        .collect();
    assert_eq!(sent, ["first", "second"]);
}
