//! The assets of the page, embedded in the binary.

use axum::Router;
use axum::routing::get;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};

/// Content security policy: scripts, styles and data from this host only; no inline scripts or
/// frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml";

macro_rules! files {
    ($($kind:ident $address:literal = $file:literal;)*) => {
        /// URL, content type and content.
        const FILES: &[(&str, &str, &str)] =
            &[$(($address, $kind, include_str!(concat!("../assets/", $file)))),*];
    };
}

files! {
    HTML "/" = "index.html";
    STYLE "/console/style.css" = "style.css";
    SCRIPT "/console/app.js" = "app.js";
    SCRIPT "/console/action.js" = "action.js";
    SCRIPT "/console/api.js" = "api.js";
    SCRIPT "/console/chart.js" = "chart.js";
    SCRIPT "/console/details.js" = "details.js";
    SCRIPT "/console/format.js" = "format.js";
    SCRIPT "/console/heat.js" = "heat.js";
    SCRIPT "/console/overview.js" = "overview.js";
    SCRIPT "/console/panel.js" = "panel.js";
    SCRIPT "/console/questions.js" = "questions.js";
    SCRIPT "/console/rounds.js" = "rounds.js";
    SCRIPT "/console/rows.js" = "rows.js";
    SCRIPT "/console/table.js" = "table.js";
    SCRIPT "/console/tree.js" = "tree.js";
    SCRIPT "/console/vendor/preact-htm.js" = "vendor/preact-htm.js";
    SCRIPT "/console/vendor/uplot.js" = "vendor/uplot.js";
    STYLE "/console/vendor/uplot.css" = "vendor/uplot.css";
    ICON "/console/icon.svg" = "icon.svg";
}

/// Routes that serve the assets.
pub(crate) fn routes() -> Router {
    FILES.iter().fold(Router::new(), |router, file| {
        let (address, kind, content) = *file;
        let headers = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY)];
        router.route(address, get(move || async move { (headers, content) }))
    })
}
