//! The wire's client without the module before it: what a program could send that keeps to no rules
//! but those of the frames.

use std::ops::RangeInclusive;
use std::time::Instant;

use hsmux_suite::{PATIENCE, Rig};
use hsmux_token::ck::{CKA_LABEL, CKM_ECDSA};
use hsmux_token::{Class, Mechanism, ObjectId, Operation, Secret, Verb};
use hsmux_wire::{Answer, Call, Client, Endpoint};

pub fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// A client of these versions; nothing is sent yet.
pub fn client(rig: &Rig, versions: RangeInclusive<u16>) -> Client {
    let endpoint = Endpoint::from(&*rig.path("hsmux.sock"));
    Client::with_versions(endpoint, "raw", versions).unwrap()
}

pub fn log_in(rig: &Rig, client: &Client) {
    let pin = Secret::new(rig.pin().into_bytes());
    client.call(Call::Login(pin), soon()).unwrap();
}

/// The name of an object that the daemon shows.
pub fn named(client: &Client, class: Class, label: &str) -> Option<ObjectId> {
    let reply = client.call(Call::Catalogue { known: 0 }, soon()).unwrap();
    let Answer::Catalogue(Some(view)) = reply.answer else {
        panic!("{reply:?}");
    };
    let wanted = |object: &&hsmux_token::Object| {
        object.id.class == class && object.attributes.text(CKA_LABEL).as_deref() == Some(label)
    };
    view.objects.iter().find(wanted).map(|object| object.id)
}

/// A signature with the key `ec`.
pub fn sign(key: ObjectId) -> Operation {
    Operation::Use {
        verb: Verb::Sign,
        key: key.into(),
        mechanism: Mechanism::plain(CKM_ECDSA),
        data: vec![7; 32].into(),
    }
}
