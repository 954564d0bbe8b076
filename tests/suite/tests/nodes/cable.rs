//! The way from one host to another, which a test cuts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How soon a thread sees that the cable was cut, or is gone.
const LOOK: Duration = Duration::from_millis(20);

/// Passes bytes on to wherever the other host listens now.
pub struct Cable {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    far: Mutex<Option<SocketAddr>>,
    cut: AtomicBool,
    gone: AtomicBool,
}

impl Cable {
    /// Leads nowhere yet: who connects is hung up on.
    pub fn lay() -> Self {
        let near = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = near.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let end = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in near.incoming() {
                if end.gone.load(Ordering::Relaxed) {
                    return;
                }
                let far = *end.far.lock().expect("not poisoned");
                let connected = far.and_then(|far| TcpStream::connect(far).ok());
                if let (Ok(near), Some(far)) = (stream, connected) {
                    for (from, to) in [(&near, &far), (&far, &near)] {
                        let (from, to) = (from.try_clone(), to.try_clone());
                        let end = Arc::clone(&end);
                        thread::spawn(move || end.pass(from.expect("a copy"), to.expect("a copy")));
                    }
                }
            }
        });
        Self { address, shared }
    }

    /// Where the near end is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where new connections lead.
    pub fn lead_to(&self, far: &str) {
        let far = far.parse().expect("an address");
        *self.shared.far.lock().expect("not poisoned") = Some(far);
    }

    /// From now on no byte passes, and nobody is told: connections stay open.
    pub fn cut(&self) {
        self.shared.cut.store(true, Ordering::Relaxed);
    }

    /// Bytes pass again.
    pub fn mend(&self) {
        self.shared.cut.store(false, Ordering::Relaxed);
    }
}

impl Shared {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        from.set_read_timeout(Some(LOOK)).expect("a socket");
        let mut bytes = [0; 16 << 10];
        while !self.gone.load(Ordering::Relaxed) {
            if self.cut.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
                continue;
            }
            match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => {
                    // A cut that comes in between holds it back.
                    while self.cut.load(Ordering::Relaxed) && !self.gone.load(Ordering::Relaxed) {
                        thread::sleep(LOOK);
                    }
                    if to.write_all(&bytes[..read]).is_err() {
                        break;
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Relaxed);
        // The thread that accepts looks once more.
        let _ = TcpStream::connect(self.address);
    }
}
