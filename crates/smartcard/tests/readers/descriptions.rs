use std::process::Command;

use hsmux_smartcard::pkcs15::{DataDescription, KeyDescription, KeyFamily, KeyUsage};
use hsmux_smartcard::{Card, CardError, FileKind, KeyReference};

use super::child::child;
use super::{card, initialise, names, pin};

const OPENSC: &str = "/usr/lib/x86_64-linux-gnu/opensc-pkcs11.so";

fn pkcs11_tool(line: &str) {
    let output = Command::new("pkcs11-tool")
        .args(["--module", OPENSC, "--login", "--pin", "648219"])
        .args(line.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
}

/// Descriptions of OpenSC are read here and written again the same, byte for byte.
#[test]
fn opensc_writes_them() {
    child("descriptions::opensc_writes_them", 1, || {
        let mut card = card(&names()[0]);
        initialise(&mut card);
        pkcs11_tool("--keypairgen --key-type EC:prime256v1 --id 4711 --label signer --usage-sign");
        pkcs11_tool("--keypairgen --key-type rsa:1024 --id 4712 --label both");
        pkcs11_tool(
            "--write-object /etc/hostname --type data --label note --application-label app",
        );
        let work = |card: &mut Card<_>| {
            card.select()?;
            card.verify(&pin())?;
            let mut descriptions = Vec::new();
            for file in card.enumerate()? {
                let kind = file.kind();
                if let Some(FileKind::KeyDescription | FileKind::DataDescription) = kind {
                    descriptions.push((file.number(), kind, card.read_file(file)?));
                }
            }
            Ok::<_, CardError>(descriptions)
        };
        let descriptions = card.exclusively(work).unwrap();
        let mut labels = Vec::new();
        for (number, kind, content) in &descriptions {
            let (label, again) = if *kind == Some(FileKind::KeyDescription) {
                let key = KeyDescription::parse(content).unwrap();
                check_key(KeyReference(*number), &key);
                (key.object.label.clone(), key.encode())
            } else {
                let data = DataDescription::parse(content).unwrap();
                assert_eq!(data.application, "app");
                assert_eq!(data.path.len(), 2);
                (data.object.label.clone(), data.encode())
            };
            assert_eq!(hex::encode(again), hex::encode(content), "{label}");
            labels.push(label);
        }
        labels.sort();
        assert_eq!(labels, ["both", "note", "signer"]);
    });
}

fn check_key(reference: KeyReference, key: &KeyDescription) {
    let (family, id, bits) = match key.object.label.as_str() {
        "signer" => (KeyFamily::Ec, [0x47, 0x11], 256),
        _ => (KeyFamily::Rsa, [0x47, 0x12], 1024),
    };
    assert_eq!((key.family, key.bits), (family, Some(bits)));
    assert_eq!(key.id, id);
    assert!(key.usage.contains(KeyUsage::SIGN), "{:?}", key.usage);
    assert_eq!(key.key_reference, Some(reference.0));
}
