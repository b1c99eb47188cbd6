//! The gateway's answers to the requests of an HTTP/1 connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use headworks_h1::{HeadError, Received, RequestBody, Service, Transport};
use http::request::Parts;
use http::{HeaderMap, Response};
use parking_lot::Mutex;

use super::body::GatewayBody;
use super::connections::{OpenConnection, RunningGuard};
use super::request::ScheduledRequest;
use super::response_headers::replacement_response;
use super::route::{self, ServeContext};
use crate::wire::Problem;

/// Extra time for a write. The idle check of all responses ends a stalled response first: it knows
/// the reason and records it.
const WRITE_GRACE: Duration = Duration::from_secs(5);

/// Serves the requests of one connection.
pub(super) struct GatewayService {
    context: Arc<ServeContext>,
    open: Arc<OpenConnection>,
    /// Set from the head of a request with a valid key to the end of its response.
    running: Mutex<Option<RunningGuard>>,
}

impl GatewayService {
    pub(super) fn new(context: Arc<ServeContext>, open: Arc<OpenConnection>) -> GatewayService {
        GatewayService {
            context,
            open,
            running: Mutex::default(),
        }
    }
}

impl<S: Transport> Service<S> for GatewayService {
    type Request = Box<ScheduledRequest>;
    type Body = GatewayBody;

    async fn receive(
        &self,
        parts: Parts,
        body: RequestBody<'_, S>,
    ) -> Received<Box<ScheduledRequest>, GatewayBody> {
        *self.running.lock() = self.open.begin(&self.context.shared, &parts.headers);
        route::receive(&self.context, parts, body).await
    }

    async fn serve(&self, request: Box<ScheduledRequest>) -> Response<GatewayBody> {
        request.serve().await
    }

    fn idle(&self) {
        drop(self.running.lock().take());
    }

    fn reject(&self, error: &HeadError) -> Response<GatewayBody> {
        route::reject_malformed(&self.context.shared, &Problem::from(error))
    }

    fn replace(&self, headers: &HeaderMap, error: &io::Error) -> Option<Response<GatewayBody>> {
        let problem = error.get_ref()?.downcast_ref()?;
        Some(replacement_response(headers, problem))
    }

    fn write_timeout(&self) -> Duration {
        self.context.shared.active.load().config.client_timeout + WRITE_GRACE
    }
}
