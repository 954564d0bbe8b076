use std::time::{Duration, Instant};

/// How long a test waits for what has to come. A slow machine takes its time (`sc-hsm-tool` computes thirty
/// million MD5 for a share); where all is well nobody waits for long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Asks `ready` again and again until it has an answer; panics when there is none by `limit`.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, ready: impl FnMut() -> Option<T>) -> T {
    poll(limit, ready).unwrap_or_else(|| panic!("{what}: not within {limit:?}"))
}

/// Asks `ready` every 5 ms until it has an answer; `None` when there is none by `limit`.
pub(crate) fn poll<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let answer = ready();
        if answer.is_some() || Instant::now() >= deadline {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
