//! A client, a server and lanes in one process.

mod common;

use common::*;
use hsmux_wire::{Client, Reactor};

#[test]
fn a_call_goes_all_the_way_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let reactor = Reactor::start().unwrap();
    let daemon = Daemon::new(remote(&reactor, 2));
    let _listening = listen(&reactor, &path, &daemon);
    let client = Client::connect(endpoint(&path), "test").unwrap();
    for len in [0, 1, 32, 70_000, 3_000_000] {
        let data = vec![7; len];
        let answer = client.execute(&sign(&data), soon()).unwrap();
        assert_eq!(answer.into_bytes().unwrap(), data);
    }
    assert_eq!(client.epoch(), 3);
    assert_eq!(client.welcome().unwrap().version, 2);
    assert_eq!(daemon.token.objects().unwrap().epoch, 7);
}
