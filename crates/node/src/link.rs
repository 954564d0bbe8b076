//! The using side: a worker process that passes frames between its lanes and another host.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::ExitCode;

use hsmux_state::FileVersions;
use hsmux_token::{Error, Kind, Result, TokenInfo};
use hsmux_wire::{Answer, Call, Connection, SPOKEN};
use hsmux_worker::{LinkOptions, Orders, serve_orders};
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificate::PeerCertificate;
use crate::connect::ConnectRequest;
use crate::connect_failure::ConnectFailure;
use crate::heartbeat;
use crate::identity::{self, TlsIdentity, unfit};
use crate::revocation;
use crate::stream::{pass, request, without_user_timeout};

/// Another host, connected.
pub struct NodeLink {
    /// The parent's order.
    pub options: LinkOptions,
    /// The name that the other host's certificate must have.
    pub server: ServerName<'static>,
    /// The frame version agreed.
    pub version: u16,
    /// The files as they were read.
    pub stamp: FileVersions,
    /// The other host's certificate.
    pub shown: PeerCertificate,
    /// This host's certificate.
    pub own: PeerCertificate,
}

/// The program of a link: serves the token of another host until that host or the parent ends.
pub fn link_main() -> ExitCode {
    serve_orders(|orders: Orders<LinkOptions>| {
        let mut control = Connection::new(match orders.control.try_clone() {
            Ok(control) => control,
            Err(error) => return tracing::warn!(%error, "the link ends"),
        });
        let runtime = Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(run(orders, &mut control)),
            Err(error) => {
                let message = format!("no event loop: {error}");
                tell(&mut control, Error::token(Kind::Environment, message));
            }
        }
    })
}

/// Connects, and serves until that ends.
async fn run(orders: Orders<LinkOptions>, control: &mut Connection) {
    let (name, address) = (orders.order.name.clone(), orders.order.address.clone());
    let mut lanes = JoinSet::new();
    let ended = match LinkSession::open(orders.order).await {
        Ok(line) => line.serve(orders.lanes, &mut lanes, control).await,
        Err(error) => error,
    };
    // The report comes before the lanes are closed: a closed lane tells the parent only that the worker is dead.
    tell(control, ended.at(format_args!("{name} at {address}")));
    drop(lanes);
}

/// Reports why the link ends. If the parent has gone, the report is lost.
fn tell(control: &mut Connection, error: Error) {
    let _ = control.write(&Answer::Failed(error), None);
}

/// A lane that has ended, and is not closed yet.
type LaneEnd = (io::Result<()>, UnixStream);

/// The way to the other host.
struct LinkSession {
    link: NodeLink,
    connector: TlsConnector,
    client: [u8; 16],
    /// Beside the lanes, for the [`heartbeat`].
    heartbeat: TlsStream<TcpStream>,
    info: TokenInfo,
}

impl LinkSession {
    async fn open(options: LinkOptions) -> Result<Self> {
        let stamp = FileVersions::of(options.identity.files());
        let loaded = TlsIdentity::read(&options.identity)?;
        let config = loaded.client();
        let connector = TlsConnector::from(config.map_err(|e| unfit(&options.identity, &e))?);
        let server = ServerName::try_from(options.name.clone()).map_err(|_| {
            let message = format!("{:?} is no name of a node", options.name);
            Error::pool(Kind::Environment, message)
        })?;
        let mut client = [0; 16];
        getrandom::fill(&mut client)
            .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
        let wanted = ConnectRequest {
            address: &options.address,
            connector: &connector,
            server: &server,
            client,
            versions: *SPOKEN.start()..=*SPOKEN.end(),
        };
        let (mut heartbeat, version) = wanted.connect().await?;
        let shown = heartbeat
            .get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default();
        let shown = PeerCertificate::of(shown).map_err(Error::protocol)?;
        let info = match request(&mut heartbeat, version, &Call::Info).await? {
            Answer::Info(info) => info,
            Answer::Failed(error) => return Err(error),
            other => return Err(Error::protocol(format!("answered {other:?}"))),
        };
        let info = TokenInfo {
            // Two hosts may have pools of one name.
            serial: format!("node {}", options.name),
            lanes: info.lanes.clamp(1, options.lanes.max(1)),
            slot: None,
            ..info
        };
        Ok(Self {
            link: NodeLink {
                options,
                server,
                version,
                stamp,
                shown,
                own: loaded.own,
            },
            connector,
            client,
            heartbeat,
            info,
        })
    }

    /// Connects the lanes, reports that, and passes frames until one lane ends.
    async fn serve(
        mut self,
        mut lanes: Vec<StdUnixStream>,
        running: &mut JoinSet<LaneEnd>,
        control: &mut Connection,
    ) -> Error {
        lanes.truncate(self.info.lanes as usize + 1);
        let passing = match self.connect_all(lanes).await {
            Ok(passing) => passing,
            Err(error) => return error,
        };
        let started = Answer::Linked(self.info, self.link.version);
        if let Err(error) = control.write(&started, None) {
            return Error::lost(format!("its parent: {error}"));
        }
        for (mut far, mut near) in passing {
            running.spawn(async move { (pass(&mut far, &mut near).await, near) });
        }
        let (ended, near) = tokio::select! {
            error = heartbeat::watch(&mut self.heartbeat, &self.link) => return error,
            never = revocation::keep(&self.link.options, &self.link.server) => match never {},
            Some(Ok(ended)) = running.join_next() => ended,
        };
        // Kept open with the others.
        running.spawn(async move { (Ok(()), near) });
        match ended {
            Err(error) => Error::lost(ConnectFailure::of(&error).problem),
            Ok(()) => Error::lost("closed the connection"),
        }
    }

    async fn connect_all(
        &self,
        lanes: Vec<StdUnixStream>,
    ) -> Result<Vec<(TlsStream<TcpStream>, UnixStream)>> {
        let version = self.link.version;
        let wanted = ConnectRequest {
            address: &self.link.options.address,
            connector: &self.connector,
            server: &self.link.server,
            client: self.client,
            versions: version..=version,
        };
        let mut passing = Vec::with_capacity(lanes.len());
        for near in lanes {
            let near = near
                .set_nonblocking(true)
                .and_then(|()| UnixStream::from_std(near));
            let near = near.map_err(|e| Error::lost(format!("a lane: {e}")))?;
            let (far, _) = wanted.connect().await?;
            without_user_timeout(far.get_ref().0)?;
            passing.push((far, near));
        }
        Ok(passing)
    }
}

impl NodeLink {
    /// Reads the files again; an error ends the link.
    pub fn look_again(&self) -> Result<()> {
        let identity = &self.options.identity;
        // The list is read alone: other broken files must not keep a revoked host connected.
        let revoked = identity.revoked.as_deref().map(identity::revoked);
        let revoked = revoked.transpose()?.unwrap_or_default();
        if revoked.contains(&self.shown.serial) {
            return Err(Error::lost("its certificate was revoked"));
        }
        let loaded = TlsIdentity::read(identity)?;
        if loaded.own.serial != self.own.serial {
            return Err(Error::lost(
                "this host has another certificate: it connects anew",
            ));
        }
        let servers = loaded.servers().map_err(|e| unfit(identity, &e))?;
        let PeerCertificate { der, others, .. } = &self.shown;
        let verified = servers.verify_server_cert(der, others, &self.server, &[], UnixTime::now());
        let refused = |error| Error::lost(ConnectFailure::of(&io::Error::other(error)).to_string());
        verified.map(drop).map_err(refused)
    }
}
