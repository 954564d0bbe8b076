//! What a listener does not do, whatever is sent to it.

use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Kind, Mechanism, Operation};
use hsmux_wire::VERSION;

use crate::raw::{client, log_in, named, sign, soon};

/// Every operation that would change a token.
fn changes(rig: &Rig, client: &hsmux_wire::Client) -> Vec<Operation> {
    let key = |class, label| named(client, class, label).expect(label).into();
    let (private, secret) = (key(Class::PRIVATE_KEY, "ec"), key(Class::SECRET_KEY, "aes"));
    let certificate = key(Class::CERTIFICATE, "rsa");
    let on_token = || {
        Attributes::default()
            .with_flag(CKA_TOKEN, true)
            .with(CKA_LABEL, "new")
    };
    let secret_key = || {
        on_token()
            .with_number(CKA_CLASS, CKO_SECRET_KEY)
            .with_number(CKA_KEY_TYPE, CKK_AES)
    };
    let pair = |token_half: bool| Operation::GeneratePair {
        mechanism: Mechanism::plain(CKM_EC_KEY_PAIR_GEN),
        public: on_token()
            .with(
                CKA_EC_PARAMS,
                vec![6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7],
            )
            .with_flag(CKA_TOKEN, !token_half),
        private: on_token().with_flag(CKA_TOKEN, token_half),
    };
    let renamed = || Attributes::default().with(CKA_LABEL, "another");
    let der = std::fs::read(rig.keys.certificate("ec")).unwrap();
    vec![
        Operation::Generate {
            mechanism: Mechanism::plain(CKM_AES_KEY_GEN),
            template: secret_key().with_number(CKA_VALUE_LEN, 32),
        },
        pair(true),
        pair(false),
        Operation::Derive {
            key: secret,
            mechanism: Mechanism::plain(CKM_AES_ECB_ENCRYPT_DATA),
            template: secret_key(),
        },
        Operation::Unwrap {
            unwrapping: secret,
            mechanism: Mechanism::plain(CKM_AES_KEY_WRAP_PAD),
            wrapped: vec![1; 40].into(),
            template: secret_key(),
        },
        Operation::Create {
            template: on_token()
                .with_number(CKA_CLASS, CKO_DATA)
                .with(CKA_VALUE, "text"),
            near: None,
        },
        Operation::Create {
            template: on_token()
                .with_number(CKA_CLASS, CKO_CERTIFICATE)
                .with_number(CKA_CERTIFICATE_TYPE, CKC_X_509)
                .with(CKA_VALUE, der),
            near: None,
        },
        // A copy of a token object is one, too, where the template does not say otherwise.
        Operation::Copy {
            object: private,
            template: renamed(),
        },
        Operation::Copy {
            object: secret,
            template: on_token(),
        },
        Operation::SetAttributes {
            object: private,
            template: renamed(),
        },
        Operation::Destroy { object: private },
        Operation::Destroy { object: secret },
        Operation::Destroy {
            object: certificate,
        },
    ]
}

/// What the bare tokens hold, as `pkcs11-tool` prints it, line by line: the order of the objects is chance.
fn held(rig: &Rig) -> [Vec<String>; 2] {
    ["hsm1", "hsm2"].map(|label| {
        let list = rig.softhsm.tool(label).arg("-O").ok().out;
        let mut lines: Vec<_> = list.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    })
}

#[test]
fn no_frame_changes_a_token_through_a_read_only_listener() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.daemon.push_str("read_only = true");
    let before = held(&rig);
    rig.start();
    let client = client(&rig, VERSION..=VERSION);
    log_in(&rig, &client);
    for operation in changes(&rig, &client) {
        assert!(operation.changes_token(), "{operation:?}");
        let refused = client.execute(&operation, soon()).expect_err("read-only");
        let call = operation.call();
        assert_eq!(
            refused.to_rv(),
            CKR_TOKEN_WRITE_PROTECTED,
            "{call}: {refused}"
        );
    }
    // What uses keys goes on.
    let key = named(&client, Class::PRIVATE_KEY, "ec").unwrap();
    client.execute(&sign(key), soon()).unwrap();
    rig.stop();
    assert_eq!(held(&rig), before);
}

/// The pool's own deadline ends what a client would wait for all day.
#[test]
fn a_client_does_not_outwait_the_daemons_deadline() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a"]);
    rig.config.pool = "deadline = \"5s\"".to_owned();
    // The member does not end it either.
    let member = &mut rig.config.members[0];
    *member = member.clone().with("timeout = \"3m\"");
    rig.start();
    let client = client(&rig, VERSION..=VERSION);
    log_in(&rig, &client);
    let key = named(&client, Class::PRIVATE_KEY, "ec").unwrap();
    client.execute(&sign(key), soon()).unwrap();
    tokens.set("a", "hang_in_sign = true");
    let begun = Instant::now();
    let tomorrow = begun + Duration::from_secs(24 * 60 * 60);
    let late = client.execute(&sign(key), tomorrow).expect_err("it hangs");
    let took = begun.elapsed();
    assert!((5..60).contains(&took.as_secs()), "{took:?}: {late}");
    assert_eq!(late.kind(), Kind::Deadline, "{late}");
    tokens.set("a", "");
}

/// A listener that shows fewer keys shows them no longer to those who are connected.
#[test]
fn keys_are_taken_from_a_connected_client_and_given_back() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.start();
    let client = client(&rig, VERSION..=VERSION);
    log_in(&rig, &client);
    let all = rig.config.daemon.clone();
    let ec = named(&client, Class::PRIVATE_KEY, "ec").unwrap();
    client.execute(&sign(ec), soon()).unwrap();
    rig.config.daemon = format!("{all}keys = [\"pkcs11:object=rsa\"]");
    rig.reload();
    let refused = until("the key is hidden", PATIENCE, || {
        client.execute(&sign(ec), soon()).err()
    });
    assert_eq!(refused.kind(), Kind::UnknownObject, "{refused}");
    assert_eq!(named(&client, Class::PRIVATE_KEY, "ec"), None);
    assert_ne!(named(&client, Class::PRIVATE_KEY, "rsa"), None);
    rig.config.daemon = all;
    rig.reload();
    until("the key is back", PATIENCE, || {
        client.execute(&sign(ec), soon()).ok()
    });
}
