//! Views of a running gateway: statistics, explanations, metrics and the console's panel.

mod capacity_pools;
mod explain;
mod fleet;
mod key_panel;
mod keys;
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
    /// Routes for the admin listener: `/admin/scheduler/stats`, `/admin/scheduler/queues`,
    /// `/admin/explain/{id}`, `/admin/usage`, and those for keys and tenants below
    /// `/admin/gateway`.
    pub fn routes(&self) -> Router {
        routes::router(self.shared.clone())
    }

    /// Prometheus metrics.
    #[must_use]
    pub fn collector(&self) -> Arc<dyn Collect> {
        Arc::new(metrics::GatewayMetrics(self.shared.clone()))
    }

    /// The console's panel of the scheduler.
    #[must_use]
    pub fn engine(&self) -> Arc<dyn Panel> {
        let shared = self.shared.clone();
        let view = move || shared.permits.inspect();
        Arc::new(EnginePanel::new(
            "gateway-engine",
            "Gateway scheduler",
            view,
        ))
    }

    /// The console's panel of keys and tenants.
    #[must_use]
    pub fn key_panel(&self) -> Arc<dyn Panel> {
        Arc::new(key_panel::KeyPanel(self.shared.clone()))
    }

    /// The console's panel of the gateway.
    #[must_use]
    pub fn panel(&self) -> Arc<dyn Panel> {
        Arc::new(panel::GatewayPanel(self.shared.clone()))
    }

    /// The console's panel of the fleet, if this process belongs to one.
    #[must_use]
    pub fn fleet_panel(&self) -> Option<Arc<dyn Panel>> {
        let fleet = self.shared.fleet.clone()?;
        Some(Arc::new(fleet::FleetPanel(fleet)))
    }

    /// Prometheus metrics of the fleet, if this process belongs to one.
    #[must_use]
    pub fn fleet_collector(&self) -> Option<Arc<dyn Collect>> {
        let fleet = self.shared.fleet.clone()?;
        Some(Arc::new(fleet::FleetMetrics(fleet)))
    }
}
