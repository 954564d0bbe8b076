//! OpenSSL's own commands with the provider: what they sign is verified without it.

use std::fs;

use hsmux_suite::{Rig, Run};

use crate::way::{Login, Way, write_file};
use crate::web::{open_to_others, with_certificates};

/// A daemon, and `rsa.both` and `ec.both`, with certificate and reference.
pub fn rig() -> Rig {
    let mut rig = open_to_others(with_certificates(), Login::Peer);
    rig.start();
    Way::Provider.write_configuration(&rig);
    for key in ["rsa", "ec"] {
        let uri = format!("pkcs11:token=web;object={key}");
        write_file(&rig, &format!("{key}.both"), key, &uri);
    }
    fs::write(rig.path("data"), "what is signed").unwrap();
    rig
}

/// `openssl` with the provider.
pub fn openssl(rig: &Rig, line: &str) -> Run {
    let run = rig.run("openssl").env("HSMUX_CONFIG", "");
    run.env("OPENSSL_CONF", rig.path("openssl.cnf")).args(line)
}

/// `openssl` as it is.
pub fn plain(rig: &Rig, line: &str) -> Run {
    rig.run("openssl").args(line)
}

#[test]
fn what_it_signs_is_verified_with_the_public_key() {
    let rig = rig();
    for (key, options) in [
        ("ec", "-sha256"),
        ("ec", "-sha512"),
        ("rsa", "-sha256"),
        ("rsa", "-sha384"),
        ("rsa", "-sha256 -sigopt rsa_padding_mode:pss"),
        (
            "rsa",
            "-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest",
        ),
        (
            "rsa",
            "-sha512 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:max",
        ),
    ] {
        openssl(
            &rig,
            &format!("dgst {options} -sign {key}.both -out signature data"),
        )
        .ok();
        let public = rig.keys.public(key);
        plain(
            &rig,
            &format!("dgst {options} -signature signature -verify"),
        )
        .arg(public)
        .arg("data")
        .ok()
        .says("Verified OK");
    }
}

#[test]
fn a_digest_is_signed() {
    let rig = rig();
    plain(&rig, "dgst -sha256 -binary -out digest data").ok();
    for (key, options) in [
        ("ec", "-pkeyopt digest:sha256"),
        ("rsa", "-pkeyopt digest:sha256"),
        (
            "rsa",
            "-pkeyopt digest:sha256 -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_pss_saltlen:32",
        ),
    ] {
        let sign = format!("pkeyutl -sign -inkey {key}.both -in digest {options} -out signature");
        openssl(&rig, &sign).ok();
        plain(
            &rig,
            &format!("pkeyutl -verify -pubin -in digest {options} -sigfile signature -inkey"),
        )
        .arg(rig.keys.public(key))
        .ok();
    }
    openssl(
        &rig,
        "pkeyutl -sign -inkey rsa.both -in data -pkeyopt digest:sha256 -out signature",
    )
    .fails()
    .says("14 bytes are no digest of Sha256");
}

#[test]
fn a_certificate_and_its_request_are_made() {
    let rig = rig();
    for key in ["ec", "rsa"] {
        let files = format!("-key {key}.both -subj /CN={key}.test -out made.pem");
        openssl(&rig, &format!("req -new -x509 -days 30 {files}")).ok();
        plain(&rig, "verify -CAfile made.pem made.pem").ok();
        openssl(&rig, &format!("req -new -sha384 {files}")).ok();
        plain(&rig, "req -verify -noout -in made.pem").ok();
        let public = openssl(&rig, &format!("pkey -pubout -in {key}.both"))
            .ok()
            .out;
        assert_eq!(public, fs::read_to_string(rig.keys.public(key)).unwrap());
    }
}

/// CMS asks the context for its padding before it signs; and OpenSSL does not look whether there is an identifier.
#[test]
fn a_message_is_signed() {
    let rig = rig();
    for key in ["ec", "rsa"] {
        let sign = format!("cms -sign -in data -signer {key}.both -out message");
        openssl(&rig, &sign).ok();
        let verify = format!("cms -verify -in message -CAfile {key}.pem -purpose any");
        plain(&rig, &verify).ok().says("what is signed");
    }
    let pss = "req -new -x509 -key rsa.both -subj /CN=rsa.test -sigopt rsa_padding_mode:pss";
    openssl(&rig, pss).fails().says("leave the padding pkcs1");
}

#[test]
fn a_key_is_shown_as_its_public_values_and_where_the_private_key_is() {
    let rig = rig();
    for (key, bits) in [("rsa", 2048), ("ec", 256)] {
        let public = plain(&rig, "pkey -pubin -text_pub -noout -in");
        let public = public.arg(rig.keys.public(key)).ok().out;
        let (first, values) = public.split_once('\n').unwrap();
        assert_eq!(first, format!("Public-Key: ({bits} bit)"));
        let private = format!(
            "Private-Key: ({bits} bit)\nThe private key stays in the pool: \
             pkcs11:token=web;object={key};type=private\n{values}"
        );
        for command in ["pkey", key] {
            let line = format!("{command} -in {key}.both -text -noout");
            assert_eq!(openssl(&rig, &line).ok().out, private);
        }
        let line = format!("pkey -in {key}.both -text_pub -noout");
        assert_eq!(openssl(&rig, &line).ok().out, public);
    }
}

/// OpenSSL's own encoders ask for the private key, and say nothing when there is none to be read.
#[test]
fn a_private_key_is_not_written_and_the_reason_is_said() {
    let rig = rig();
    for command in [
        "pkey -in ec.both",
        "pkey -in rsa.both -outform DER",
        "pkey -in rsa.both -text",
        "rsa -in rsa.both",
        "ec -in ec.both",
        "pkcs8 -topk8 -nocrypt -in ec.both",
        "pkcs12 -export -in ec.both -inkey ec.both -passout pass:word",
    ] {
        let run = openssl(&rig, command).fails();
        run.says("the private key stays in the pool; -pubout writes its public key");
        run.never_says("BEGIN PRIVATE KEY");
    }
}

#[test]
fn what_the_provider_does_not_do_is_said_with_what_does() {
    let rig = rig();
    for (command, why) in [
        (
            "pkeyutl -derive -inkey ec.both -peerkey ec.pub",
            "by CKM_ECDH1_DERIVE: pkcs11-tool --derive",
        ),
        (
            "pkeyutl -verify -inkey ec.both -in data -sigfile data",
            "verify by that (-pubin)",
        ),
        (
            "pkeyutl -verifyrecover -inkey rsa.both -in data",
            "verify by that (-pubin)",
        ),
        (
            "dgst -sha256 -prverify rsa.both -signature data data",
            "verify by that (-pubin)",
        ),
        ("dgst -md5 -sign rsa.both data", "digest md5: tokens have"),
        (
            "dgst -sha256 -sigopt rsa_padding_mode:x931 -sign rsa.both data",
            "padding x931: there are pkcs1 and pss",
        ),
    ] {
        fs::copy(rig.keys.public("ec"), rig.path("ec.pub")).unwrap();
        openssl(&rig, command).fails().says(why);
    }
}

/// On standard error: OpenSSL clears what its decoders have said.
#[test]
fn a_reference_that_is_none_says_so() {
    let rig = rig();
    for (body, why) in [
        ("!", "not base64; write the block anew"),
        (
            "MAA=",
            "not the DER of a reference to a key; write the block anew",
        ),
        // pkcs11:token=web
        (
            "MC0aGVBLQ1MjMTEgUHJvdmlkZXIgVVJJIHYxLjAMEHBrY3MxMTp0b2tlbj13ZWI=",
            "names no key; write object= or id=; hsmux key list",
        ),
    ] {
        let label = "PKCS#11 PROVIDER URI";
        let block = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        fs::write(rig.path("reference"), block).unwrap();
        openssl(&rig, "pkey -pubout -in reference")
            .fails()
            .says(why);
    }
}
