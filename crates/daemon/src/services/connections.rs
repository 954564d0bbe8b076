//! Connections that the daemon serves for one process of a service.

use hsmux_wire::Admitted;

/// So many are kept in mind before closed ones are forgotten.
const FIRST_CLEANUP: usize = 64;

/// All of them end when this is dropped. The service could have given its ends to other processes.
#[derive(Default)]
pub struct ServiceConnections {
    all: Vec<Admitted>,
    next_cleanup: usize,
}

impl ServiceConnections {
    /// Another one.
    pub fn add(&mut self, connection: Admitted) {
        if self.all.len() >= self.next_cleanup.max(FIRST_CLEANUP) {
            self.all.retain(Admitted::is_open);
            self.next_cleanup = 2 * self.all.len();
        }
        self.all.push(connection);
    }
}

impl Drop for ServiceConnections {
    fn drop(&mut self) {
        for connection in &self.all {
            connection.end();
        }
    }
}
