//! Peers of other frame versions.

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::*;
use hsmux_token::{Kind, Token};
use hsmux_wire::{Call, Client, Listening, Reactor, VERSION};

struct Server {
    path: PathBuf,
    reactor: Arc<Reactor>,
    _listening: Listening,
    _folder: tempfile::TempDir,
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        let reactor = Reactor::start().unwrap();
        let daemon = Daemon::new(remote(&reactor, 2));
        Self {
            _listening: listen(&reactor, &path, &daemon),
            reactor,
            path,
            _folder: folder,
        }
    }
}

#[test]
fn an_older_client_is_served_in_its_version() {
    let server = Server::new();
    let client = Client::with_versions(endpoint(&server.path), "old", 1..=1).unwrap();
    assert!(client.execute(&sign(b"data"), soon()).is_ok());
    assert_eq!(client.welcome().unwrap().version, 1);
    assert_eq!(
        client.call(Call::Info, soon()).unwrap().epoch,
        0,
        "version 1 does not tell it"
    );
}

/// The echo of the server answers everything else with an error.
#[test]
fn only_a_peer_that_knows_it_is_asked_to_begin() {
    let server = Server::new();
    let begin = begin();
    for (versions, asks) in [(1..=2, false), (1..=VERSION, true)] {
        let client = Client::with_versions(endpoint(&server.path), "old", versions).unwrap();
        assert!(client.execute(&sign(b"data"), soon()).is_ok());
        assert_eq!(client.execute(&begin, soon()).is_err(), asks);
    }
    for (version, asks) in [(2, false), (VERSION, true)] {
        let token = remote_in(&server.reactor, version);
        assert_eq!(token.execute(&begin, soon()).is_err(), asks);
        let signed = token.execute(&sign(b"data"), soon()).unwrap();
        assert_eq!(signed.into_bytes().unwrap(), b"data"[..]);
    }
}

#[test]
fn a_client_that_is_too_new_is_told_what_is_spoken() {
    let server = Server::new();
    let client =
        Client::with_versions(endpoint(&server.path), "new", VERSION + 1..=VERSION + 2).unwrap();
    let error = client.execute(&sign(b""), soon()).unwrap_err();
    assert_eq!(error.kind(), Kind::Protocol);
    assert!(
        error.to_string().contains("1 to 5") && error.to_string().contains("6 to 7"),
        "{error}"
    );
}
