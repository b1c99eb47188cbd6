//! The console: a web page that shows any application.
//!
//! It renders panels and knows no application: every [`Panel`](headworks_service::panel::Panel) of
//! the admin listener appears. The page and its assets are embedded in the binary, and it requests
//! nothing from other hosts. [`Console`] takes a snapshot of every panel once a second, records the
//! values of every series ([`History`]) and streams the snapshot to every open page.

mod feed;
mod history;
mod page;

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::routing::get;
use headworks_service::admin::{Admin, Endpoint, HttpProblem};
use headworks_service::shutdown::Shutdown;
use http::StatusCode;
use serde::Deserialize;

use feed::Feed;
pub use history::{History, LineHistory, Points, SPANS, SeriesHistory, Span};

/// The page, its feed and its history.
pub struct Console;

impl Console {
    /// Adds the page to `admin`, with the panels added so far; samples until `shutdown`.
    ///
    /// ```
    /// # use headworks_console::Console;
    /// # use headworks_service::admin::{Admin, AdminConfig};
    /// # use headworks_service::shutdown::Shutdown;
    /// # use std::time::Duration;
    /// # let mut runtime = tokio::runtime::Builder::new_current_thread();
    /// # runtime.enable_all().build().unwrap().block_on(async {
    /// let shutdown = Shutdown::new();
    /// let admin = Console::mount(Admin::new(&AdminConfig::default()), &shutdown);
    /// assert_eq!(shutdown.running(), ["console"]);
    /// # drop(admin);
    /// # assert!(shutdown.drain(Duration::from_secs(5)).await.unfinished.is_empty());
    /// # });
    /// ```
    #[must_use]
    pub fn mount(admin: Admin, shutdown: &Shutdown) -> Admin {
        let feed = Arc::new(Feed::new(admin.panels().clone(), shutdown.token()));
        shutdown.spawn("console", Arc::clone(&feed).sample());
        let live = Router::new()
            .route("/admin/feed", get(feed::stream))
            .route("/admin/panels/{name}/history/{widget}", get(series))
            .with_state(feed);
        admin
            .routes(page::routes().merge(live))
            .endpoints(endpoints())
    }
}

fn endpoints() -> [Endpoint; 2] {
    [
        Endpoint::get(
            "/admin/feed",
            "a snapshot of all panels per second, as server-sent events",
        )
        .returns_text("text/event-stream"),
        Endpoint::get(
            "/admin/panels/{name}/history/{widget}",
            "the history of a series",
        )
        .query("span", "`10m` (default), `2h` or `24h`", false)
        .returns::<SeriesHistory>(),
    ]
}

#[derive(Deserialize)]
struct HistoryQuery {
    span: Option<String>,
}

async fn series(
    State(feed): State<Arc<Feed>>,
    Path((panel, widget)): Path<(String, String)>,
    Query(asked): Query<HistoryQuery>,
) -> Result<Json<SeriesHistory>, HttpProblem> {
    let name = asked.span.as_deref().unwrap_or(SPANS[0].name);
    let Some(span) = SPANS.iter().position(|span| span.name == name) else {
        let names = SPANS.map(|span| span.name).join(", ");
        let problem = HttpProblem::new(StatusCode::BAD_REQUEST, format!("unknown span `{name}`"));
        return Err(problem.remedy(format!("expected one of {names}")));
    };
    let past = feed.series(&panel, &widget, span);
    past.map(Json).ok_or_else(|| {
        let text = format!("no history for `{widget}` of `{panel}`");
        HttpProblem::new(StatusCode::NOT_FOUND, text).remedy("GET /admin/panels lists the series")
    })
}
