//! Allowances of a provider account, by model. Entries of a capacity pool with the same account
//! share them.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;

use super::allowance::Allowance;
use super::{Hints, Viewpoint, Wait};

/// Most models whose rest is remembered. Clients choose the names, so the number is bounded.
const MAX_MODELS: usize = 1000;

/// Allowances of one account.
#[derive(Debug, Default)]
pub(crate) struct Allowances {
    models: Mutex<HashMap<String, ModelAllowance>>,
}

/// Requests and tokens that the provider says are left for a model.
#[derive(Clone, Copy, Debug, Default)]
struct ModelAllowance {
    requests: Option<Allowance>,
    tokens: Option<Allowance>,
}

impl ModelAllowance {
    fn all(&self) -> impl Iterator<Item = Allowance> {
        [self.requests, self.tokens].into_iter().flatten()
    }

    /// When a request may be sent, if it may not now.
    fn ready_at(&self, tokens: u64, now: Instant) -> Option<Instant> {
        let requests = self.requests.and_then(|one| one.ready_at(1.0, now));
        let tokens = self.tokens.and_then(|one| one.ready_at(tokens as f64, now));
        requests.max(tokens)
    }
}

impl Allowances {
    /// Records what a response says is left. A limit that it does not state stays as it was.
    pub(super) fn limited(&self, at: Viewpoint<'_>, hints: &Hints, now: Instant) {
        let [requests, tokens] =
            [hints.requests, hints.tokens].map(|stated| Allowance::new(stated, now));
        if requests.is_none() && tokens.is_none() {
            return;
        }
        let mut models = self.models.lock();
        if models.len() >= MAX_MODELS && !models.contains_key(at.model) {
            make_room(&mut models, now);
        }
        let model = models.entry(at.model.to_owned()).or_default();
        model.requests = requests.or(model.requests);
        model.tokens = tokens.or(model.tokens);
    }

    /// When a request may be sent, if it may not now.
    pub(super) fn ready_at(&self, at: Viewpoint<'_>, now: Instant) -> Option<Instant> {
        let models = self.models.lock();
        models.get(at.model)?.ready_at(at.tokens, now)
    }

    /// Takes what a request needs if it is there and `begin` succeeds.
    pub(super) fn begin<T>(
        &self,
        at: Viewpoint<'_>,
        now: Instant,
        begin: impl FnOnce() -> Result<T, Wait>,
    ) -> Result<T, Wait> {
        let mut models = self.models.lock();
        let Some(model) = models.get_mut(at.model) else {
            drop(models);
            return begin();
        };
        if let Some(ready) = model.ready_at(at.tokens, now) {
            return Err(Wait::Until(ready));
        }
        let begun = begin()?;
        let taken = [
            (&mut model.requests, 1.0),
            (&mut model.tokens, at.tokens as f64),
        ];
        for (allowance, needed) in taken {
            allowance.iter_mut().for_each(|one| one.take(needed));
        }
        Ok(begun)
    }
}

/// Removes the models that are not limited any more, or the one that will be first.
fn make_room(models: &mut HashMap<String, ModelAllowance>, now: Instant) {
    let full_at = |model: &ModelAllowance| model.all().map(|one| one.full_at()).max();
    models.retain(|_, model| full_at(model).is_some_and(|at| at > now));
    if models.len() >= MAX_MODELS {
        let first = models.iter().min_by_key(|(_, model)| full_at(model));
        if let Some(name) = first.map(|(name, _)| name.clone()) {
            models.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at<'a>(model: &'a str, tenant: &'a Arc<str>) -> Viewpoint<'a> {
        Viewpoint {
            model,
            tenant,
            tokens: 100,
        }
    }

    fn hints(requests: Option<f64>, tokens: Option<f64>) -> Hints {
        let mut hints = Hints::default();
        (hints.requests.remaining, hints.tokens.remaining) = (requests, tokens);
        (hints.requests.reset, hints.tokens.reset) = (Some(MINUTE), Some(MINUTE));
        hints
    }

    fn begins(allowances: &Allowances, at: Viewpoint<'_>, now: Instant) -> bool {
        allowances.begin(at, now, || Ok(())).is_ok()
    }

    #[test]
    fn the_allowance_of_a_provider_is_obeyed_by_all_tenants() {
        let (allowances, now) = (Allowances::default(), Instant::now());
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        allowances.limited(at("m", &a), &hints(Some(2.0), None), now);
        assert!(begins(&allowances, at("m", &a), now) && begins(&allowances, at("m", &b), now));
        assert!(!begins(&allowances, at("m", &b), now));
        assert!(begins(&allowances, at("other", &b), now));
        assert!(begins(&allowances, at("m", &b), now + MINUTE));
    }

    #[test]
    fn a_limit_that_a_response_does_not_state_stays() {
        let (allowances, now, tenant) = (Allowances::default(), Instant::now(), "a".into());
        let at = at("m", &tenant);
        allowances.limited(at, &hints(Some(5.0), Some(50.0)), now);
        allowances.limited(at, &hints(Some(4.0), None), now);
        assert_eq!(allowances.ready_at(at, now), Some(now + MINUTE), "tokens");
        allowances.limited(at, &hints(None, Some(1000.0)), now);
        assert_eq!(allowances.ready_at(at, now), None);
        allowances.limited(at, &hints(Some(0.0), None), now);
        assert_eq!(allowances.ready_at(at, now), Some(now + MINUTE), "requests");
    }

    #[test]
    fn memory_is_bounded_whatever_names_clients_invent() {
        let (allowances, now, tenant) = (Allowances::default(), Instant::now(), "a".into());
        for number in 0..2 * MAX_MODELS {
            let model = number.to_string();
            allowances.limited(at(&model, &tenant), &hints(Some(0.0), None), now);
        }
        assert_eq!(allowances.models.lock().len(), MAX_MODELS);
        let later = now + Duration::from_secs(1);
        allowances.limited(at("new", &tenant), &hints(Some(0.0), None), later);
        assert!(allowances.ready_at(at("new", &tenant), later).is_some());
    }
}
