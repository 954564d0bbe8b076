//! Programs with an older module loaded, and a newer daemon.

use std::time::{Duration, Instant};

use hsmux_suite::{Rig, Setup};
use hsmux_token::ck::CKM_ECDSA;
use hsmux_token::{Class, Mechanism, Operation, Secret, Verb};
use hsmux_wire::{Answer, Call, Client, Endpoint, OLDEST, VERSION};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// The client of the module, speaking the version before.
#[test]
fn a_module_of_the_previous_version_goes_on() {
    let rig = Rig::new(Setup::Daemon);
    let endpoint = Endpoint::from(&*rig.path("hsmux.sock"));
    let client = Client::with_versions(endpoint, "older", OLDEST..=VERSION - 1).unwrap();
    let pin = Secret::new(rig.pin().into_bytes());
    client.call(Call::Login(pin), soon()).unwrap();
    let reply = client.call(Call::Catalogue { known: 0 }, soon()).unwrap();
    let Answer::Catalogue(Some(view)) = reply.answer else {
        panic!("{reply:?}");
    };
    let key = view
        .objects
        .iter()
        .find(|object| object.id.class == Class::PRIVATE_KEY && is_ec(object))
        .expect("the key ec");
    let sign = Operation::Use {
        verb: Verb::Sign,
        key: key.id.into(),
        mechanism: Mechanism::plain(CKM_ECDSA),
        data: vec![7; 32].into(),
    };
    let signature = client.execute(&sign, soon()).unwrap();
    assert_eq!(signature.into_bytes().unwrap().len(), 64);
    assert_eq!(client.welcome().unwrap().version, VERSION - 1);
}

fn is_ec(object: &hsmux_token::Object) -> bool {
    object
        .attributes
        .text(hsmux_token::ck::CKA_LABEL)
        .as_deref()
        == Some("ec")
}

#[test]
fn a_module_of_another_age_is_told_so() {
    let rig = Rig::new(Setup::Daemon);
    let endpoint = Endpoint::from(&*rig.path("hsmux.sock"));
    let client = Client::with_versions(endpoint, "newer", VERSION + 1..=VERSION + 2).unwrap();
    let refused = client
        .call(Call::Info, soon())
        .expect_err("no common version");
    assert!(refused.to_string().contains("upgrade"), "{refused}");
}
