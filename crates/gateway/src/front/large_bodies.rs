//! Turns at reading large bodies, fair between tenants.
//!
//! A large body is read on a thread of its own, and only as many are read at once as there are
//! CPUs. Tenants take turns, so that one who sends many delays a body of another by at most the
//! ones that are being read.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Large bodies that are read, and those that wait for their turn.
#[derive(Debug)]
pub(crate) struct LargeBodies(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    free: usize,
    /// Tenants that wait, the next one first, each with its bodies in order of arrival.
    waiting: VecDeque<(Arc<str>, VecDeque<oneshot::Sender<Turn>>)>,
}

impl LargeBodies {
    /// Lets this many bodies be read at once.
    pub(crate) fn new(at_once: usize) -> Arc<LargeBodies> {
        Arc::new(LargeBodies(Mutex::new(Turns {
            free: at_once,
            waiting: VecDeque::new(),
        })))
    }

    /// Waits for a turn of this tenant. It ends when the returned guard is dropped.
    pub(crate) async fn turn(self: &Arc<Self>, tenant: &Arc<str>) -> Turn {
        let turn = {
            let mut turns = self.0.lock();
            if turns.free > 0 {
                turns.free -= 1;
                return Turn(Some(self.clone()));
            }
            let (sender, turn) = oneshot::channel();
            match turns.waiting.iter_mut().find(|(known, _)| known == tenant) {
                Some((_, bodies)) => bodies.push_back(sender),
                None => turns
                    .waiting
                    .push_back((tenant.clone(), VecDeque::from([sender]))),
            }
            turn
        };
        turn.await
            .expect("a sender is dropped only with its receiver")
    }

    /// The body whose turn is next. Its tenant goes to the end of the line.
    fn next(&self) -> Option<oneshot::Sender<Turn>> {
        let mut turns = self.0.lock();
        while let Some((tenant, mut bodies)) = turns.waiting.pop_front() {
            let next = bodies.pop_front();
            if !bodies.is_empty() {
                turns.waiting.push_back((tenant, bodies));
            }
            if next.as_ref().is_some_and(|next| !next.is_closed()) {
                return next;
            }
        }
        turns.free += 1;
        None
    }
}

/// A turn at reading a body. Dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn(Option<Arc<LargeBodies>>);

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(bodies) = self.0.take() else { return };
        while let Some(next) = bodies.next() {
            match next.send(Turn(Some(bodies.clone()))) {
                Ok(()) => return,
                // Its client has left in the meantime.
                Err(mut turn) => drop(turn.0.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::future::join_all;

    use super::*;

    /// The order in which bodies have their turns, if they arrive in the order of `tenants`.
    async fn order(tenants: &[&'static str]) -> Vec<&'static str> {
        let (bodies, order) = (LargeBodies::new(1), RefCell::new(Vec::new()));
        let read = tenants.iter().map(|tenant| {
            let (bodies, order) = (&bodies, &order);
            async move {
                let _turn = bodies.turn(&Arc::from(*tenant)).await;
                order.borrow_mut().push(*tenant);
                tokio::task::yield_now().await;
            }
        });
        join_all(read).await;
        assert_eq!(bodies.0.lock().free, 1);
        order.into_inner()
    }

    #[tokio::test]
    async fn a_hundred_bodies_of_one_tenant_delay_another_by_one() {
        let mut tenants = vec!["greedy"; 100];
        tenants.extend(["modest", "modest"]);
        let order = order(&tenants).await;
        let modest = |(at, tenant): (usize, &&str)| (*tenant == "modest").then_some(at);
        let places: Vec<usize> = order.iter().enumerate().filter_map(modest).collect();
        // The greedy one has the turn that was free and the first of the line.
        assert_eq!(places, [2, 4]);
    }

    #[tokio::test]
    async fn a_turn_is_not_lost_with_a_client_that_leaves() {
        let bodies = LargeBodies::new(1);
        let tenant: Arc<str> = "a".into();
        let first = bodies.turn(&tenant).await;
        let mut left = Box::pin(bodies.turn(&tenant));
        let mut given = Box::pin(bodies.turn(&tenant));
        assert!(futures_util::poll!(left.as_mut()).is_pending());
        assert!(futures_util::poll!(given.as_mut()).is_pending());
        drop(left);
        drop(first);
        // It has its turn, and leaves before it knows.
        drop(given);
        drop(bodies.turn(&tenant).await);
        assert_eq!(bodies.0.lock().free, 1);
    }
}
