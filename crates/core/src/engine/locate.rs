//! Which queue and which lane a job belongs to, found or made.
//!
//! An arrival asks for things that lie far apart, each found by way of the one before. So it first guesses them all, has them
//! brought near together, and then looks whether the guesses were right.

use super::Core;
use super::parts::{Bay, Lane, NIL, Place, Queue, Spot};
use crate::ahead::{fetch, fetch_at};
use crate::heap::NOWHERE;
use crate::id::{Class, SetRef};
use crate::job::Job;

/// Spreads the numbers of a queue and a bay, which are ours and nobody else's to choose.
#[inline]
fn spread(queue: u32, bay: u32) -> u64 {
    let word = u64::from(queue) << 32 | u64::from(bay);
    let word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ word >> 32
}

impl<P> Core<P> {
    /// Has a queue and the lane that is probably its only one brought near.
    #[inline]
    pub(super) fn fetch_queue(&self, id: u32) {
        if let Some(queue) = self.queues.look(id) {
            fetch(&queue.tag);
            fetch(&queue.owed);
        }
        if let Some(lane) = self.lanes.look(id) {
            fetch(lane);
        }
    }

    /// After a grant: has what the next one of this class will ask for brought near, in three steps, each when what the one before
    /// it brought is there. Its queue and lane; at the next grant, of whatever class, the lane's head; at the one after that, the
    /// job that will be the head then, and the place of the head's key.
    #[inline]
    pub(super) fn fetch_next(&mut self, class: Class) {
        let next = match self.classes[class.index()].ready.top() {
            Some((_, queue)) => {
                self.fetch_queue(queue);
                match self.has_many_lanes() {
                    // Queues are few, and near.
                    true => self.queues[queue].open.top().map_or(NIL, |(_, lane)| lane),
                    false => queue,
                }
            }
            None => NIL,
        };
        let [last, before] = self.expected;
        self.expected = [next, last];
        if let Some(lane) = self.lanes.look(next) {
            fetch(lane);
        }
        if let Some(lane) = self.lanes.look(before)
            && let Some(head) = self.jobs.look(lane.head)
        {
            self.keys.fetch(head.key.spread());
            if let Some(second) = self.jobs.look(head.lane_next) {
                fetch(&second.serial);
            }
        }
        if let Some(lane) = self.lanes.look(last) {
            if let Some(target) = self.targets.get(lane.alone as usize) {
                fetch(&target.state);
                fetch(&target.granted);
            }
            if let Some(head) = self.jobs.look(lane.head) {
                fetch(&head.serial);
                fetch(&head.key);
            }
        }
    }

    /// Has what an arrival will ask for brought near, all at once: each look would otherwise wait for the one before.
    #[inline]
    pub(super) fn fetch_queue_and_lane(&self, job: &Job<P>, flow: u32) {
        let queue = self.flows[flow].queues[job.class.index()];
        if queue == NIL {
            return self.resting.fetch(flow, job.class);
        }
        self.fetch_queue(queue);
        fetch_at(&self.queue_at, queue);
        if self.has_many_lanes() {
            // The bay of a target often has its number.
            let (SetRef::One(bay) | SetRef::Many(bay)) = job.targets.0;
            self.lane_ids.fetch(spread(queue, bay));
        }
    }

    fn has_many_lanes(&self) -> bool {
        self.lanes.len() > 2 * self.queues.len()
    }

    /// What is probably the lane of a job. It is brought near.
    #[inline]
    pub(super) fn guess_lane(&self, class: Class, flow: u32, bay: u32) -> u32 {
        let queue = self.flows[flow].queues[class.index()];
        let guess = match self.has_many_lanes() {
            true => self.lane_ids.guess(spread(queue, bay)).unwrap_or(NIL),
            // A lane often has its queue's number: they are made together, and most queues have one.
            false => queue,
        };
        if let Some(lane) = self.lanes.look(guess) {
            fetch(lane);
            fetch_at(&self.lane_at, guess);
        }
        guess
    }

    /// The queue and the lane of a job.
    pub(super) fn lane(&mut self, class: Class, flow: u32, bay: u32, guess: u32) -> (u32, u32) {
        let queue = self.flows[flow].queues[class.index()];
        if queue == NIL {
            return self.new_queue(class, flow, bay);
        }
        if let Some(lane) = self.lanes.look(guess)
            && lane.queue == queue
            && lane.bay == bay
        {
            return (queue, guess);
        }
        let lane = match self.find_lane(queue, bay) {
            Some(lane) => lane,
            None => self.new_lane(queue, bay),
        };
        (queue, lane)
    }

    /// A lane and those of its queue that were there before it.
    pub(super) fn siblings(&self, lane: u32) -> impl Iterator<Item = u32> {
        let known = |lane: u32| (lane != NIL).then_some(lane);
        std::iter::successors(known(lane), move |lane| {
            known(self.lane_spots[*lane as usize].sibling)
        })
    }

    /// The lane of a queue and a bay, if there is one.
    pub(super) fn find_lane(&self, queue: u32, bay: u32) -> Option<u32> {
        let is = |lane| {
            let lane = &self.lanes[lane];
            lane.queue == queue && lane.bay == bay
        };
        self.lane_ids.find(spread(queue, bay), is)
    }

    fn new_lane(&mut self, queue: u32, bay: u32) -> u32 {
        let Bay { lanes, targets, .. } = &mut self.bays[bay as usize];
        let alone = match targets[..] {
            [target] => target,
            _ => NIL,
        };
        let lane = self.lanes.insert(Lane {
            queue,
            bay,
            alone,
            head: NIL,
            tail: NIL,
            len: 0,
            place: Place::Empty,
        });
        let owner = &mut self.queues[queue];
        owner.lane_count += 1;
        let spot = Spot {
            age_at: NOWHERE,
            bay_at: lanes.len() as u32,
            sibling: std::mem::replace(&mut owner.lanes, lane),
        };
        match self.lane_spots.get_mut(lane as usize) {
            Some(free) => *free = spot,
            None => {
                self.lane_spots.push(spot);
                self.lane_at.push(NOWHERE);
            }
        }
        lanes.push(lane);
        let lanes = &self.lanes;
        let hash = |lane| spread(lanes[lane].queue, lanes[lane].bay);
        self.lane_ids.insert(spread(queue, bay), lane, hash);
        lane
    }

    /// Takes a lane that will be removed out of the table of names.
    pub(super) fn forget_lane_id(&mut self, lane: u32) {
        let Lane { queue, bay, .. } = self.lanes[lane];
        self.lane_ids.remove(spread(queue, bay), lane);
    }

    /// A queue for a flow that has none in that class, and its lane.
    #[inline(never)]
    fn new_queue(&mut self, class: Class, flow: u32, bay: u32) -> (u32, u32) {
        let spare = self.bays[bay as usize].spare.pop();
        let id = match spare {
            Some(queue) => queue,
            None => self.queues.insert(Queue::new()),
        };
        let queue = &mut self.queues[id];
        (queue.class, queue.flow) = (class, flow);
        queue.tag = *self.resting.tag(flow, class);
        self.flows[flow].queues[class.index()] = id;
        if spare.is_some() {
            return (id, queue.lanes);
        }
        if self.queue_at.len() <= id as usize {
            self.queue_at.push(NOWHERE);
        }
        (id, self.new_lane(id, bay))
    }
}
