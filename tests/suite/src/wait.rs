use std::net::TcpListener;
use std::time::{Duration, Instant};

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

/// A TCP port of the loopback interface that nothing listens on.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port()
}
