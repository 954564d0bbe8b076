//! The queue under random orders of threads. A line that wakes nobody is a failure: shuttle reports a deadlock.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use hsmux_token::sync::in_many_orders;
use hsmux_token::sync::shuttle::thread;
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

/// As the writer's thread does, without a file.
fn write_all(queue: &Queue, taken: &Taken) {
    let begun = Instant::now();
    loop {
        let batch = queue.take(begun, None);
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
    in_many_orders(ORDERS, || {
        let (queue, taken) = (Arc::new(Queue::new()), Arc::<Taken>::default());
        let writer = {
            let (queue, taken) = (Arc::clone(&queue), Arc::clone(&taken));
            thread::spawn(move || write_all(&queue, &taken))
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

#[test]
fn each_caller_is_told_or_its_line_is_counted_as_lost() {
    in_many_orders(ORDERS, || {
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
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.stop())
        };
        write_all(&queue, &taken);
        let lost = queue.end();
        let told = callers.into_iter().map(|caller| caller.join().unwrap());
        let told: Vec<_> = told.collect();
        stopper.join().unwrap();
        let answered = told
            .iter()
            .filter(|told| matches!(told.try_recv(), Ok(Ok(()))));
        let answered = answered.count();
        assert_eq!(answered, *taken.count.lock());
        assert!(answered + lost <= CALLERS, "no line is there twice");
        assert_eq!(queue.waiting(), 0, "nothing is accepted after the end");
    });
}
