//! A daemon for tests: one soft token behind a socket, with logins as the real one has them.

use std::collections::HashSet;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hsmux_pkcs11::backend::DaemonBackend;
use hsmux_pkcs11::library;
use hsmux_token::{Error, Kind, Operation, Result, Token};
use hsmux_wire::{
    Answer, Answerer, Call, Conversation, Endpoint, Hello, Listening, Peer, Reactor, Reply,
    Service, View,
};

use crate::calls::PIN;
use crate::soft::{Soft, soft};

/// A running daemon; dropping it is killing it.
pub struct Server {
    pub served: Arc<Served>,
    reactor: Arc<Reactor>,
    _listening: Listening,
}

pub struct Served {
    pub soft: Soft,
    pub opened: AtomicUsize,
    pub closed: AtomicUsize,
    pub views: AtomicUsize,
    pub wrong_pins: AtomicUsize,
    boot: u64,
    users: Mutex<HashSet<[u8; 16]>>,
}

impl Server {
    pub fn start(path: &Path) -> Self {
        static BOOTS: AtomicU64 = AtomicU64::new(1);
        let served = Arc::new(Served {
            soft: soft(),
            opened: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            views: AtomicUsize::new(0),
            wrong_pins: AtomicUsize::new(0),
            boot: BOOTS.fetch_add(1, Ordering::Relaxed),
            users: Mutex::default(),
        });
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let reactor = Reactor::start().unwrap();
        let front = Arc::new(Front(Arc::clone(&served)));
        let listening = reactor.listen(listener, front).unwrap();
        Self {
            served,
            reactor,
            _listening: listening,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.reactor.stop();
    }
}

struct Front(Arc<Served>);

impl Service for Front {
    fn boot(&self) -> u64 {
        self.0.boot
    }

    fn pin_login(&self) -> bool {
        true
    }

    fn open(&self, _: Peer, hello: &Hello) -> Result<Arc<dyn Conversation>> {
        self.0.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(Talk {
            served: Arc::clone(&self.0),
            client: hello.client,
        }))
    }
}

struct Talk {
    served: Arc<Served>,
    client: [u8; 16],
}

impl Talk {
    fn is_user(&self) -> bool {
        self.served.users.lock().unwrap().contains(&self.client)
    }

    fn epoch(&self) -> u64 {
        let epoch = self.served.soft.token.objects().unwrap().epoch;
        epoch * 2 + u64::from(self.is_user())
    }

    fn answer(&self, call: Call) -> Result<Answer> {
        match call {
            Call::Execute(items) => {
                let run = |operation: &Operation| self.run(operation);
                let results = items.iter().map(|item| run(&item.operation));
                Ok(Answer::Results(results.collect()))
            }
            Call::Catalogue { known } if known == self.epoch() => Ok(Answer::Catalogue(None)),
            Call::Catalogue { .. } => {
                self.served.views.fetch_add(1, Ordering::SeqCst);
                Ok(Answer::Catalogue(Some(self.view()?)))
            }
            Call::Login(pin) if pin.expose() == PIN => {
                self.served.users.lock().unwrap().insert(self.client);
                Ok(Answer::Done)
            }
            Call::Login(_) => {
                self.served.wrong_pins.fetch_add(1, Ordering::SeqCst);
                Err(Error::request(Kind::PinIncorrect, "wrong"))
            }
            Call::Logout => {
                self.served.users.lock().unwrap().remove(&self.client);
                Ok(Answer::Done)
            }
            _ => Err(Error::request(Kind::Unsupported, "not here")),
        }
    }

    fn run(&self, operation: &Operation) -> Result<hsmux_token::Outcome> {
        if !self.is_user() && operation.objects().next().is_some() {
            return Err(Error::request(Kind::NotLoggedIn, "log in first"));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        self.served.soft.token.execute(operation, deadline)
    }

    fn view(&self) -> Result<View> {
        let snapshot = self.served.soft.token.objects()?;
        let private = |object: &hsmux_token::Object| {
            object.attributes.flag(hsmux_token::ck::CKA_PRIVATE) == Some(true)
        };
        let shown = snapshot
            .objects
            .iter()
            .filter(|o| self.is_user() || !private(o));
        Ok(View {
            epoch: self.epoch(),
            info: (*self.served.soft.token.info()).clone(),
            objects: shown.cloned().collect(),
            logged_in: self.is_user(),
        })
    }
}

impl Conversation for Talk {
    fn call(&self, call: Call, answerer: Answerer) {
        let answer = self.answer(call).unwrap_or_else(Answer::Failed);
        answerer.send(&Reply::new(self.epoch(), answer));
    }

    fn closed(&self) {
        self.served.closed.fetch_add(1, Ordering::SeqCst);
    }
}

/// C_Initialize on the daemon at a socket.
pub fn initialise(path: &Path) -> crate::calls::Answer {
    let endpoint = Endpoint::Unix(PathBuf::from(path));
    let patience = Duration::from_secs(60);
    library::initialise(|| Ok(Box::new(DaemonBackend::new(endpoint, patience)?))).map_err(|rv| rv.0)
}
