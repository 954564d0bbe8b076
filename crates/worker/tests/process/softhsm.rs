//! Worker processes of SoftHSM.

use std::path::Path;
use std::process::Command;

use hsmux_pool::Connector;
use hsmux_token::{Attributes, Mechanism, Operation, ck};

use crate::rig::*;

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";

fn tokens(folder: &Path, labels: &[&str]) -> (String, String) {
    let store = folder.join("tokens");
    std::fs::create_dir(&store).unwrap();
    let conf = folder.join("softhsm2.conf");
    let text = format!("directories.tokendir = {}\n", store.display());
    std::fs::write(&conf, text).unwrap();
    for label in labels {
        let made = Command::new("softhsm2-util")
            .args(["--init-token", "--free", "--label", label])
            .args(["--pin", "1234", "--so-pin", "12345678"])
            .env("SOFTHSM2_CONF", &conf)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    ("SOFTHSM2_CONF".into(), conf.to_str().unwrap().into())
}

/// P-256 (secp256r1, RFC 5480).
const CURVE: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

#[test]
fn several_start_together_make_keys_and_sign() {
    let folder = tempfile::tempdir().unwrap();
    let labels = ["hsm1", "hsm2", "hsm3", "hsm4"];
    let conf = tokens(folder.path(), &labels);
    let state = folder.path().join("state");
    std::thread::scope(|scope| {
        for label in labels {
            let (conf, state) = (conf.clone(), &state);
            scope.spawn(move || {
                let environment = vec![conf, (MARK.into(), "1".into())];
                let connector = connector(MODULE.as_ref(), label, "1234", state);
                let token = connector.environment(environment).connect().unwrap();
                assert_eq!(token.info().label, label);
                let on_token = |class| {
                    Attributes::default()
                        .with_flag(ck::CKA_TOKEN, true)
                        .with(ck::CKA_ID, vec![1])
                        .with_number(ck::CKA_CLASS, class)
                };
                let pair = Operation::GeneratePair {
                    mechanism: Mechanism::plain(ck::CKM_EC_KEY_PAIR_GEN),
                    public: on_token(ck::CKO_PUBLIC_KEY).with(ck::CKA_EC_PARAMS, CURVE.to_vec()),
                    private: on_token(ck::CKO_PRIVATE_KEY).with_flag(ck::CKA_SIGN, true),
                };
                token.execute(&pair, soon()).unwrap();
                let operation = sign(&*token);
                let told: Vec<_> = (0..50)
                    .map(|_| submit(&*token, operation.clone()))
                    .collect();
                for told in told {
                    let signature = told.recv_timeout(LONG).unwrap().unwrap();
                    assert_eq!(signature.into_bytes().unwrap().len(), 64);
                }
            });
        }
    });
}
