//! The open sockets: one for each listener of the configuration, and one for administration.

use std::sync::Arc;

use hsmux_config::{Config, Listener};
use hsmux_edge::unix_listener::{SocketFile, listen};
use hsmux_token::{Error, Result};
use hsmux_wire::{Entrance, Listening, Reactor, ServiceClient};
use parking_lot::Mutex;

use crate::admin::{AdminService, ListenerStatus};
use crate::daemon::Running;
use crate::peers::Peers;
use crate::service::{AppService, ListenerService};
use crate::settings::{Clients, Settings};

/// The most connections of a service. The broker opens up to 2,050, and as many again for a moment when it reconnects. A service
/// that was taken over could open connections without end.
const MOST_OF_SERVICE: usize = 4608;

/// All open sockets.
pub struct OpenListeners {
    reactor: Arc<Reactor>,
    applications: Mutex<Vec<OpenListener>>,
    administration: Mutex<Option<(Listening, SocketFile)>>,
    /// The rights of services.
    services: Mutex<Vec<Arc<AppService>>>,
    /// The connections of other hosts.
    pub peers: Peers,
}

/// A listener in service.
struct OpenListener {
    service: Arc<AppService>,
    listening: Listening,
    file: SocketFile,
}

impl OpenListeners {
    /// Opens nothing yet.
    pub fn new(reactor: Arc<Reactor>) -> Self {
        Self {
            peers: Peers::new(Arc::clone(&reactor)),
            reactor,
            applications: Mutex::default(),
            administration: Mutex::default(),
            services: Mutex::default(),
        }
    }

    /// Opens all listeners of the configuration.
    pub fn open(&self, running: &Arc<Running>) -> Result<()> {
        let config = running.config();
        let (socket, file) = listen(&config.admin.socket)?;
        let service = Arc::new(AdminService(Arc::downgrade(running)));
        let listening = self.reactor.listen(socket, service)?;
        *self.administration.lock() = Some((listening, file));
        let mut applications = self.applications.lock();
        for listener in &config.listeners {
            applications.push(self.open_one(running, &config, listener)?);
        }
        Ok(())
    }

    fn open_one(
        &self,
        running: &Running,
        config: &Config,
        listener: &Listener,
    ) -> Result<OpenListener> {
        let settings = Settings::new(config, listener);
        warn_without_login(&settings);
        let service = AppService::new(Arc::clone(&running.shared), settings);
        let (socket, file) = listen(&listener.socket)?;
        let listener_service = Arc::new(ListenerService {
            service: Arc::clone(&service),
            client: None,
        });
        let listening = self.reactor.listen(socket, listener_service)?;
        Ok(OpenListener {
            service,
            listening,
            file,
        })
    }

    /// Accepts the connections of a service.
    pub fn of_service(&self, running: &Running, clients: Clients) -> Entrance {
        let settings = Settings::of_service(&running.config(), clients);
        let service = AppService::new(Arc::clone(&running.shared), settings);
        self.services.lock().push(Arc::clone(&service));
        let listener_service = ListenerService {
            service,
            client: Some(ServiceClient::Service),
        };
        self.reactor
            .entrance(Arc::new(listener_service), MOST_OF_SERVICE)
    }

    /// Takes over another configuration, and answers what has changed. New sockets come first: if one cannot be made,
    /// nothing changes.
    pub fn change(&self, running: &Running, new: &Config) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut applications = self.applications.lock();
        let path = |open: &OpenListener| open.service.settings.load().listener.socket.path.clone();
        let mut added = Vec::new();
        for listener in &new.listeners {
            if !applications
                .iter()
                .any(|open| path(open) == listener.socket.path)
            {
                let open = self.open_one(running, new, listener)?;
                let socket = listener.socket.path.display();
                lines.push(format!("listener {socket} added"));
                if let Some(error) = error_of_login(&open.service.settings.load()) {
                    lines.push(format!("listener {socket}: nobody can log in: {error}"));
                }
                added.push(open);
            }
        }
        applications.retain(|open| {
            let old = open.service.settings.load();
            let kept = new
                .listeners
                .iter()
                .find(|l| l.socket.path == old.listener.socket.path);
            let Some(listener) = kept else {
                open.service.change(old.close());
                lines.push(format!("listener {} removed", path(open).display()));
                return false;
            };
            if *listener != old.listener {
                lines.push(format!("listener {} changed", path(open).display()));
            }
            // The content of the PIN's file may have changed.
            let settings = Settings::new(new, listener);
            if let Some(error) = warn_without_login(&settings) {
                let socket = listener.socket.path.display();
                lines.push(format!("listener {socket}: nobody can log in: {error}"));
            }
            open.service.change(settings);
            if let Err(error) = open.file.permit(&listener.socket) {
                tracing::error!(%error, "the socket's permissions stay as they were");
            }
            true
        });
        applications.append(&mut added);
        drop(applications);
        for service in &*self.services.lock() {
            let clients = service.settings.load().clients;
            service.change(Settings::of_service(new, clients));
        }
        Ok(lines)
    }

    /// Closes all sockets. Open connections stay until the process ends.
    pub fn close(&self) {
        self.applications.lock().clear();
        *self.administration.lock() = None;
    }

    /// True if every listener refuses C_Login, because it cannot read its PIN.
    pub fn nobody_can_log_in(&self) -> bool {
        let refuses = |open: &OpenListener| error_of_login(&open.service.settings.load()).is_some();
        self.applications.lock().iter().all(refuses)
    }

    /// The state of the listeners.
    pub fn status(&self) -> Vec<ListenerStatus> {
        let status = |open: &OpenListener| {
            let settings = open.service.settings.load();
            ListenerStatus {
                socket: settings.listener.socket.path.clone(),
                read_only: settings.listener.read_only,
                pin_login: settings.listener.login == hsmux_config::Login::Pin,
                connections: open.listening.connections(),
                applications: open.service.applications(),
            }
        };
        self.applications.lock().iter().map(status).collect()
    }
}

/// Why nobody can log in to this listener, if its PIN cannot be read.
fn error_of_login(settings: &Settings) -> Option<&Error> {
    let has_pin = settings.listener.login == hsmux_config::Login::Pin;
    settings.pin.as_ref().err().filter(|_| has_pin)
}

/// Logs a warning if nobody can log in to this listener, and answers why.
fn warn_without_login(settings: &Settings) -> Option<&Error> {
    let error = error_of_login(settings)?;
    let socket = settings.listener.socket.path.display();
    tracing::warn!(%socket, %error, "nobody can log in here");
    Some(error)
}
