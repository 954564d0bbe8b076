use std::collections::BTreeSet;
use std::fs;

use hsmux_suite::{Finished, Rig, hex, on_every_setup};

on_every_setup![
    lists_one_token,
    lists_objects,
    signs,
    decrypts_what_others_encrypted,
    encrypts_with_a_secret_key,
    generates_key_pairs,
    stores_data_and_certificates,
    gives_random_bytes,
    refuses_a_wrong_pin,
    test_with_an_rsa_key,
    test_with_an_ec_key,
];

fn lists_one_token(rig: &Rig) {
    let list = rig
        .run("pkcs11-tool")
        .arg("--module")
        .arg(rig.module())
        .args("--list-token-slots")
        .ok();
    assert_eq!(list.out.matches("token label").count(), 1, "{list}");
    list.says(&format!("token label        : {}\n", rig.label()))
        .says("token flags        : login required, rng, token initialized, PIN initialized");
}

fn lists_objects(rig: &Rig) {
    let list = rig.pkcs11_tool("--list-slots -O").ok();
    list.says(&format!("token label        : {}\n", rig.label()));
    for object in [
        "Private Key Object; RSA",
        "Private Key Object; EC",
        "Public Key Object; RSA 2048 bits",
        "Public Key Object; EC  EC_POINT 256 bits",
        "Secret Key Object; AES length 32",
        "subject:    DN: CN=rsa.test",
        "subject:    DN: CN=ec.test",
    ] {
        assert_eq!(list.out.matches(object).count(), 1, "{object}\n{list}");
    }
}

/// Every signature is verified twice: by OpenSSL with the public key's file, and through the module.
fn signs(rig: &Rig) {
    const PSS: &str = "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32";
    fs::write(rig.path("data"), "what is signed").unwrap();
    rig.run("openssl")
        .args("dgst -sha256 -binary -out digest data")
        .ok();
    for (id, key, input, mechanism, options) in [
        ("01", "rsa", "data", "SHA256-RSA-PKCS", ""),
        ("01", "rsa", "data", "SHA256-RSA-PKCS-PSS", PSS),
        ("02", "ec", "digest", "ECDSA -f openssl", ""),
    ] {
        rig.pkcs11_tool(&format!(
            "--sign --id {id} -i {input} -o signature -m {mechanism}"
        ))
        .ok();
        verify(rig, &format!("--id {id} -i {input} -m {mechanism}")).says("Signature is valid");
        rig.run("openssl")
            .args(&format!(
                "dgst -sha256 {options} -signature signature -verify"
            ))
            .arg(rig.keys.public(key))
            .arg("data")
            .ok()
            .says("Verified OK");
    }
    fs::write(rig.path("digest"), [0; 32]).unwrap();
    verify(rig, "--id 02 -i digest -m ECDSA -f openssl").says("Invalid signature");
}

fn verify(rig: &Rig, line: &str) -> Finished {
    rig.pkcs11_tool(&format!("--verify --signature-file signature {line}"))
        .finish()
}

fn decrypts_what_others_encrypted(rig: &Rig) {
    const OAEP: &str = "-pkeyopt rsa_padding_mode:oaep -pkeyopt rsa_oaep_md:sha1";
    for (mechanism, options) in [
        ("RSA-PKCS", ""),
        ("RSA-PKCS-OAEP --hash-algorithm SHA-1 --mgf MGF1-SHA1", OAEP),
    ] {
        rig.run("openssl")
            .args(&format!(
                "pkeyutl -encrypt {options} -out secret -pubin -inkey"
            ))
            .arg(rig.keys.public("rsa"))
            .input("for the key's holder only")
            .ok();
        rig.pkcs11_tool(&format!(
            "--decrypt --id 01 -m {mechanism} -i secret -o text"
        ))
        .ok();
        assert_eq!(
            text(rig, "text"),
            "for the key's holder only",
            "{mechanism}"
        );
    }
}

fn encrypts_with_a_secret_key(rig: &Rig) {
    const CIPHER: &str = "--id 03 -m AES-CBC-PAD --iv 000102030405060708090a0b0c0d0e0f";
    fs::write(rig.path("text"), "two blocks of plain text").unwrap();
    rig.pkcs11_tool(&format!("--encrypt {CIPHER} -i text -o secret"))
        .ok();
    let outside = rig
        .run("openssl")
        .args("enc -d -aes-256-cbc -iv 000102030405060708090a0b0c0d0e0f -in secret -K")
        .arg(hex(&fs::read(rig.keys.file("aes")).unwrap()))
        .ok();
    assert_eq!(outside.out, "two blocks of plain text");
    rig.pkcs11_tool(&format!("--decrypt {CIPHER} -i secret -o back"))
        .ok();
    assert_eq!(text(rig, "back"), "two blocks of plain text");
}

fn generates_key_pairs(rig: &Rig) {
    for (id, kind, mechanism) in [
        ("a1", "EC:prime256v1", "ECDSA"),
        ("a2", "rsa:2048", "SHA256-RSA-PKCS"),
    ] {
        rig.pkcs11_tool(&format!(
            "--keypairgen --key-type {kind} --id {id} --label new"
        ))
        .ok();
        fs::write(rig.path("digest"), [7; 32]).unwrap();
        let line = format!("--id {id} -i digest -m {mechanism}");
        rig.pkcs11_tool(&format!("--sign -o signature {line}")).ok();
        verify(rig, &line).says("Signature is valid");
        for half in ["privkey", "pubkey"] {
            rig.pkcs11_tool(&format!("--delete-object --type {half} --id {id}"))
                .ok();
        }
    }
    rig.pkcs11_tool("-O").ok().never_says("new");
}

fn stores_data_and_certificates(rig: &Rig) {
    fs::write(rig.path("note"), "a data object").unwrap();
    rig.pkcs11_tool("--write-object note --type data --label note")
        .ok();
    rig.pkcs11_tool("--read-object --type data --label note -o back")
        .ok();
    assert_eq!(text(rig, "back"), "a data object");
    rig.pkcs11_tool("--read-object --type cert --id 02 -o back.der")
        .ok();
    let certificate = fs::read(rig.keys.certificate("ec")).unwrap();
    assert_eq!(fs::read(rig.path("back.der")).unwrap(), certificate);
}

fn gives_random_bytes(rig: &Rig) {
    rig.pkcs11_tool("--generate-random 64 -o first").ok();
    rig.pkcs11_tool("--generate-random 64 -o second").ok();
    let [first, second] = ["first", "second"].map(|name| fs::read(rig.path(name)).unwrap());
    assert_eq!(first.len(), 64);
    assert_ne!(first, second);
}

fn refuses_a_wrong_pin(rig: &Rig) {
    rig.run("pkcs11-tool")
        .arg("--module")
        .arg(rig.module())
        .args("--login --pin not-the-pin -O")
        .fails()
        .says("CKR_PIN_INCORRECT");
}

/// The tool's own test, with one key pair, for what it tries depends on which it finds first.
/// Whatever it calls OK on the bare token has to be OK on the pool.
fn test_with_only(rig: &Rig, other: &str) {
    for half in ["privkey", "pubkey"] {
        rig.pkcs11_tool(&format!("--delete-object --type {half} --id {other}"))
            .ok();
    }
    let bare = rig.softhsm.tool("hsm1").args("--test").finish();
    let here = rig.pkcs11_tool("--test").finish();
    let missing: Vec<_> = passed(&bare).difference(&passed(&here)).cloned().collect();
    assert!(missing.is_empty(), "not OK: {missing:?}\n{bare}\n{here}");
    let as_good = bare.code != Some(0) || here.code == Some(0);
    assert!(as_good, "{bare}\n{here}");
}

fn test_with_an_rsa_key(rig: &Rig) {
    test_with_only(rig, "02");
}

fn test_with_an_ec_key(rig: &Rig) {
    test_with_only(rig, "01");
}

fn passed(run: &Finished) -> BTreeSet<String> {
    let good = |line: &&str| line.ends_with(": OK") || line.contains("seem");
    run.out
        .lines()
        .filter(good)
        .map(|line| line.trim().to_owned())
        .collect()
}

fn text(rig: &Rig, name: &str) -> String {
    fs::read_to_string(rig.path(name)).unwrap()
}
