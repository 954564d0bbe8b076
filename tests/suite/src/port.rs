use std::net::TcpListener;

use crate::{PATIENCE, Process, until};

/// A server that needs a port, and that port, on 127.0.0.1. If another process takes the port first, the server ends,
/// and is started on another one. `answers` says whether it serves.
pub fn on_a_free_port(
    what: &str,
    mut start: impl FnMut(u16) -> Process,
    mut answers: impl FnMut(u16) -> bool,
) -> (Process, u16) {
    until(&format!("{what} on a free port"), PATIENCE, || {
        let port = free_port();
        let mut process = start(port);
        let serves = until(&format!("{what} answers, or has ended"), PATIENCE, || {
            if answers(port) {
                return Some(true);
            }
            (!process.running()).then_some(false)
        });
        (serves && process.running()).then_some((process, port))
    })
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("its address").port()
}
