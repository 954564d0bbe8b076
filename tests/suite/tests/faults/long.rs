//! Results and objects that no frame between a worker and the daemon holds.

use hsmux_suite::{Caller, Rig, SOFTHSM, Setup, SoftHsm};
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Kind, Mechanism, Operation, Verb};
use hsmux_wire::frame::MAX_FRAME;
use hsmux_wire::{Client, VERSION};
use serde_json::json;

use crate::raw::{client, log_in, named, sign, soon};

/// As many as travel in one frame, twice.
const CALLERS: usize = 32;

#[test]
fn random_bytes_that_many_ask_for_at_once_harm_no_worker() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.start();
    let workers = rig.workers();
    let random = |client: &Client, len| {
        let answer = client.execute(&Operation::Random { len }, soon());
        assert_eq!(answer.unwrap().into_bytes().unwrap().len(), len as usize);
    };
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let client = client(&rig, VERSION..=VERSION);
                log_in(&rig, &client);
                // Short ones make the token one that takes several at once.
                (0..50).for_each(|_| random(&client, 1));
                (0..4).for_each(|_| random(&client, 1 << 20));
            });
        }
    });
    assert_eq!(rig.workers(), workers);
}

#[test]
fn a_result_that_no_frame_holds_fails_its_own_call_alone() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut cards = rig.stand_in("cards", &["card1", "card2"]);
    rig.start();
    let workers = rig.workers();
    let client = client(&rig, VERSION..=VERSION);
    log_in(&rig, &client);
    let encrypt = Operation::Use {
        verb: Verb::Encrypt,
        key: named(&client, Class::SECRET_KEY, "aes").unwrap().into(),
        mechanism: Mechanism::with_bytes(CKM_AES_CBC, vec![0; 16]),
        data: vec![7; MAX_FRAME - 4096].into(),
    };
    let answer = client.execute(&encrypt, soon()).unwrap();
    assert_eq!(answer.into_bytes().unwrap().len(), MAX_FRAME - 4096);
    cards.set_all("longer_by = 40000");
    let error = client.execute(&encrypt, soon()).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("too long"), "{error}");
    cards.set_all("");
    let key = named(&client, Class::PRIVATE_KEY, "ec").unwrap();
    client.execute(&sign(key), soon()).unwrap();
    assert_eq!(rig.workers(), workers);
}

#[test]
fn long_objects_take_no_member_away_and_hide_no_key() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    let mut owner = Caller::start_on(&rig, SOFTHSM);
    owner.ok(
        "open",
        json!({"label": "hsm1", "pin": SoftHsm::pin("hsm1")}),
    );
    for (label, len) in [("a", 6), ("b", 7), ("c", 8), ("d", 20)] {
        let value = "x".repeat(len << 20);
        owner.ok("store", json!({"label": label, "value": value}));
    }
    drop(owner);
    rig.start();
    let workers = rig.workers();
    let client = client(&rig, VERSION..=VERSION);
    log_in(&rig, &client);
    let is_shown = |label| named(&client, Class::DATA, label).is_some();
    // The longest are left out, as many as it takes; an attribute of more than 16 MiB is not read.
    assert_eq!(
        ["a", "b", "c", "d"].map(is_shown),
        [true, true, false, true]
    );
    for label in ["e", "f"] {
        let create = Operation::Create {
            template: Attributes::default()
                .with_flag(CKA_TOKEN, true)
                .with_number(CKA_CLASS, CKO_DATA)
                .with(CKA_LABEL, label)
                .with(CKA_VALUE, vec![7; 5 << 20]),
            near: None,
        };
        client.execute(&create, soon()).unwrap();
    }
    assert_eq!(
        ["a", "b", "e", "f"].map(is_shown),
        [false, false, true, true]
    );
    let key = named(&client, Class::PRIVATE_KEY, "ec").unwrap();
    client.execute(&sign(key), soon()).unwrap();
    assert_eq!(rig.workers(), workers);
}
