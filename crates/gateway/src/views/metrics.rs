//! Prometheus metrics: names, help texts and sources.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use headworks_core::{Class, ClassView, Reason};
use headworks_service::metrics::{Collect, Exposition, Family};

use crate::shared::Shared;
use crate::upstream::BUCKET_BOUNDS;

const DELAYED: Family = Family::gauge(
    "headworks_gateway_delayed",
    "Requests that wait for the end of a suspension.",
);
const WAITING: Family = Family::gauge("headworks_gateway_waiting", "Queued requests, by class.");
const RUNNING: Family = Family::gauge(
    "headworks_gateway_running",
    "Requests in flight at the upstreams.",
);
const GRANTED: Family = Family::counter(
    "headworks_gateway_granted_total",
    "Granted requests, by class.",
);
const REFUSED: Family = Family::counter(
    "headworks_gateway_refused_total",
    "Rejected requests, by class and reason.",
);
const WAIT: Family = Family::histogram(
    "headworks_gateway_wait_seconds",
    "Queue wait of granted requests, by class.",
);
const CHARGED: Family = Family::counter(
    "headworks_gateway_charged_tokens_total",
    "Tokens charged at grants, by class.",
);
const WEIGHT: Family = Family::gauge("headworks_gateway_weight", "Weights of the classes.");
const TOKENS: Family = Family::counter(
    "headworks_gateway_tokens_total",
    "Tokens used, by tenant and class.",
);
const REQUESTS: Family = Family::counter(
    "headworks_gateway_requests_total",
    "Requests that ended, by tenant and class.",
);
const UPSTREAM_RUNNING: Family = Family::gauge(
    "headworks_gateway_upstream_running",
    "Requests in flight at an upstream.",
);
const UPSTREAM_UP: Family = Family::gauge(
    "headworks_gateway_upstream_up",
    "1 if an upstream is usable, 0 if not; the label `state` has the reason.",
);
const UPSTREAM_ANSWERS: Family = Family::counter(
    "headworks_gateway_upstream_answers_total",
    "Attempts at an upstream, by outcome.",
);
const UPSTREAM_LATENCY: Family = Family::histogram(
    "headworks_gateway_upstream_latency_seconds",
    "Time until the head of an upstream's response.",
);
const FIRST_TOKEN: Family = Family::histogram(
    "headworks_gateway_first_token_seconds",
    "Time from the grant to the first byte of a response body.",
);

const KEYS_AGE: Family = Family::gauge(
    "headworks_gateway_keys_age_seconds",
    "Time since the stored keys of the fleet were last read or confirmed.",
);
const USAGE_FAILED: Family = Family::gauge(
    "headworks_gateway_usage_failed",
    "1 if usage could not be written the last time, else 0.",
);

/// Collector of the gateway's metrics.
pub(super) struct GatewayMetrics(pub(super) Arc<Shared>);

impl Collect for GatewayMetrics {
    fn collect(&self, out: &mut Exposition) {
        let view = self.0.permits.inspect();
        out.family(&RUNNING).sample(&[], view.running as f64);
        out.family(&DELAYED).sample(&[], view.delayed as f64);
        if let Some((age, _)) = self.0.clock.age() {
            out.family(&KEYS_AGE).sample(&[], age.as_secs_f64());
        }
        let usage_failed = self.0.usage_failed.load(Ordering::Relaxed);
        out.family(&USAGE_FAILED)
            .sample(&[], f64::from(u8::from(usage_failed)));
        for (level, class) in view.classes.iter().enumerate() {
            let name = Class(u8::try_from(level).unwrap_or(u8::MAX)).to_string();
            collect_class(out, &name, class);
        }
        for (tenant, classes) in self.0.ledger.totals() {
            for (level, totals) in classes
                .iter()
                .enumerate()
                .filter(|(_, totals)| totals.requests > 0)
            {
                let class = Class(u8::try_from(level).unwrap_or(u8::MAX)).to_string();
                let labels = [("tenant", &*tenant), ("class", &*class)];
                out.family(&TOKENS).sample(&labels, totals.tokens as f64);
                out.family(&REQUESTS)
                    .sample(&labels, totals.requests as f64);
            }
        }
        self.collect_upstreams(out, &view);
    }
}

impl GatewayMetrics {
    fn collect_upstreams(&self, out: &mut Exposition, view: &headworks_core::View) {
        let active = self.0.active.load();
        for upstream in active.upstreams() {
            let Some(target) = view.targets.get(upstream.target.index()) else {
                continue;
            };
            let label = ("upstream", upstream.name());
            out.family(&UPSTREAM_RUNNING)
                .sample(&[label], f64::from(target.running));
            let (state, suspended) = upstream.state(target.state, self.0.permits.now());
            let up = f64::from(u8::from(target.state.is_usable() && suspended.is_none()));
            out.family(&UPSTREAM_UP)
                .sample(&[label, ("state", state)], up);
            let metrics = &upstream.metrics;
            for (outcome, count) in [
                ("answered", &metrics.answered),
                ("overloaded", &metrics.overloaded),
                ("failed", &metrics.failed),
            ] {
                let count = count.load(Ordering::Relaxed) as f64;
                out.family(&UPSTREAM_ANSWERS)
                    .sample(&[label, ("outcome", outcome)], count);
            }
            for (family, histogram) in [
                (&UPSTREAM_LATENCY, &metrics.latency),
                (&FIRST_TOKEN, &metrics.first_token),
            ] {
                let (counts, sum) = histogram.read();
                out.family(family)
                    .histogram(&[label], &BUCKET_BOUNDS, &counts, sum);
            }
        }
    }
}

fn collect_class(out: &mut Exposition, name: &str, class: &ClassView) {
    let (label, stats) = (("class", name), &class.stats);
    out.family(&WAITING).sample(&[label], class.waiting as f64);
    out.family(&GRANTED).sample(&[label], stats.granted as f64);
    out.family(&CHARGED).sample(&[label], stats.charged as f64);
    out.family(&WEIGHT)
        .sample(&[label], f64::from(class.weight));
    let refused = Reason::ALL.iter().zip(stats.refused);
    let refused = refused.map(|(reason, count)| match reason.name() {
        // On arrival or in the queue: the client sees one reason.
        "expired" => ("expired", count + stats.ended.expired),
        name => (name, count),
    });
    let shed = [("shed", stats.ended.shed)];
    for (reason, count) in refused.chain(shed).filter(|(_, count)| *count > 0) {
        out.family(&REFUSED)
            .sample(&[label, ("reason", reason)], count as f64);
    }
    // The scheduler's buckets are too fine for a scrape, so they are merged into those of the
    // upstreams.
    let mut counts = [0; BUCKET_BOUNDS.len() + 1];
    for (edge, count) in stats.waits.buckets() {
        let bucket = BUCKET_BOUNDS
            .iter()
            .position(|bound| edge.as_secs_f64() <= *bound);
        counts[bucket.unwrap_or(BUCKET_BOUNDS.len())] += count;
    }
    out.family(&WAIT).histogram(
        &[label],
        &BUCKET_BOUNDS,
        &counts,
        stats.waits.sum().as_secs_f64(),
    );
}
