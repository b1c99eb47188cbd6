//! Resources and accounting of an in-flight response: the permit, and the settlement when it ends.

use std::sync::Arc;
use std::time::Instant;

use headworks_core::{Class, Cost, Key};
use headworks_pool::{Health, Permit, Report};

use super::unread_output::UnreadOutput;
use crate::history::Stage;
use crate::shared::Shared;
use crate::upstream::{Upstream, Viewpoint};
use crate::wire::{Dialect, Meter, Usage};

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With its last byte.
    Complete,
    /// The upstream's connection broke.
    Broken,
    /// The upstream sent nothing for longer than its idle timeout.
    Silent,
    /// The response exceeded the request timeout.
    TooLong,
    /// The client did not read the response.
    Unread,
    /// The client disconnected.
    Disconnected,
}

impl End {
    fn reason(self) -> (Stage, &'static str) {
        match self {
            End::Complete => (Stage::Done, "done"),
            End::Broken => (Stage::Failed, "upstream_broke_off"),
            End::Silent => (Stage::Failed, "upstream_silent"),
            End::TooLong => (Stage::Failed, "request_timeout"),
            End::Unread => (Stage::Left, "client_not_reading"),
            End::Disconnected => (Stage::Left, "client_left"),
        }
    }
}

/// State of an in-flight response that is settled exactly once.
pub(crate) struct InFlight {
    pub(crate) shared: Arc<Shared>,
    pub(crate) upstream: Arc<Upstream>,
    /// `None` for an error response of an upstream: its permit was returned with the attempt.
    pub(crate) permit: Option<Permit>,
    pub(crate) number: u64,
    pub(crate) dialect: Dialect,
    pub(crate) tenant: Arc<str>,
    pub(crate) class: Class,
    pub(crate) model: String,
    /// Estimated tokens of the prompt.
    pub(crate) prompt: u64,
    /// Output to book if the response is not read to its end.
    pub(crate) unread: UnreadOutput,
    /// Number of choices in the response.
    pub(crate) choices: u64,
    pub(crate) status: u16,
    /// Whether the response is a stream of events.
    pub(crate) events: bool,
    pub(crate) began: Instant,
    /// How the client left, if the gateway read the rest of the response after that. Recorded
    /// instead of the upstream's end.
    pub(crate) left: Option<End>,
    pub(crate) settled: bool,
}

impl InFlight {
    /// Returns the permit and books the usage. Only the first call has an effect.
    pub(crate) fn settle(&mut self, end: End, meter: &Meter) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let usage = self.usage(end, meter);
        // A JSON response without a usage report gives no better figure than the estimate, so the
        // scheduler keeps that.
        let is_known = self.status >= 400 || self.events || meter.reported().is_some();
        self.release_permit(end, is_known.then_some(usage));
        self.judge_upstream(end);
        self.learn_output(end, usage);
        self.record(end, usage);
    }

    /// Remembers the length of a complete response, for the estimates of later requests.
    fn learn_output(&self, end: End, usage: Usage) {
        if end == End::Complete && self.status < 400 {
            let flow = self.shared.seed.flow(&&*self.tenant);
            self.shared.retry_hints.served(flow, self.began.elapsed());
        }
        let output = usage.output.filter(|output| *output > 0);
        if let (End::Complete, Some(output)) = (end, output) {
            let output = output.div_ceil(self.choices.max(1));
            let learned = &self.shared.learned_outputs;
            learned.record(&self.tenant, &self.model, output);
        }
    }

    fn judge_upstream(&self, end: End) {
        let (model, tenant) = (self.model.as_str(), &self.tenant);
        let tokens = 0;
        let at = Viewpoint {
            model,
            tenant,
            tokens,
        };
        match end {
            End::Complete if self.status < 400 => self.upstream.health.completed(at),
            End::Broken | End::Silent => {
                // The body is gone, so each of these counts as a distinct one.
                let body = Key(self.number.into());
                let faults = &self.shared.faults;
                faults.failed(&self.upstream, at, body, Instant::now());
            }
            _ => {}
        }
    }

    /// Tokens to book. An error costs nothing. Otherwise the prompt counts, and the output as the
    /// upstream reported it, or as it was read. A response that is not a stream says nothing until
    /// it is complete, and neither does one whose model reasons in silence: if these end early,
    /// their unread output counts.
    fn usage(&self, end: End, meter: &Meter) -> Usage {
        if self.status >= 400 {
            return Usage::default();
        }
        let reported = meter.reported().unwrap_or_default();
        let ended_early = matches!(end, End::Disconnected | End::Unread | End::TooLong);
        let now = Instant::now();
        let output = match reported.output {
            _ if self.events && ended_early && !meter.has_text() => {
                meter.streamed().max(self.unread.until(now))
            }
            _ if self.events => meter.streamed(),
            Some(output) => output,
            None if ended_early => meter.written().max(self.unread.whole(now)),
            None => meter.written(),
        };
        Usage {
            input: reported.input.or(Some(self.prompt)),
            output: Some(output),
        }
    }

    fn release_permit(&mut self, end: End, usage: Option<Usage>) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let report = match usage {
            Some(usage) => Report::done_at(Cost(usage.total().unwrap_or(0))),
            None => Report::done(),
        };
        match end {
            // The upstream could be reached, also if its response is an error.
            End::Complete => permit.finish(report.target(Health::Fine)),
            // At least the estimate is charged: disconnecting early must not be cheaper than
            // reading on.
            _ => {
                let used = usage.and_then(|usage| usage.total()).unwrap_or(0);
                let charged = Cost(used.max(permit.cost().0));
                permit.finish(Report::done_at(charged).target(Health::Unknown));
            }
        }
    }

    fn record(&self, end: End, usage: Usage) {
        let (stage, reason) = self.left.unwrap_or(end).reason();
        // An error response does not prove that the model exists. Booked by name, invented model
        // names could fill the usage table.
        let model = if self.status < 400 {
            self.model.as_str()
        } else {
            ""
        };
        let (shared, took) = (&self.shared, self.began.elapsed());
        shared
            .ledger
            .ended(&self.tenant, self.class, model, usage, shared.today());
        let tokens = usage.total();
        shared.history.update(self.number, |entry| {
            entry.stage = stage;
            entry.tokens = tokens;
            entry.status = Some(self.status);
            entry.took = Some(took);
            if stage != Stage::Done {
                entry.reason = reason;
            }
        });
        if let Some(log) = &shared.log {
            let id = shared.history.ids.name(self.number);
            log.ended(&id, reason, self.status, tokens);
        }
    }
}
