//! Rotation of ticket keys, and which tickets of clients are accepted meanwhile.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use boring::pkey::PKey;
use boring::ssl::{Ssl, SslContext};
use boring::x509::X509;
use hsmux_pool::Options;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Stream, SupportedProtocolVersion,
};
use tempfile::NamedTempFile;

use super::*;
use crate::tls;

const ROTATION: u64 = 3600;

#[test]
fn hosts_with_clocks_a_period_apart_have_each_others_keys() {
    let of = |period: u64| {
        let secret = |period: u64| Ok(Zeroizing::new([period as u8; 32]));
        ring(period, secret).unwrap()
    };
    let (now, later) = (of(8), of(9));
    assert!(later.previous == Some(now.current.clone()));
    assert!(now.next == Some(later.current.clone()));
    assert!(now.current != later.current && of(0).previous.is_none());
}

/// The secret and the certificate that hosts of a cluster share.
struct Cluster {
    secret: NamedTempFile,
    identity: CertifiedKey<KeyPair>,
}

/// A host, and its context of TLS.
struct Host {
    tickets: TicketKeyRotation,
    server: SslContext,
}

impl Cluster {
    fn new() -> Self {
        // Nobody else can read it.
        let mut secret = NamedTempFile::new().unwrap();
        secret.write_all(&[7; 32]).unwrap();
        let identity = generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        Self { secret, identity }
    }

    /// A host with this clock, in seconds of Unix time.
    fn host(&self, time: u64) -> Host {
        let own = TicketKeyRing {
            current: TicketKey::random().unwrap(),
            previous: None,
            next: None,
        };
        let tickets = TicketKeyRotation {
            secret: ObjectSource::File(self.secret.path().to_owned()),
            rotation: ROTATION,
            pool: Pool::start(Options::default(), Vec::new()).unwrap(),
            metrics: Metrics::new().unwrap(),
            keys: TicketKeys::new(own),
            input: None,
        };
        let mut server = tls::builder(tls::Resumption::Shared(tickets.keys())).unwrap();
        let certificate = X509::from_der(self.identity.cert.der()).unwrap();
        let key = self.identity.signing_key.serialize_der();
        let key = PKey::private_key_from_der(&key).unwrap();
        server.set_certificate(&certificate).unwrap();
        server.set_private_key(&key).unwrap();
        let mut host = Host {
            tickets,
            server: server.build(),
        };
        host.turn_to(time);
        host
    }

    fn client(&self, version: &'static SupportedProtocolVersion) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.identity.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Client(Arc::new(config))
    }
}

impl Host {
    fn turn_to(&mut self, time: u64) {
        self.tickets.update_at(Duration::from_secs(time)).unwrap();
    }
}

/// A client that presents its newest ticket.
struct Client(Arc<ClientConfig>);

impl Client {
    /// Connects, and returns whether its session was resumed. The client gets a new ticket if the host issues one.
    fn resumes(&self, host: &Host) -> bool {
        let (mut here, there) = UnixStream::pair().unwrap();
        let ssl = Ssl::new(&host.server).unwrap();
        let served = thread::spawn(move || ssl.accept(there).unwrap().write_all(b"!").unwrap());
        let name = "a.test".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::clone(&self.0), name).unwrap();
        // Comes after the tickets.
        let mut word = [0];
        Stream::new(&mut client, &mut here)
            .read_exact(&mut word)
            .unwrap();
        served.join().unwrap();
        client.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

/// As docs/configuration.md says: a key seals new tickets for a rotation, and they are accepted for another one.
#[test]
fn a_ticket_is_accepted_and_replaced_in_the_rotation_after_its_own() {
    let cluster = Cluster::new();
    for version in [&TLS13, &TLS12] {
        let mut host = cluster.host(8 * ROTATION);
        let [regular, late, gone] = [(); 3].map(|()| cluster.client(version));
        for client in [&regular, &late, &gone] {
            assert!(!client.resumes(&host), "{version:?}: it has no ticket");
        }
        host.turn_to(9 * ROTATION);
        assert!(regular.resumes(&host), "{version:?}: right after");
        host.turn_to(10 * ROTATION - 1);
        assert!(late.resumes(&host), "{version:?}: at the last moment");
        host.turn_to(10 * ROTATION);
        assert!(!gone.resumes(&host), "{version:?}: too late");
        // They got tickets of the key of that time.
        for client in [&regular, &late] {
            assert!(client.resumes(&host), "{version:?}: with a new ticket");
        }
    }
}

#[test]
fn a_host_whose_clock_is_behind_accepts_tickets_of_the_next_key() {
    let cluster = Cluster::new();
    let (ahead, behind) = (cluster.host(9 * ROTATION), cluster.host(9 * ROTATION - 1));
    for version in [&TLS13, &TLS12] {
        let client = cluster.client(version);
        assert!(!client.resumes(&ahead), "{version:?}: it has no ticket");
        for host in [&behind, &ahead] {
            assert!(client.resumes(host), "{version:?}");
        }
    }
}
