//! What the gateway shows of itself: statistics and explanations, metrics, a panel.

mod explain;
mod metrics;
mod panel;
mod routes;
mod stats;
mod tables;
mod what_if;

use std::sync::Arc;

use axum::Router;
use headworks_service::metrics::Collect;
use headworks_service::panel::{EnginePanel, Panel};

use crate::gateway::Gateway;

impl Gateway {
    /// Its routes for the admin listener: `/admin/scheduler/stats`, `/admin/scheduler/queues`,
    /// `/admin/explain/{id}` and `/admin/usage`.
    pub fn routes(&self) -> Router {
        routes::router(self.shared.clone())
    }

    /// Its numbers for Prometheus.
    #[must_use]
    pub fn collector(&self) -> Arc<dyn Collect> {
        Arc::new(metrics::Numbers(self.shared.clone()))
    }

    /// What the console shows of its scheduler.
    #[must_use]
    pub fn engine(&self) -> Arc<dyn Panel> {
        let shared = self.shared.clone();
        let view = move || shared.permits.inspect();
        Arc::new(EnginePanel::new("gateway-engine", "Gateway's engine", view))
    }

    /// What the console shows of it.
    #[must_use]
    pub fn panel(&self) -> Arc<dyn Panel> {
        Arc::new(panel::GatewayPanel(self.shared.clone()))
    }
}
