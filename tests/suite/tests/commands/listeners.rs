//! What a listener grants: read-only, some keys only, login by the peer's user.

use hsmux_suite::{Caller, Rig, Setup};
use serde_json::{Value, json};

const WRITE_PROTECTED: u64 = 0xe2;

/// Every call that would change a token is refused; what stays in the session works.
#[test]
fn read_only_is_refused_where_the_keys_are() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.daemon.push_str("read_only = true");
    rig.start();
    // In a read-only session the module would refuse by itself; this one may write.
    let mut program = Caller::open(&rig);
    let before = program.ok("objects", json!({}));
    let refused = [
        ("generate", json!({"label": "new"})),
        ("generate", json!({"label": "new", "kind": "secret"})),
        ("store", json!({"label": "note", "value": "text"})),
        ("destroy", json!({"kind": "private", "label": "ec"})),
        (
            "rename",
            json!({"kind": "private", "label": "ec", "name": "other"}),
        ),
    ];
    for (call, arguments) in refused {
        let error = program.ask(call, arguments).expect_err(call);
        assert_eq!(error, WRITE_PROTECTED, "{call}: CK_RV 0x{error:x}");
    }
    program.ok("sign", json!({}));
    program.ok("encrypt", json!({}));
    program.ok("generate", json!({"label": "mine", "token": false}));
    program.ok("sign", json!({"label": "mine"}));
    program.ok("destroy", json!({"kind": "private", "label": "mine"}));
    program.ok("destroy", json!({"kind": "public", "label": "mine"}));
    assert_eq!(program.ok("objects", json!({})), before);
    let token = &program.ok("tokens", json!({}))[0];
    assert_ne!(
        token["flags"].as_u64().unwrap() & 0x2,
        0,
        "CKF_WRITE_PROTECTED: {token}"
    );
}

#[test]
fn a_listener_shows_the_keys_that_it_is_for() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.daemon.push_str("keys = [\"pkcs11:object=ec\"]");
    rig.start();
    let mut program = Caller::open(&rig);
    let objects = program.ok("objects", json!({}));
    assert!(
        objects
            .as_array()
            .unwrap()
            .iter()
            .all(|label| label == "ec"),
        "{objects}"
    );
    program.ok("sign", json!({}));
    program
        .ask("encrypt", json!({}))
        .expect_err("aes is not shown");
}

#[test]
fn private_objects_are_hidden_until_login() {
    let rig = Rig::new(Setup::Daemon);
    let mut program = Caller::start(&rig);
    program.ok("open", json!({"label": "web"}));
    assert_eq!(program.ok("objects", json!({"kind": "private"})), json!([]));
    program.ok("login", json!({"pin": rig.pin()}));
    let mut keys: Vec<Value> = program
        .ok("objects", json!({"kind": "private"}))
        .as_array()
        .unwrap()
        .clone();
    keys.sort_by_key(ToString::to_string);
    assert_eq!(keys, ["ec", "rsa"]);
}

#[test]
fn the_peers_user_is_login_enough_where_it_is_said() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.daemon = "login = \"peer\"".to_owned();
    rig.start();
    let mut program = Caller::start(&rig);
    program.ok("open", json!({"label": "web", "pin": ""}));
    program.ok("sign", json!({}));
}
