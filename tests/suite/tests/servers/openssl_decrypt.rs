//! RSA encryption and decryption by OpenSSL's own commands with the provider.

use std::fs;

use hsmux_suite::Rig;

use crate::openssl::{openssl, plain, rig};

const TEXT: &str = "what is signed";

/// `pkeyutl` with padding's options, from one file to another.
fn pkeyutl(what: &str, padding: &str, from: &str, to: &str) -> String {
    let options = padding.replace("rsa_", "-pkeyopt rsa_");
    format!("pkeyutl {what} {options} -in {from} -out {to}")
}

/// Enciphers with OpenSSL's own provider.
fn encipher(rig: &Rig, padding: &str, from: &str, to: &str) {
    let line = pkeyutl("-encrypt -pubin", padding, from, to);
    plain(rig, &line)
        .arg("-inkey")
        .arg(rig.keys.public("rsa"))
        .ok();
}

/// SoftHSM has OAEP with SHA-1 and without a label alone.
#[test]
fn what_is_enciphered_to_the_public_key_is_deciphered() {
    let rig = rig();
    let block = [&[0; 242], TEXT.as_bytes()].concat();
    fs::write(rig.path("block"), block).unwrap();
    for (padding, from) in [
        ("", "data"),
        ("rsa_padding_mode:pkcs1", "data"),
        ("rsa_padding_mode:oaep", "data"),
        ("rsa_padding_mode:none", "block"),
    ] {
        encipher(&rig, padding, from, "secret");
        let line = pkeyutl("-decrypt -inkey rsa.both", padding, "secret", "plain");
        openssl(&rig, &line).ok();
        let plain = fs::read(rig.path("plain")).unwrap();
        assert_eq!(plain, fs::read(rig.path(from)).unwrap(), "{padding}");
    }
    encipher(&rig, "", "data", "secret");
    openssl(&rig, "rsautl -decrypt -inkey rsa.both -in secret")
        .ok()
        .says(TEXT);
}

#[test]
fn messages_are_deciphered() {
    let rig = rig();
    for (command, options) in [
        ("cms", ""),
        ("cms", "-keyopt rsa_padding_mode:oaep"),
        ("smime", ""),
    ] {
        let recipient = match command {
            "cms" => "-recip rsa.pem",
            _ => "rsa.pem",
        };
        let line = format!("{command} -encrypt -in data -out message {recipient} {options}");
        plain(&rig, &line).ok();
        let line = format!("{command} -decrypt -in message -recip rsa.both");
        openssl(&rig, &line).ok().says(TEXT);
    }
}

/// The public half is used in the process; OpenSSL's own provider deciphers it with the same key.
#[test]
fn a_reference_enciphers_for_its_key() {
    let rig = rig();
    for padding in [
        "",
        "rsa_padding_mode:oaep",
        "rsa_padding_mode:oaep rsa_oaep_md:sha256",
        "rsa_padding_mode:oaep rsa_oaep_md:sha512 rsa_mgf1_md:sha1 rsa_oaep_label:6c6162656c",
    ] {
        let line = pkeyutl("-encrypt -inkey rsa.both", padding, "data", "secret");
        openssl(&rig, &line).ok();
        let line = pkeyutl("-decrypt", padding, "secret", "plain");
        plain(&rig, &line)
            .arg("-inkey")
            .arg(rig.keys.file("rsa"))
            .ok();
        assert_eq!(fs::read(rig.path("plain")).unwrap(), TEXT.as_bytes());
    }
}

/// No padding oracle: a block of a signature, paddings without an end or too short, and no padding at all.
#[test]
fn a_refused_ciphertext_says_nothing_of_its_padding() {
    let rig = rig();
    let refused = |block: &[u8]| {
        fs::write(rig.path("block"), block).unwrap();
        encipher(&rig, "rsa_padding_mode:none", "block", "secret");
        let run = openssl(&rig, "pkeyutl -decrypt -inkey rsa.both -in secret").fails();
        assert_eq!(run.out, "");
        // A thread's number begins the line.
        run.err
            .split_once(":error:")
            .map(|(_, reason)| reason.to_owned())
            .unwrap()
    };
    let mut signature = [0xff; 256];
    signature[..2].copy_from_slice(&[0, 1]);
    signature[200] = 0;
    let mut endless = [0x11; 256];
    endless[..2].copy_from_slice(&[0, 2]);
    let mut short = endless;
    short[5] = 0;
    let mut nothing = [0x22; 256];
    nothing[0] = 0;
    let all = [signature, endless, short, nothing].map(|block| refused(&block));
    assert!(
        all[0].contains("RSA decryption failed; see that the ciphertext is for this key"),
        "{all:?}"
    );
    assert!(all.iter().all(|reason| *reason == all[0]), "{all:?}");
}

#[test]
fn what_cannot_be_deciphered_says_why() {
    let rig = rig();
    let sha256 = "rsa_padding_mode:oaep rsa_oaep_md:sha256";
    encipher(&rig, sha256, "data", "secret");
    for (padding, from, why) in [
        // SoftHSM's answer.
        (
            sha256,
            "secret",
            "OAEP with SHA256, MGF1 with SHA256 and no label: ",
        ),
        (
            "",
            "data",
            "14 bytes are no ciphertext of a key that has 256",
        ),
        (
            "rsa_padding_mode:x931",
            "secret",
            "padding x931: there are pkcs1, oaep and none",
        ),
    ] {
        let line = pkeyutl("-decrypt -inkey rsa.both", padding, from, "plain");
        openssl(&rig, &line).fails().says(why);
    }
    let long = [7; 246];
    fs::write(rig.path("long"), long).unwrap();
    let line = pkeyutl("-encrypt -inkey rsa.both", "", "long", "secret");
    openssl(&rig, &line).fails().says("CKR_DATA_LEN_RANGE");
}
