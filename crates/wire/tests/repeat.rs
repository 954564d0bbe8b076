//! A connection that ends in the middle of a call: what is sent again, and what never is.

mod common;

use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use common::{endpoint, sign, soon};
use hsmux_token::{Attributes, Kind, Mechanism, Operation, Outcome, ck};
use hsmux_wire::{Answer, Client, Connection, Greeting, Reply, Welcome};

/// A server that hangs up on the first call that it reads, and answers the later ones; it ends when
/// it has read so many, and tells over how many connections they came.
fn hangs_up_once(listener: UnixListener, calls: usize) -> JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut read = 0;
        let mut connections = 0;
        while read < calls {
            let mut peer = Connection::new(listener.accept().unwrap().0);
            connections += 1;
            welcome(&mut peer);
            while read < calls && peer.read(4096, Some(soon())).is_ok() {
                read += 1;
                if read == 1 {
                    break;
                }
                done(&mut peer);
            }
        }
        connections
    })
}

fn welcome(peer: &mut Connection) {
    peer.read(4096, Some(soon())).unwrap();
    let welcome = Greeting::Welcome(Welcome {
        version: 2,
        boot: 1,
        pin_login: false,
        read_only: false,
        hands_over: None,
    });
    peer.write(&welcome, None).unwrap();
}

fn done(peer: &mut Connection) {
    let answer = Answer::Results(vec![Ok(Outcome::Done)]);
    peer.write(&Reply::new(1, answer), None).unwrap();
}

fn generate() -> Operation {
    Operation::Generate {
        mechanism: Mechanism::plain(ck::CKM_AES_KEY_GEN),
        template: Attributes::default(),
    }
}

#[test]
fn a_signature_is_asked_for_again_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let server = hangs_up_once(UnixListener::bind(&path).unwrap(), 2);
    let client = Client::connect(endpoint(&path), "test").unwrap();
    client.execute(&sign(b"data"), soon()).unwrap();
    assert_eq!(server.join().unwrap(), 2);
}

#[test]
fn a_new_key_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let server = hangs_up_once(UnixListener::bind(&path).unwrap(), 1);
    let client = Client::connect(endpoint(&path), "test").unwrap();
    let error = client.execute(&generate(), soon()).unwrap_err();
    assert_eq!(error.kind(), Kind::Lost);
    assert!(error.to_string().contains("C_GenerateKey"), "{error}");
    assert_eq!(server.join().unwrap(), 1);
}

#[test]
fn a_new_key_goes_over_a_new_connection_when_the_old_one_cannot_take_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = hangs_up_once(listener.try_clone().unwrap(), 2);
    let client = Client::connect(endpoint(&path), "test").unwrap();
    // Read and hung up on: the signature is asked for again, and answered.
    client.execute(&sign(b"data"), soon()).unwrap();
    assert_eq!(server.join().unwrap(), 2);

    // That connection is closed by now; not one byte of the next call is taken on it.
    let server = std::thread::spawn(move || {
        let mut peer = Connection::new(listener.accept().unwrap().0);
        welcome(&mut peer);
        peer.read(4096, Some(soon())).unwrap();
        done(&mut peer);
    });
    client.execute(&generate(), soon()).unwrap();
    server.join().unwrap();
}
