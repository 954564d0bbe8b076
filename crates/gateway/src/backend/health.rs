//! Whether a server takes connections: trouble is told once, and its end.

use hsmux_pool::config::Backend;
use parking_lot::Mutex;

/// What is known of a server by those who have tried to connect.
#[derive(Default)]
pub struct Health {
    /// Why there was no connection, the last time.
    trouble: Mutex<Option<String>>,
}

impl Health {
    /// It has taken a connection.
    pub fn well(&self, url: &Backend) {
        if self.trouble.lock().take().is_some() {
            tracing::info!("{url} takes connections again");
        }
    }

    /// It has taken none.
    pub fn failed(&self, url: &Backend, why: &str) {
        let told = {
            let mut trouble = self.trouble.lock();
            trouble.replace(why.to_owned()).as_deref() == Some(why)
        };
        if !told {
            tracing::warn!("{url} takes no connection: {why}");
        }
    }
}
