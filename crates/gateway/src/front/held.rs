//! What a request holds while its answer passes: the permit, and who to tell how it ended.

use std::sync::Arc;
use std::time::Instant;

use headworks_core::{Class, Cost};
use headworks_pool::{Health, Permit, Report};

use crate::books::Stage;
use crate::shared::Shared;
use crate::upstream::Upstream;
use crate::wire::{Dialect, Meter, Usage};

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With its last byte.
    Complete,
    /// The upstream broke off.
    Broken,
    /// The upstream said nothing for too long.
    Silent,
    /// It took longer than any may.
    TooLong,
    /// The client did not read it.
    Unread,
    /// The client went away.
    Left,
}

impl End {
    fn reason(self) -> (Stage, &'static str) {
        match self {
            End::Complete => (Stage::Done, "done"),
            End::Broken => (Stage::Failed, "upstream_broke_off"),
            End::Silent => (Stage::Failed, "upstream_silent"),
            End::TooLong => (Stage::Failed, "request_timeout"),
            End::Unread => (Stage::Left, "client_not_reading"),
            End::Left => (Stage::Left, "client_left"),
        }
    }
}

/// What a request holds.
pub(super) struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) upstream: Arc<Upstream>,
    /// None for the answer of an upstream that gave the request back.
    pub(super) permit: Option<Permit>,
    pub(super) number: u64,
    pub(super) dialect: Dialect,
    pub(super) tenant: Arc<str>,
    pub(super) class: Class,
    pub(super) model: String,
    pub(super) prompt: u64,
    pub(super) status: u16,
    /// Whether the answer is a stream of events.
    pub(super) events: bool,
    pub(super) began: Instant,
    pub(super) settled: bool,
}

impl Held {
    /// Gives the permit back and writes everything down.
    pub(super) fn settle(&mut self, end: End, meter: &Meter) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let usage = self.usage(meter);
        self.give_back(end, usage);
        self.write_down(end, usage);
    }

    /// What it drew: as reported, or for a stream as counted; nothing for an error.
    fn usage(&self, meter: &Meter) -> Option<Usage> {
        if self.status >= 400 {
            return Some(Usage::default());
        }
        meter.reported().or_else(|| {
            let counted = Usage {
                input: Some(self.prompt),
                output: Some(meter.events()),
            };
            self.events.then_some(counted)
        })
    }

    fn give_back(&mut self, end: End, usage: Option<Usage>) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let report =
            match usage.and_then(|usage| usage.total().or((self.status >= 400).then_some(0))) {
                Some(tokens) => Report::done_at(Cost(tokens)),
                None => Report::done(),
            };
        match end {
            End::Complete => permit.finish(report.target(self.health())),
            End::Broken | End::Silent => permit.finish(Report::failed().target(Health::Fault)),
            End::TooLong => permit.finish(Report::failed()),
            // Whoever leaves pays what was expected.
            End::Unread | End::Left => drop(permit),
        }
    }

    fn health(&self) -> Health {
        match self.status {
            401 | 403 | 500.. => Health::Fault,
            _ => Health::Fine,
        }
    }

    fn write_down(&self, end: End, usage: Option<Usage>) {
        let (stage, reason) = end.reason();
        let known = usage.unwrap_or_default();
        let model = if self.status < 400 {
            self.model.as_str()
        } else {
            ""
        };
        let (shared, took) = (&self.shared, self.began.elapsed());
        shared
            .ledger
            .ended(&self.tenant, self.class, model, known, shared.today());
        let tokens = usage.and_then(|usage| usage.total());
        shared.journal.change(self.number, |entry| {
            entry.stage = stage;
            entry.tokens = tokens;
            entry.status = Some(self.status);
            entry.took = Some(took);
            if stage != Stage::Done {
                entry.reason = reason;
            }
        });
        if let Some(log) = &shared.log {
            let id = shared.journal.ids.name(self.number);
            log.ended(&id, reason, self.status, tokens);
        }
    }
}
