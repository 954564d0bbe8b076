//! The queue under random orders of threads. A line that wakes nobody is a failure: shuttle reports a deadlock.

use std::sync::Arc;

use hsmux_token::sync::shuttle::thread;
use hsmux_token::sync::{Deadlines, in_many_orders};

use super::*;

/// Orders of threads that each test tries, of each kind.
const ORDERS: usize = 10_000;

const REQUESTS: usize = 3;

/// Lines that the thread has taken.
#[derive(Default)]
struct Taken {
    count: Mutex<usize>,
    changed: Condvar,
}

/// As [`LineQueue::write_all`], without a file.
fn take_all(queue: &LineQueue, taken: &Taken) {
    while let Some(batch) = queue.next(None) {
        let lines = batch.lines.iter().filter(|byte| **byte == b'\n').count();
        *taken.count.lock() += lines;
        taken.changed.notify_one();
    }
    queue.end();
}

#[derive(Clone, Copy)]
enum Close {
    WhenAllIsTaken,
    AtOnce,
}

fn check(close: Close, deadlines: Deadlines) {
    let run = move || {
        let queue = Arc::new(LineQueue::new("gateway", Box::new(|_| panic!("no room"))));
        let taken = Arc::<Taken>::default();
        assert!(queue.begin());
        let writer = {
            let (queue, taken) = (Arc::clone(&queue), Arc::clone(&taken));
            thread::spawn(move || take_all(&queue, &taken))
        };
        let requests = (0..REQUESTS).map(|number| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                if number == 0 {
                    queue.switch(None);
                }
                queue.push("line\n");
            })
        });
        let requests: Vec<_> = requests.collect();
        requests
            .into_iter()
            .for_each(|request| request.join().unwrap());
        if matches!(close, Close::WhenAllIsTaken) {
            let mut count = taken.count.lock();
            while *count < REQUESTS {
                taken.changed.wait(&mut count);
            }
        }
        queue.close();
        writer.join().unwrap();
        assert_eq!(*taken.count.lock(), REQUESTS);
        assert!(queue.begin(), "the thread says that it has ended");
    };
    in_many_orders(ORDERS, deadlines, run);
}

#[test]
fn each_line_wakes_the_thread() {
    check(Close::WhenAllIsTaken, Deadlines::Pass);
}

#[test]
fn lines_that_wait_at_the_end_are_taken() {
    check(Close::AtOnce, Deadlines::Pass);
    check(Close::AtOnce, Deadlines::Never);
}
