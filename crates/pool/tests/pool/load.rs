//! Many requests at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hsmux_pool::{Options, Policy, Pool};
use hsmux_token::{Batch, Done, Error, Request, Token, ck};

use crate::vault::*;

/// Keeps `callers` requests under way for `time`; how many were served.
fn served(pool: &Arc<Pool>, key: Key, callers: usize, time: Duration) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + time;
    let workers: Vec<_> = (0..callers)
        .map(|_| {
            let (pool, count) = (Arc::clone(pool), Arc::clone(&count));
            std::thread::spawn(move || {
                while Instant::now() < until {
                    let answer = submit(&pool, key.signing(), in_seconds(60));
                    answer.recv().unwrap().unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    count.load(Ordering::Relaxed)
}

#[test]
fn unequal_members_reach_the_sum_of_their_rates() {
    let key = Key::new(1);
    let slow = |name: &'static str, ms| {
        let supply = Supply::of(move || honest(name, key));
        let seat = supply.seat(name);
        (supply, seat, Duration::from_millis(ms))
    };
    for policy in [
        Policy::LeastLoaded,
        Policy::RoundRobin,
        Policy::FirstAvailable,
    ] {
        let members = [slow("fast", 25), slow("slow", 100)];
        let options = Options {
            policy,
            ..Options::default()
        };
        let pool = pool(
            options,
            members.iter().map(|(_, seat, _)| seat.clone()).collect(),
        );
        for (supply, _, latency) in &members {
            supply.last().set_latency(*latency);
        }
        let load = {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || served(&pool, key, 16, Duration::from_secs(2)))
        };
        eventually("the load has begun", || pool.status().waiting > 8);
        let busy = || members.each_ref().map(|(supply, ..)| supply.last().busy());
        let (before, begun) = (busy(), Instant::now());
        eventually("enough was served", || {
            begun.elapsed() > Duration::from_millis(1500)
        });
        let (after, elapsed) = (busy(), begun.elapsed());
        // Both serve all the time, as far as the machine lets them; the scheduler's own tests have
        // the exact figure, in virtual time.
        for ((after, before), (_, seat, latency)) in after.iter().zip(before).zip(&members) {
            // What is under way is counted when it ends.
            let share =
                (*after + *latency).saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64();
            assert!(
                share > 0.5,
                "{policy:?}: {} was busy for {share}",
                seat.name
            );
        }
        load.join().unwrap();
    }
}

const REQUESTS: usize = 3000;

#[test]
fn every_request_is_answered_once_while_members_die() {
    let key = Key::new(1);
    let supplies = ["one", "two", "three"].map(|name| {
        let latency = Duration::from_micros(200);
        Supply::of(move || honest(name, key).lanes(2).latency(latency))
    });
    let seats = supplies
        .iter()
        .zip(["one", "two", "three"])
        .map(|(s, name)| s.seat(name));
    let options = Options {
        queue: 100_000,
        ..Options::default()
    };
    let pool = pool(options, seats.collect());
    let answers = Arc::new(AtomicUsize::new(0));
    let good = Arc::new(AtomicUsize::new(0));
    for n in 0..REQUESTS {
        let (answers, good) = (Arc::clone(&answers), Arc::clone(&good));
        pool.submit(Batch::from_buf([Request {
            behalf: None,
            operation: key.signing(),
            deadline: in_seconds(60),
            done: Done::new(move |result| {
                answers.fetch_add(1, Ordering::SeqCst);
                good.fetch_add(usize::from(result.is_ok()), Ordering::SeqCst);
            }),
        }]));
        if n % 500 == 250 {
            let victim = &supplies[(n / 500) % 2];
            match n % 1000 {
                250 => victim.last().lose("killed"),
                _ => victim
                    .last()
                    .fail(Error::vendor("C_Sign", ck::CKR_FUNCTION_FAILED), 3),
            }
        }
    }
    eventually("all answered", || {
        answers.load(Ordering::SeqCst) == REQUESTS
    });
    // The third member never fails, and is asked before a request gives up.
    assert_eq!(good.load(Ordering::SeqCst), REQUESTS);
    eventually("no lane is left taken", || {
        pool.status().seats.iter().all(|seat| seat.in_flight == 0)
    });
    assert_eq!(answers.load(Ordering::SeqCst), REQUESTS);
}

#[test]
fn a_long_queue_of_instant_answers_does_not_grow_the_stack() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let options = Options {
        queue: 100_000,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one")]);
    one.last().hang();
    let last: Vec<_> = (0..2000)
        .map(|_| submit(&pool, key.signing(), in_seconds(60)))
        .collect();
    one.last().heal();
    for answer in last {
        answer.recv().unwrap().unwrap();
    }
}

#[test]
fn a_hundred_and_more_seats() {
    let key = Key::new(1);
    let names: Vec<String> = (0..130).map(|n| format!("seat{n}")).collect();
    let seats = names
        .iter()
        .map(|name| Supply::of(move || honest("many", key)).seat(name));
    let pool = pool(Options::default(), seats.collect());
    eventually("all serve", || {
        let objects = pool.status().objects;
        objects.first().is_some_and(|key| key.members.len() == 130)
    });
    for _ in 0..100 {
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    }
    let too_many = (0..200).map(|n| Supply::of(move || honest("x", key)).seat(&format!("x{n}")));
    assert!(
        too_many
            .map(|seat| pool.add(seat))
            .any(|added| added.is_err())
    );
}
