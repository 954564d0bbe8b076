//! A listener for applications.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use hsmux_audit::Trail;
use hsmux_config::Login;
use hsmux_pool::{Owner, Pool};
use hsmux_replicate::Writer;
use hsmux_token::{Error, Result};
use hsmux_traces::Traces;
use hsmux_wire::{Conversation, Hello, Peer, Service, ServiceClient};
use parking_lot::Mutex;

use crate::application::Application;
use crate::application_connection::ApplicationConnection;
use crate::audit::Who;
use crate::login::LoginGate;
use crate::outstanding_calls::{CallPermit, OutstandingCalls};
use crate::refusals::Refusals;
use crate::session_objects::SessionObjects;
use crate::settings::{Clients, Settings};
use crate::view::Views;

/// The state that all listeners share.
pub struct DaemonContext {
    /// The pool behind them.
    pub pool: Arc<Pool>,
    /// Changes token objects.
    pub writer: Arc<Writer>,
    /// Checks PINs.
    pub gate: LoginGate,
    /// The audit trail.
    pub audit: Arc<Trail>,
    /// Refusals that the trail has or counts.
    pub refusals: Refusals,
    /// The collector of spans.
    pub traces: Arc<Traces>,
    /// Session objects of all users.
    pub session_objects: SessionObjects,
    /// Random for each start.
    pub boot: u64,
}

impl DaemonContext {
    /// Records that a user may not connect, or not stay. True if the log should have a line.
    pub fn keep_out(&self, who: &Who, why: &Error) -> bool {
        self.refusals.record(who, "connect", &why.to_string())
    }

    /// Records a refused connection of a service. One that was taken over could open connections without end.
    pub fn refuse_service(&self, name: &str, error: &Error) {
        let who = Who::of_service(rustix::process::geteuid().as_raw(), 0, name);
        if self.keep_out(&who, error) {
            tracing::error!(%error, "a connection of the {name} is refused");
        }
    }
}

/// One listener: its rights, and the applications that are connected.
pub struct AppService {
    /// The state that all listeners share.
    pub shared: Arc<DaemonContext>,
    /// The current rights.
    pub settings: ArcSwap<Settings>,
    /// The catalogue as its applications see it.
    pub views: Views,
    number: u64,
    outstanding_calls: OutstandingCalls,
    applications: Mutex<HashMap<Name, ConnectedApplication>>,
}

/// An application: its user, and what it chose at C_Initialize. The user is part of it, so that
/// nobody gets into another user's sessions by guessing.
type Name = (u32, [u8; 16]);

struct ConnectedApplication {
    application: Arc<Application>,
    connections: usize,
}

impl AppService {
    /// A listener with these rights.
    pub fn new(shared: Arc<DaemonContext>, settings: Settings) -> Arc<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            shared,
            settings: ArcSwap::from_pointee(settings),
            views: Views::default(),
            number: LAST.fetch_add(1, Ordering::Relaxed),
            outstanding_calls: OutstandingCalls::default(),
            applications: Mutex::default(),
        })
    }

    /// Changes the rights, also of connections that are open.
    pub fn change(&self, mut settings: Settings) {
        let old = self.settings.load();
        let changed = settings.listener != old.listener;
        settings.edition = old.edition + u64::from(changed);
        let was_free = old.listener.login == Login::Peer;
        self.settings.store(Arc::new(settings));
        if was_free {
            let applications = self.applications.lock();
            let all: Vec<_> = applications
                .values()
                .map(|connected| Arc::clone(&connected.application))
                .collect();
            drop(applications);
            for application in &all {
                self.end_free_logins(application);
            }
        }
    }

    /// Logs out an application that logged in without a PIN, if a PIN is needed now.
    pub fn end_free_logins(&self, application: &Application) {
        if self.settings.load().listener.login == Login::Pin {
            application.log_out();
        }
    }

    /// Admits a call of another host. The limit is its share, but not less than the lanes.
    pub fn call_permit(&self, settings: &Settings, lanes: u32) -> Result<Option<CallPermit>> {
        let most = settings.share.map(|share| share.max(lanes as usize));
        most.map(|most| self.outstanding_calls.take(most))
            .transpose()
    }

    /// The owner of this account's requests. Another host is one owner for all its users.
    pub fn owner(&self, account: u32) -> Owner {
        match self.settings.load().clients {
            Clients::Programs => Owner::User(account),
            Clients::Host => Owner::Host(self.number),
            Clients::Gateway => Owner::Gateway,
            Clients::Broker => Owner::Broker(0),
        }
    }

    /// Applications that are connected.
    pub fn applications(&self) -> usize {
        self.applications.lock().len()
    }

    fn join(self: &Arc<Self>, name: Name, account: u32) -> Arc<Application> {
        let mut applications = self.applications.lock();
        let connected = applications
            .entry(name)
            .or_insert_with(|| ConnectedApplication {
                application: Arc::new(Application::new(Arc::clone(self), account)),
                connections: 0,
            });
        connected.connections += 1;
        Arc::clone(&connected.application)
    }

    /// One connection has closed. With the last, the application's session objects end.
    pub fn leave(&self, name: Name) {
        let mut applications = self.applications.lock();
        let Some(connected) = applications.get_mut(&name) else {
            return;
        };
        connected.connections -= 1;
        if connected.connections > 0 {
            return;
        }
        let last = applications.remove(&name);
        drop(applications);
        if let Some(last) = last {
            last.application.end();
        }
    }
}

/// The reactor's view of a listener: accepts connections.
pub struct ListenerService {
    /// The listener.
    pub service: Arc<AppService>,
    /// The client, if all connections are one service's or one other host's.
    pub client: Option<ServiceClient>,
}

impl Service for ListenerService {
    fn boot(&self) -> u64 {
        self.service.shared.boot
    }

    fn pin_login(&self) -> bool {
        self.service.settings.load().listener.login == Login::Pin
    }

    fn read_only(&self) -> bool {
        self.service.settings.load().listener.read_only
    }

    fn hands_over(&self) -> bool {
        let settings = self.service.settings.load();
        settings.hands_over()
    }

    fn open(&self, peer: Peer, hello: &Hello) -> Result<Arc<dyn Conversation>> {
        let who = match &self.client {
            None => Who {
                account: peer.account,
                ..Who::new(peer.uid, peer.pid, &hello.program)
            },
            Some(ServiceClient::Host { name, .. }) => Who::of_host(peer.uid, name),
            Some(ServiceClient::Service) => {
                let name = self.service.settings.load().clients.name();
                Who::of_service(peer.uid, peer.pid, name)
            }
        };
        let admitted = self.service.settings.load().admit(peer.uid);
        admitted.inspect_err(|error| {
            if self.service.shared.keep_out(&who, error) {
                tracing::warn!(%peer, program = who.program(), %error, "refused");
            }
        })?;
        let name = (peer.uid, hello.client);
        let application = self.service.join(name, peer.account);
        if self.client.is_some() {
            // A host's certificate was its login. This process started the service.
            application.log_in();
        }
        Ok(Arc::new(ApplicationConnection::new(application, name, who)))
    }
}
