//! End-to-end tests of the admin listener with curl and a fake application.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use headworks_service::Error;
use headworks_service::admin::{Admin, AdminConfig};
use headworks_service::config::{Schema, Sources};
use headworks_service::panel::{Panel, Snapshot};
use headworks_service::reload::Reloader;
use headworks_service::shutdown::Shutdown;
use serde_json::json;
use support::curl::{Response, curl};
use support::waterworks::Waterworks;

const TOKEN: &str = "a-token-for-tests";

/// An admin listener on its own thread; stops on drop.
struct Running {
    base: String,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Running {
        let shutdown = Shutdown::new();
        let (send, receive) = mpsc::channel();
        let stop = shutdown.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let sources = Sources::new()
                    .flag("--set", "admin.listen", "127.0.0.1:0")
                    .flag("--set", "admin.token", TOKEN)
                    .flag("--set", "admin.header_timeout", "500ms");
                let reloader = Reloader::start(Schema::shared(), sources).unwrap();
                let config = reloader.current().section::<AdminConfig>();
                let listening = Admin::new(&config)
                    .panel(Arc::new(Waterworks::default()))
                    .reloader(reloader)
                    .routes(
                        Router::new()
                            .route("/extra", get(|| async { "more" }))
                            .route(
                                "/upload",
                                post(|body: Bytes| async move { body.len().to_string() }),
                            ),
                    )
                    .bind()
                    .await
                    .unwrap();
                assert_eq!(listening.generated_token(), None);
                send.send(format!("http://{}", listening.address()))
                    .unwrap();
                listening.serve(&stop);
                stop.requested().await;
                assert!(
                    stop.drain(Duration::from_secs(10))
                        .await
                        .unfinished
                        .is_empty()
                );
            });
        });
        let base = receive.recv().unwrap();
        Running {
            base,
            shutdown,
            thread: Some(thread),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn get(&self, path: &str) -> Response {
        curl(&["--oauth2-bearer", TOKEN, &self.url(path)])
    }

    fn post(&self, path: &str, body: &str) -> Response {
        curl(&["--oauth2-bearer", TOKEN, "--data", body, &self.url(path)])
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.request();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

#[test]
fn only_health_answers_without_a_token() {
    let admin = Running::start();
    assert_eq!(curl(&[&admin.url("/healthz")]).status, 200);
    for path in ["/metrics", "/admin/panels", "/extra", "/nowhere"] {
        let refused = curl(&[&admin.url(path)]);
        assert_eq!(refused.status, 401, "{path}");
        assert_eq!(
            refused.json()["error"],
            "authentication required: a token is missing"
        );
    }
    for path in ["/metrics", "/admin/panels", "/extra"] {
        assert_eq!(admin.get(path).status, 200, "{path}");
    }
    assert_eq!(admin.get("/nowhere").status, 404);
    assert_eq!(admin.get("/admin/reload").status, 405);
}

#[test]
fn wrong_tokens_are_slowed_down() {
    let admin = Running::start();
    let guess = |n: usize| {
        curl(&[
            "--oauth2-bearer",
            &format!("guess-{n}"),
            &admin.url("/metrics"),
        ])
    };
    for n in 0..10 {
        assert_eq!(guess(n).status, 401);
    }
    // Guesses expire slowly; these arrive faster.
    let limited = (10..100).map(guess).find(|answer| answer.status == 429);
    let limited = limited.expect("guessing ends");
    assert!(limited.headers.contains("retry-after: "), "{limited:?}");
    // The right token from the same address is still accepted.
    assert_eq!(admin.get("/metrics").status, 200);
}

/// Sends `said` on a new connection and returns everything received until it is closed.
fn exchange(admin: &Running, said: &str) -> String {
    let mut stream = TcpStream::connect(admin.base.trim_start_matches("http://")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(said.as_bytes()).unwrap();
    let mut heard = String::new();
    stream
        .read_to_string(&mut heard)
        .expect("it is closed in time");
    heard
}

#[test]
fn a_client_that_sends_no_request_is_disconnected() {
    let admin = Running::start();
    for said in ["", "GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: "] {
        let heard = exchange(&admin, said);
        assert!(
            heard.is_empty() || heard.starts_with("HTTP/1.1 408"),
            "{heard}"
        );
    }
    // An idle connection is closed as well, after its response.
    let heard = exchange(&admin, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        heard.starts_with("HTTP/1.1 200") && heard.ends_with("ok\n"),
        "{heard}"
    );
}

#[test]
fn http_1_1_requires_exactly_one_host() {
    let admin = Running::start();
    let status = |said: &str| exchange(&admin, said).split(' ').nth(1).map(str::to_owned);
    assert_eq!(
        status("GET /healthz HTTP/1.1\r\n\r\n").as_deref(),
        Some("400")
    );
    let two = "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    assert_eq!(status(two).as_deref(), Some("400"));
    assert_eq!(
        status("GET /healthz HTTP/1.0\r\n\r\n").as_deref(),
        Some("200")
    );
}

#[test]
fn the_index_lists_every_endpoint() {
    let admin = Running::start();
    assert_eq!(curl(&[&admin.url("/")]).status, 401);
    let index = admin.get("/");
    assert_eq!(index.status, 200);
    let index = index.json();
    let routes = index["routes"].as_array().unwrap();
    for route in routes {
        let (method, path) = (
            route["method"].as_str().unwrap(),
            route["path"].as_str().unwrap(),
        );
        let path = path
            .replace("{name}", "waterworks")
            .replace("{widget}", "canals");
        let path = path
            .replace("{subject}", "source/0/1")
            .replace("{action}", "open");
        let answer = curl(&[
            "--oauth2-bearer",
            TOKEN,
            "--request",
            method,
            &admin.url(&path),
        ]);
        assert!(
            ![404, 405, 501].contains(&answer.status),
            "{method} {path}: {answer:?}"
        );
    }
    let nowhere = admin.get("/nowhere");
    assert_eq!(nowhere.status, 404);
    let way_out = nowhere.json()["way_out"].as_str().unwrap().to_owned();
    for route in routes {
        assert!(
            way_out.contains(route["path"].as_str().unwrap()),
            "{way_out}"
        );
    }
    assert_eq!(admin.post("/", "").status, 405);
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let admin = Running::start();
    let long = std::env::temp_dir().join(format!("headworks-body-{}", std::process::id()));
    std::fs::write(&long, vec![b' '; 300 << 10]).unwrap();
    let body = format!("@{}", long.display());
    for path in ["/admin/reload", "/admin/panels/waterworks/act/open"] {
        let refused = curl(&[
            "--oauth2-bearer",
            TOKEN,
            "--header",
            "Expect:",
            "--data-binary",
            &body,
            &admin.url(path),
        ]);
        assert_eq!(refused.status, 413, "{path}");
        assert_eq!(refused.json()["error"], "the body exceeds 256 KiB");
    }
    // Routes that the program adds have the same limit.
    let refused = curl(&[
        "--oauth2-bearer",
        TOKEN,
        "--header",
        "Expect:",
        "--data-binary",
        &body,
        &admin.url("/upload"),
    ]);
    assert_eq!(refused.status, 413);
    assert_eq!(admin.post("/upload", "short").body, "5");
    std::fs::remove_file(&long).unwrap();
}

#[test]
fn the_redirect_has_no_token_however_its_name_is_encoded() {
    let admin = Running::start();
    for query in [
        format!("a=1&%74oken={TOKEN}&b=%20"),
        format!("%74%6F%6b%65%6E={TOKEN}&a=1&token={TOKEN}&b=%20"),
    ] {
        let first = curl(&[&admin.url(&format!("/extra?{query}"))]);
        assert_eq!(first.status, 303);
        let location = "location: /extra?a=1&b=%20\r\n";
        assert!(first.headers.contains(location), "{first:?}");
    }
}

#[test]
fn a_browser_gets_a_cookie_and_needs_a_header_to_change_things() {
    let admin = Running::start();
    let first = curl(&[&admin.url(&format!("/extra?a=1&token={TOKEN}"))]);
    assert_eq!(first.status, 303);
    assert!(
        first.headers.contains("location: /extra?a=1\r\n"),
        "{first:?}"
    );
    assert!(
        first.headers.contains("HttpOnly; SameSite=Strict"),
        "{first:?}"
    );
    assert!(
        !first.headers.contains(TOKEN),
        "the cookie is not the token"
    );
    let cookie = first
        .headers
        .split("set-cookie: ")
        .nth(1)
        .unwrap()
        .split(';')
        .next()
        .unwrap();

    let seen = curl(&["--cookie", cookie, &admin.url("/extra")]);
    assert_eq!((seen.status, seen.body.as_str()), (200, "more"));
    let open = admin.url("/admin/panels/waterworks/act/open");
    let body = r#"{"gates": 1}"#;
    let forged = curl(&["--cookie", cookie, "--data", body, &open]);
    assert_eq!(forged.status, 403);
    let meant = curl(&[
        "--cookie",
        cookie,
        "--header",
        "x-headworks: 1",
        "--data",
        body,
        &open,
    ]);
    assert_eq!(meant.status, 200);
}

#[test]
fn every_widget_can_be_drawn_without_knowing_the_application() {
    let admin = Running::start();
    let panels = admin.get("/admin/panels").json();
    assert_eq!(panels["panels"][0]["name"], "waterworks");
    let panel = admin.get("/admin/panels/waterworks").json();
    let snapshot: Snapshot = serde_json::from_value(panel["snapshot"].clone()).unwrap();
    assert_eq!(snapshot, Waterworks::default().snapshot());
    let kinds = panel["snapshot"]["widgets"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds
        .map(|widget| widget["body"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["series", "table", "tree", "rounds", "heat_map", "action"]
    );
    let mut short = panel;
    for widget in [1, 2] {
        let rows = &mut short["snapshot"]["widgets"][widget]["body"]["page"]["rows"];
        rows.as_array_mut().unwrap().truncate(1);
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&short).unwrap());
}

#[test]
fn pages_follow_cursors_to_the_end() {
    let admin = Running::start();
    let mut page =
        admin.get("/admin/panels/waterworks").json()["snapshot"]["widgets"][1]["body"]["page"]
            .clone();
    let mut rows = page["rows"].as_array().unwrap().len();
    while let Some(cursor) = page["next"].as_str() {
        page = admin
            .get(&format!(
                "/admin/panels/waterworks/page/canals?cursor={cursor}"
            ))
            .json();
        rows += page["rows"].as_array().unwrap().len();
    }
    assert_eq!(rows, 250);
    let below = admin
        .get("/admin/panels/waterworks/page/network?cursor=source/0")
        .json();
    assert_eq!(below["rows"][1]["id"], "source/0/1");
    assert_eq!(
        admin
            .get("/admin/panels/waterworks/page/canals?cursor=x")
            .status,
        410
    );
    assert_eq!(
        admin.get("/admin/panels/waterworks/page/canals").status,
        400
    );
    assert_eq!(
        admin
            .get("/admin/panels/waterworks/page/none?cursor=x")
            .status,
        404
    );
}

#[test]
fn actions_questions_and_their_errors() {
    let admin = Running::start();
    let path = |rest: &str| format!("/admin/panels/waterworks/{rest}");
    let opened = admin.post(&path("act/open"), r#"{"gates": 2}"#).json();
    assert_eq!(
        opened,
        json!({"message": "opened 2 gates", "details": {"open": 2}})
    );
    assert_eq!(
        admin.get(&path("explain/source/0/1")).json()["subject"],
        "source/0/1"
    );
    let question = r#"{"changes": [{"key": "pumps", "value": 3}]}"#;
    assert_eq!(
        admin.post(&path("what-if"), question).json()["compared"][0]["then"],
        150.0
    );

    let errors = [
        admin.get("/admin/panels/brewery"),
        admin.post(&path("act/open"), ""),
        admin.post(&path("act/open"), r#"{"gates": "two"}"#),
        admin.post(&path("act/open"), r#"{"gates": "#),
        admin.post(&path("act/paint"), ""),
        admin.post(&path("act/flood"), ""),
        admin.get(&path("explain/weather")),
        admin.post(&path("what-if"), r#"{"changes": []}"#),
    ];
    let lines: Vec<_> = errors
        .iter()
        .map(|e| format!("{} {}", e.status, e.body))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn metrics_count_what_happened() {
    let admin = Running::start();
    assert_eq!(curl(&[&admin.url("/metrics")]).status, 401);
    assert_eq!(curl(&[&admin.url("/healthz")]).status, 200);
    assert_eq!(admin.post("/admin/reload", "").status, 200);
    let metrics = admin.get("/metrics");
    assert!(
        metrics
            .headers
            .contains("content-type: text/plain; version=0.0.4")
    );
    for line in [
        "headworks_admin_requests_total{answer=\"2xx\"} 2\n",
        "headworks_admin_requests_total{answer=\"4xx\"} 1\n",
        "headworks_admin_refused_total 1\n",
        "headworks_admin_reloads_total{outcome=\"done\"} 1\n",
        "# TYPE headworks_admin_requests_total counter\n",
    ] {
        assert!(metrics.body.contains(line), "{line} in {}", metrics.body);
    }
}

#[tokio::test]
async fn control_is_not_handed_to_the_network_without_a_token() {
    let mut config = AdminConfig::default();
    config.listen = "0.0.0.0:0".parse().unwrap();
    let refused = Admin::new(&config).bind().await;
    assert!(matches!(refused.err(), Some(Error::TokenRequired(_))));
}

#[test]
fn the_openapi_document_describes_every_endpoint() {
    let admin = Running::start();
    let document = admin.get("/admin/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let index = admin.get("/").json();
    for route in index["routes"].as_array().unwrap() {
        let method = route["method"].as_str().unwrap().to_lowercase();
        let told = &document["paths"][route["path"].as_str().unwrap()][method];
        assert_eq!(told["summary"], route["what"], "{route}");
    }
    // Every reference resolves.
    let text = document.to_string();
    let references: Vec<_> = text.split("\"#/components/schemas/").skip(1).collect();
    assert!(references.len() > 20, "{} references", references.len());
    for reference in references {
        let name = reference.split('"').next().unwrap();
        assert!(
            document["components"]["schemas"][name].is_object(),
            "{name}"
        );
    }
}

#[test]
fn a_person_without_a_token_is_asked_for_it() {
    let admin = Running::start();
    let asked = curl(&["--header", "Accept: text/html", &admin.url("/")]);
    assert_eq!(asked.status, 401);
    assert!(asked.body.contains("<form"), "{}", asked.body);
    assert!(
        asked
            .headers
            .contains("content-security-policy: default-src 'none'"),
        "{}",
        asked.headers
    );
}

#[test]
fn a_page_of_another_origin_cannot_act() {
    let admin = Running::start();
    let first = curl(&[&admin.url(&format!("/?token={TOKEN}"))]);
    let cookie = first.headers.split("set-cookie: ").nth(1).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let open = admin.url("/admin/panels/waterworks/act/open");
    let act = |site: &str| {
        let site = format!("sec-fetch-site: {site}");
        let headers = ["--header", "x-headworks: 1", "--header", &site];
        let sent = ["--cookie", cookie, "--data", r#"{"gates": 1}"#, &open];
        curl(&[&headers[..], &sent[..]].concat()).status
    };
    assert_eq!(act("cross-site"), 403);
    // The cookie is sent to other ports of the same host, too.
    assert_eq!(act("same-site"), 403);
    assert_eq!(act("same-origin"), 200);
}
