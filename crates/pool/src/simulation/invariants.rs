//! What holds after every step. Invariants 1, 4 and 5 are checked where a token is given something (`world.rs`).

use hsmux_token::ObjectRef;

use super::world::World;
use crate::core::Core;

impl World {
    /// Invariant 2: no request is left behind its deadline.
    pub fn check_deadlines(&self) {
        if let Some(number) = self.state().requests.overdue(self.now()) {
            let why = format!("invariant 2: request {number} has no answer at its deadline");
            self.executor.fail(why);
        }
    }

    /// Invariant 3: no lane is free for a request that waits.
    pub fn check_lanes(&self, core: &Core) {
        let catalogue = core.catalogue.load_full();
        let scheduler = core.scheduler.lock();
        for (seat, generation) in scheduler.open_seats() {
            if catalogue.generations.get(seat) != Some(&generation) {
                self.executor.fail(format!(
                    "seat {seat} has lanes of a connection that the catalogue does not know"
                ));
            }
        }
        let free = scheduler.free_seats();
        if free.is_empty() || scheduler.waiting() == 0 {
            return;
        }
        for (able, term, work) in scheduler.queued() {
            // They may have to leave the last lane of a seat to others.
            if term.is_slow() || term.cost.is_long() {
                continue;
            }
            let by_now = work.with(|need, attempt, _| {
                // To route for a session would choose its seat.
                let routed = need.affinity.is_none().then(|| need.route(&catalogue).ok());
                let of_token = |(object, _): &(ObjectRef, _)| matches!(object, ObjectRef::Token(_));
                let routed = routed
                    .flatten()
                    .filter(|_| need.objects.iter().all(of_token));
                routed.map_or(able, |route| route.able.minus(&attempt.tried))
            });
            if !by_now.or(&able).and(&free).is_empty() {
                let call = work.with(|need, _, _| need.call);
                self.executor.fail(format!(
                    "invariant 3: a {call} waits while a lane is free that could serve it"
                ));
            }
        }
    }
}
