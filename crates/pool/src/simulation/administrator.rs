//! An administrator, who parks, resumes, removes and adds members.

use std::sync::Arc;

use super::token::{self, Refusal};
use super::world::World;
use crate::Pool;

/// Begins one command, as a task.
pub(super) fn command(world: &Arc<World>, pool: &Arc<Pool>) {
    let count = world.plan.tokens.len() as u64;
    let (number, what) = world
        .executor
        .random(|random| (random.below(count) as usize, random.below(10)));
    let (world_of_task, pool) = (Arc::clone(world), Arc::clone(pool));
    let member = world.plan.tokens[number].member.clone();
    world
        .executor
        .tell(|| format!("command {what} for {member}"));
    let work = move || match what {
        0 => drop(pool.park(&member, "for the simulation")),
        1..4 => resume(&world_of_task, &pool, number),
        // The first member decides about the secret key, so it stays.
        4 if number > 0 => {
            if pool.remove(&member).is_ok() {
                // The pool may ask for the PIN of a new member. The breaker still holds it.
                world_of_task.state().tokens[number].refused.clear();
                let _ = pool.add_all(token::seats(&world_of_task, number));
            }
        }
        5 => drop(pool.refresh(&member)),
        6 => drop(pool.prove(&member)),
        7 => drop(pool.connect_anew(&member)),
        _ => {
            pool.status();
        }
    };
    world.executor.spawn("administrator", Box::new(work));
}

/// Sets the right PIN, and resumes the member.
pub(super) fn resume(world: &World, pool: &Pool, number: usize) {
    let mut state = world.state();
    let model = &mut state.tokens[number];
    if model.refusal == Refusal::Pin {
        model.refusal = Refusal::None;
    }
    model.is_pin_held = false;
    model.refused.clear();
    model.resuming += 1;
    drop(state);
    let _ = pool.resume(&world.plan.tokens[number].member);
    world.state().tokens[number].resuming -= 1;
}
