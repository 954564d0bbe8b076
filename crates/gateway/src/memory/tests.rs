use std::sync::atomic::AtomicU32;
use std::task::{Wake, Waker};

use super::part::ENTRY;
use super::*;

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn is_ready(account: &Arc<MemoryAccount>) -> bool {
    let waker = Waker::noop();
    account.poll_ready(&Context::from_waker(waker)).is_ready()
}

#[test]
fn a_connection_leaves_others_most_of_what_is_left() {
    let memory = MemoryBudget::new(8000 + 80 * ENTRY);
    let [greedy, honest] = [memory.account(), memory.account()];
    let mut held = Vec::new();
    while is_ready(&greedy) {
        held.push(greedy.hold(Bytes::from_static(&[0; 100])));
        assert!(held.len() < 20);
    }
    assert_eq!(memory.used(), 7 * (100 + ENTRY));
    assert!(is_ready(&honest) && honest.request(100).is_some());
    held.clear();
    assert!(is_ready(&greedy));
    assert_eq!(memory.used(), 0);
}

#[test]
fn without_memory_only_the_first_request_of_a_connection_is_admitted() {
    let memory = MemoryBudget::new(1000);
    let all = memory.account().charge(1000);
    let account = memory.account();
    let first = account.request(100);
    assert!(first.is_some() && account.request(100).is_none());
    assert!(account.upload(10, 40).is_none());
    drop(all);
    let second = account.request(100);
    assert!(second.is_some());
    assert_eq!(memory.used(), 100);
    drop((first, second));
    assert_eq!(memory.used(), 0);
}

/// As many as fill the window of the connection.
#[test]
fn uploads_hold_no_more_than_their_window() {
    let memory = MemoryBudget::new(100_000);
    let account = memory.account();
    let uploads: Vec<_> = (0..10).map(|_| account.upload(10, 40)).collect();
    assert!(uploads.iter().all(Option::is_some));
    assert_eq!(memory.used(), 40);
    drop(uploads);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_waiting_body_is_woken_when_its_connection_releases_memory() {
    let memory = MemoryBudget::new(1000);
    let account = memory.account();
    let part = account.hold(Bytes::from_static(&[0; 900]));
    let half = part.slice(450..);
    let held = 900 + ENTRY;
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(
        account
            .poll_ready(&Context::from_waker(&waker))
            .is_pending()
    );
    drop(part);
    assert_eq!((woken.0.load(Relaxed), memory.used()), (0, held));
    drop(half);
    assert_eq!((woken.0.load(Relaxed), memory.used()), (1, 0));
}

#[test]
fn only_the_largest_stalled_connection_is_closed() {
    let memory = MemoryBudget::new(1000 + 3 * ENTRY);
    let part = Bytes::from_static(&[0; 100]);
    let [small, large, busy] = [memory.account(), memory.account(), memory.account()];
    let _held = (
        small.hold(Bytes::from_static(&[0; 150])),
        large.hold(Bytes::from_static(&[0; 300])),
        busy.charge(400),
        busy.hold(part.clone()),
    );
    assert!(memory.stalled().is_empty());
    for account in [&small, &large, &busy] {
        account.progress.lock().since -= 2 * STALLED;
    }
    // As much as it holds is sent.
    for _ in 0..6 {
        drop(busy.hold(part.clone()));
    }
    let stalled = memory.stalled();
    assert!(stalled.len() == 1 && Arc::ptr_eq(&stalled[0], &large));
}

#[test]
fn unflushed_bytes_are_released_with_their_connection() {
    let memory = MemoryBudget::new(1000);
    let account = memory.account();
    account.hold_until_flushed(100);
    account.flushed();
    assert_eq!(memory.used(), 0);
    account.hold_until_flushed(100);
    drop(account);
    assert_eq!(memory.used(), 0);
}

/// A back end that flushes each byte, and a client that takes none.
#[test]
fn short_parts_are_charged_what_they_hold_and_keep_no_buffer() {
    let memory = MemoryBudget::new(8 << 20);
    let account = memory.account();
    let buffer = Bytes::from(vec![7; 32 << 10]);
    let mut parts = Vec::new();
    while is_ready(&account) {
        parts.push(account.hold(buffer.slice(9..10)));
    }
    assert!(parts.len() < (1 << 20) / ENTRY, "{}", parts.len());
    assert!(buffer.is_unique());
    assert!(parts.iter().all(|part| part[..] == [7]));
    drop(parts);
    assert_eq!(memory.used(), 0);
    let long = account.hold(buffer.clone());
    assert_eq!(long.as_ptr(), buffer.as_ptr(), "a long part is not copied");
}
