//! The queue under random orders of threads. A line that wakes nobody is a failure: shuttle reports a deadlock.

use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};

use hsmux_token::sync::shuttle::thread;
use hsmux_token::sync::{Deadlines, in_many_orders};
use serde_json::Map;

use super::*;

/// Orders of threads that each test tries, of each kind.
const ORDERS: usize = 10_000;

const CALLERS: usize = 3;
const LINES: usize = 2;

fn line(ticket: Option<Ticket>) -> QueueEntry {
    QueueEntry {
        event: Event::act(&Arc::default(), "test", Map::new()),
        ticket,
        fate: OnWriteError::ByPolicy,
    }
}

/// Lines that the writer has taken.
#[derive(Default)]
struct Taken {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Taken {
    fn add(&self, lines: usize) {
        *self.count.lock() += lines;
        self.changed.notify_one();
    }

    fn wait_for(&self, lines: usize) {
        let mut count = self.count.lock();
        while *count < lines {
            self.changed.wait(&mut count);
        }
    }
}

/// As the writer's thread does, without a file. Lines that nobody waits for gather until `not_before`.
fn write_all(queue: &Queue, taken: &Taken, not_before: Instant) {
    loop {
        let batch = queue.take(not_before, None);
        for ticket in batch
            .entries
            .iter()
            .filter_map(|entry| entry.ticket.as_ref())
        {
            ticket.send(Ok(())).expect("room for one");
        }
        taken.add(batch.entries.len());
        if batch.last {
            return;
        }
    }
}

#[test]
fn the_writer_wakes_for_each_line_and_for_the_end() {
    in_many_orders(ORDERS, Deadlines::Pass, || {
        let (queue, taken) = (Arc::new(Queue::new()), Arc::<Taken>::default());
        let writer = {
            let (queue, taken) = (Arc::clone(&queue), Arc::clone(&taken));
            thread::spawn(move || write_all(&queue, &taken, Instant::now()))
        };
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || (0..LINES).for_each(|_| queue.put(line(None))))
            })
            .collect();
        callers
            .into_iter()
            .for_each(|caller| caller.join().unwrap());
        taken.wait_for(CALLERS * LINES);
        queue.stop();
        writer.join().unwrap();
        assert_eq!(queue.end(), 0);
    });
}

/// Callers wait for their lines while the queue stops, or before that if other lines would gather.
fn check(gathers: bool, deadlines: Deadlines) {
    let not_before = Instant::now() + Duration::from_secs(if gathers { 3600 } else { 0 });
    in_many_orders(ORDERS, deadlines, move || {
        let (queue, taken) = (Arc::new(Queue::new()), Arc::<Taken>::default());
        let callers = (0..CALLERS).map(|_| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let (ticket, told) = sync_channel(1);
                queue.put(line(Some(ticket)));
                told
            })
        });
        let callers: Vec<_> = callers.collect();
        let stopper = {
            let (queue, taken) = (Arc::clone(&queue), Arc::clone(&taken));
            thread::spawn(move || {
                if gathers {
                    taken.wait_for(CALLERS);
                }
                queue.stop();
            })
        };
        write_all(&queue, &taken, not_before);
        let left = queue.end();
        let told = callers.into_iter().map(|caller| caller.join().unwrap());
        let answers: Vec<_> = told.map(|told| told.try_recv()).collect();
        stopper.join().unwrap();
        let answered = answers.iter().filter(|answer| matches!(answer, Ok(Ok(()))));
        assert_eq!(answered.count(), *taken.count.lock());
        let ended = answers
            .iter()
            .filter(|answer| matches!(answer, Err(TryRecvError::Disconnected)));
        let ended = ended.count();
        assert_eq!(
            *taken.count.lock() + ended,
            CALLERS,
            "nobody waits for ever"
        );
        assert!(left <= ended, "what is left is answered by nobody");
        assert_eq!(queue.waiting(), 0, "nothing is accepted after the end");
    });
}

#[test]
fn each_caller_is_told_or_its_ticket_ends() {
    check(false, Deadlines::Pass);
}

#[test]
fn a_line_that_a_caller_waits_for_does_not_gather() {
    check(true, Deadlines::Never);
}
