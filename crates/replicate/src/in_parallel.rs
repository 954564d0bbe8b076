//! The same work for several members, at once if threads may be started.

use super::members::PresentMember;
use hsmux_token::{Error, Kind, Result};

/// Runs `work` for each item, on a thread each if there may be threads. A panic is an error of that
/// member's.
pub(super) fn in_parallel<T: Sync, R: Send>(
    threads: bool,
    items: &[T],
    member: impl Fn(&T) -> &PresentMember,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    if !threads || items.len() < 2 {
        return items.iter().map(work).collect();
    }
    std::thread::scope(|scope| {
        let running: Vec<_> = items
            .iter()
            .map(|item| (item, scope.spawn(|| work(item))))
            .collect();
        running
            .into_iter()
            .map(|(item, thread)| {
                thread.join().unwrap_or_else(|_| {
                    let error = Error::token(Kind::Lost, "ended in a panic");
                    Err(error.at(&member(item).name))
                })
            })
            .collect()
    })
}
