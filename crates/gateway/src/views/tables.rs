//! Series and tables of the panel.

use std::time::Duration;

use headworks_core::{Class, Config, Rate, Reason, TargetState, View};
use headworks_service::panel::{Cell, Health, Line, LineKind, Paged, Row, Series, Unit};
use jiff::Timestamp;

use super::capacity_pools::capacity_pools;
use crate::history::RequestHistory;
use crate::shared::Shared;
use crate::wire::class_name;

/// Number of requests in the table of the latest requests.
const SHOWN: usize = 50;
/// Window of the recent statistics.
const RECENT: Duration = Duration::from_secs(60);

/// Statistics of the last minute, by class.
pub(super) struct Recent {
    classes: Vec<RecentClass>,
}

#[derive(Clone, Default)]
struct RecentClass {
    /// Sorted.
    waits: Vec<Duration>,
    tokens: u64,
}

impl Recent {
    pub(super) fn of(history: &RequestHistory, levels: usize) -> Recent {
        let mut classes = vec![RecentClass::default(); levels];
        history.since(Timestamp::now() - RECENT, |entry| {
            if let (Some(class), Some(waited)) =
                (classes.get_mut(usize::from(entry.class.0)), entry.waited)
            {
                class.waits.push(waited);
                class.tokens += entry.tokens.unwrap_or(entry.estimate);
            }
        });
        for class in &mut classes {
            class.waits.sort_unstable();
        }
        Recent { classes }
    }

    /// The p90 wait of a class.
    fn wait(&self, level: usize) -> Option<f64> {
        let waits = &self.classes.get(level)?.waits;
        let place = (waits.len() * 9 / 10).min(waits.len().checked_sub(1)?);
        Some(waits[place].as_secs_f64())
    }

    /// A class's share of all tokens, in percent.
    fn share(&self, level: usize) -> Option<f64> {
        let all: u64 = self.classes.iter().map(|class| class.tokens).sum();
        let own = self.classes.get(level)?.tokens;
        (all > 0).then(|| 100.0 * own as f64 / all as f64)
    }
}

/// Data behind the tables.
pub(super) struct Tables<'a> {
    pub(super) shared: &'a Shared,
    pub(super) view: &'a View,
    /// Scheduler settings in force.
    pub(super) config: &'a Config,
    pub(super) recent: &'a Recent,
}

fn class_title(level: usize) -> String {
    let level = Class(u8::try_from(level).unwrap_or(u8::MAX));
    class_name(level).map_or(level.to_string(), |name| format!("{level} {name}"))
}

fn known(number: Option<f64>) -> Cell {
    number.map_or(Cell::Empty, Cell::Number)
}

fn line(name: &str, kind: LineKind, value: f64, limit: Option<f64>) -> Line {
    Line {
        name: name.to_owned(),
        kind,
        value,
        limit,
    }
}

impl Tables<'_> {
    pub(super) fn load(&self) -> Series {
        let (view, most) = (self.view, self.config.limits.concurrent.map(f64::from));
        let granted: u64 = view.classes.iter().map(|class| class.stats.granted).sum();
        let lines = vec![
            line("running", LineKind::Level, view.running as f64, most),
            line("waiting", LineKind::Level, view.waiting as f64, None),
            line("granted", LineKind::Total, granted as f64, None),
            line("rejected", LineKind::Total, self.rejected() as f64, None),
        ];
        Series {
            unit: Unit::Count,
            lines,
        }
    }

    fn rejected(&self) -> u64 {
        let rejected_in = |class: &headworks_core::ClassView| {
            let stats = &class.stats;
            stats.refused_in_all() + stats.ended.shed + stats.ended.expired
        };
        self.view.classes.iter().map(rejected_in).sum()
    }

    /// Rejected requests by reason.
    pub(super) fn refused(&self) -> Series {
        let classes = &self.view.classes;
        let count = |reason: Reason| {
            let refused = |class: &headworks_core::ClassView| class.stats.refused[reason as usize];
            classes.iter().map(refused).sum::<u64>() as f64
        };
        let shed: u64 = classes.iter().map(|class| class.stats.ended.shed).sum();
        let expired: u64 = classes.iter().map(|class| class.stats.ended.expired).sum();
        let lines = [
            ("full", count(Reason::Full)),
            ("shed", shed as f64),
            ("expired", expired as f64),
            ("deadline unreachable", count(Reason::DeadlineUnreachable)),
            ("too large", count(Reason::TooLarge)),
            ("no upstream", count(Reason::NoTarget)),
        ];
        Series {
            unit: Unit::Count,
            lines: lines
                .map(|(name, value)| line(name, LineKind::Total, value, None))
                .into(),
        }
    }

    /// The p90 wait by class, for classes that were granted at least once.
    pub(super) fn waits(&self) -> Series {
        let classes = self.view.classes.iter().enumerate();
        let asked = classes.filter(|(_, class)| class.stats.granted > 0);
        let lines = asked.map(|(level, _)| {
            let wait = self.recent.wait(level).unwrap_or(0.0);
            line(&class_title(level), LineKind::Level, wait, None)
        });
        Series {
            unit: Unit::Seconds,
            lines: lines.collect(),
        }
    }

    /// The share of a class, in percent, that its weight entitles it to among the classes that are
    /// busy.
    fn by_weight(&self, level: usize) -> Option<f64> {
        let classes = &self.config.classes;
        let shares = |level: usize| self.config.policy.shares(Class(level as u8));
        let busy = |level: usize| self.recent.share(level).is_some_and(|share| share > 0.0);
        let all: u32 = (0..classes.len())
            .filter(|level| shares(*level) && busy(*level))
            .map(|level| classes[level].weight)
            .sum();
        let own = classes.get(level)?.weight;
        (shares(level) && busy(level)).then(|| 100.0 * f64::from(own) / f64::from(all))
    }

    pub(super) fn classes(&self) -> Paged {
        let rows = self.view.classes.iter().enumerate().map(|(level, class)| {
            let cells = vec![
                Cell::Text(class_title(level)),
                f64::from(class.weight).into(),
                (class.waiting as f64).into(),
                (class.stats.granted as f64).into(),
                (class.stats.charged as f64).into(),
                known(self.recent.share(level)),
                known(self.by_weight(level)),
                known(self.recent.wait(level)),
            ];
            Row::new(format!("P{level}"), cells)
        });
        let names = [
            ("class", Unit::Count),
            ("weight", Unit::Count),
            ("waiting", Unit::Count),
            ("granted", Unit::Count),
            ("charged", Unit::Tokens),
            ("share, last minute", Unit::Percent),
            ("share by weight", Unit::Percent),
            ("p90 wait", Unit::Seconds),
        ];
        Paged::new(&names, rows.collect(), None)
    }

    pub(super) fn upstreams(&self) -> Paged {
        let active = self.shared.active.load();
        let rows = active.upstreams().filter_map(|upstream| {
            let target = self.view.targets.get(upstream.target.index())?;
            let limits = self.config.targets.get(upstream.target.index())?.limits;
            let (state, left) = upstream.state(target.state, self.shared.permits.now());
            let health = match (target.state, left) {
                (TargetState::Active, None) => Health::Good,
                _ => Health::Warning(state.to_owned()),
            };
            let rate = |rate: Option<Rate>| known(rate.map(Rate::as_per_second));
            let cells = vec![
                upstream.name().into(),
                Cell::Health(health),
                known(left.map(|left| left.as_secs_f64())),
                f64::from(target.running).into(),
                known(limits.concurrent.map(f64::from)),
                (target.granted as f64).into(),
                f64::from(target.faults).into(),
                rate(limits.requests),
                rate(limits.cost),
            ];
            Some(Row::new(upstream.name(), cells))
        });
        let names = [
            ("upstream", Unit::Count),
            ("state", Unit::Count),
            ("suspended for", Unit::Seconds),
            ("running", Unit::Count),
            ("limit", Unit::Count),
            ("granted", Unit::Count),
            ("faults in a row", Unit::Count),
            ("request rate limit", Unit::PerSecond),
            ("token rate limit", Unit::TokensPerSecond),
        ];
        Paged::new(&names, rows.collect(), None)
    }

    pub(super) fn pools(&self) -> Paged {
        let rate = |rate: Option<Rate>| known(rate.map(Rate::as_per_second));
        let pools = capacity_pools(self.shared, self.view, self.config).into_iter();
        let rows = pools.map(|pool| {
            let cells = vec![
                Cell::from(pool.name.as_str()),
                Cell::Text(pool.upstreams.join(", ")),
                (pool.waiting as f64).into(),
                f64::from(pool.running).into(),
                known(pool.limits.concurrent.map(f64::from)),
                rate(pool.limits.requests),
                rate(pool.limits.cost),
                known(pool.suspended_for.map(|left| left.as_secs_f64())),
            ];
            Row::new(pool.name, cells)
        });
        let names = [
            ("pool", Unit::Count),
            ("upstreams", Unit::Count),
            ("waiting", Unit::Count),
            ("running", Unit::Count),
            ("limit", Unit::Count),
            ("request rate limit", Unit::PerSecond),
            ("token rate limit", Unit::TokensPerSecond),
            ("suspended for", Unit::Seconds),
        ];
        Paged::new(&names, rows.collect(), None)
    }

    pub(super) fn tenants(&self) -> Paged {
        let rows = self
            .shared
            .ledger
            .totals()
            .into_iter()
            .map(|(tenant, classes)| {
                let (mut requests, mut refused, mut tokens) = (0, 0, 0);
                for totals in &classes {
                    requests += totals.requests;
                    refused += totals.refused;
                    tokens += totals.tokens;
                }
                let numbers = [requests, refused, tokens].map(|number| Cell::Number(number as f64));
                Row::new(
                    &*tenant,
                    [Cell::from(&*tenant)].into_iter().chain(numbers).collect(),
                )
            });
        let names = [
            ("tenant", Unit::Count),
            ("requests", Unit::Count),
            ("rejected", Unit::Count),
            ("tokens", Unit::Tokens),
        ];
        Paged::new(&names, rows.collect(), None)
    }

    pub(super) fn requests(&self) -> Paged {
        let rows = self.shared.history.latest(SHOWN).into_iter().map(|entry| {
            let seconds = |time: Option<std::time::Duration>| {
                time.map_or(Cell::Empty, |time| time.as_secs_f64().into())
            };
            let id = self.shared.history.ids.name(entry.number);
            let cells = vec![
                Cell::Text(id.clone()),
                Cell::from(&*entry.tenant),
                Cell::Text(entry.class.to_string()),
                Cell::Text(entry.model),
                Cell::from(entry.reason),
                seconds(entry.waited),
                seconds(entry.took),
                entry
                    .tokens
                    .map_or(Cell::Empty, |tokens| (tokens as f64).into()),
            ];
            Row::new(id, cells)
        });
        let names = [
            ("request", Unit::Count),
            ("tenant", Unit::Count),
            ("class", Unit::Count),
            ("model", Unit::Count),
            ("outcome", Unit::Count),
            ("waited", Unit::Seconds),
            ("response time", Unit::Seconds),
            ("tokens", Unit::Tokens),
        ];
        Paged::new(&names, rows.collect(), None)
    }
}
