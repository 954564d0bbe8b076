//! Versions, certificates and signatures.

use std::fs;
use std::time::{Duration, SystemTime};

use boring::asn1::Asn1Time;
use boring::bn::BigNum;
use boring::hash::MessageDigest;
use boring::pkey::PKey;
use boring::x509::X509;
use hsmux_suite::{PATIENCE, Rig, Run, until};

use crate::rig::{ASK, BOTH, FOLDER, Gateway, certify, configure};

#[test]
fn each_client_gets_the_certificate_that_it_can_verify() {
    let gateway = Gateway::with_folder();
    let cases = [
        ("-tls1_3", "CN = ec", "ecdsa_secp256r1_sha256"),
        ("-tls1_2", "CN = ec", "ecdsa_secp256r1_sha256"),
        (
            "-tls1_3 -sigalgs rsa_pss_rsae_sha256",
            "CN = rsa",
            "rsa_pss_rsae_sha256",
        ),
        (
            "-tls1_2 -sigalgs RSA+SHA256",
            "CN = rsa",
            "rsa_pkcs1_sha256",
        ),
        (
            "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256",
            "CN = rsa",
            "rsa_pss_rsae_sha256",
        ),
    ];
    for (options, subject, algorithm) in cases {
        let series = format!("hsmux_gateway_signatures_total{{algorithm=\"{algorithm}\"}}");
        let before = gateway.metric(&series);
        let said = gateway.s_client(options, ASK);
        assert!(
            said.contains(subject) && said.contains("a page"),
            "{options}: {said}"
        );
        assert_eq!(gateway.metric(&series) - before, 1, "{options}");
    }
    assert!(gateway.health().contains("200 OK"), "{}", gateway.health());
}

#[test]
fn old_protocols_are_refused_with_a_clear_alert() {
    let gateway = Gateway::with_folder();
    let cases = [
        (
            "-tls1_1 -cipher DEFAULT@SECLEVEL=0",
            "alert protocol version",
        ),
        (
            "-tls1_2 -cipher AES128-GCM-SHA256",
            "alert handshake failure",
        ),
        (
            "-tls1_2 -cipher ECDHE-RSA-AES256-SHA384",
            "alert handshake failure",
        ),
        ("-alpn acme", "alert no application protocol"),
    ];
    for (options, alert) in cases {
        let said = gateway.s_client(options, "");
        assert!(said.contains(alert), "{options}: {said}");
    }
}

#[test]
fn keys_from_files_are_served() {
    let rig = Gateway::prepare();
    let keys = [rig.keys.file("rsa"), rig.keys.file("ec")];
    let keys = format!("keys = [{:?}, {:?}]", keys[0], keys[1]);
    let gateway = Gateway::start(rig, "", &format!("[[site]]\n{BOTH}\n{keys}\n{FOLDER}"));
    for options in [
        "--tlsv1.3",
        "--tls-max 1.2",
        "--tls-max 1.2 --ciphers ECDHE-RSA-AES128-GCM-SHA256",
    ] {
        gateway.curl("a.test", "/page.txt", options).says("a page");
    }
    assert_eq!(gateway.metric("hsmux_gateway_signatures_total"), 0);
    assert_eq!(gateway.metric("hsmux_gateway_handshakes_total"), 3);
}

#[test]
fn a_resumed_session_costs_no_signature() {
    let gateway = Gateway::with_folder();
    for version in ["-tls1_3", "-tls1_2"] {
        gateway.s_client(&format!("{version} -sess_out session"), ASK);
        let signatures = gateway.metric("hsmux_gateway_signatures_total");
        let said = gateway.s_client(&format!("{version} -sess_in session"), ASK);
        assert!(said.contains("Reused") && said.contains("a page"), "{said}");
        assert_eq!(gateway.metric("hsmux_gateway_signatures_total"), signatures);
    }
    let resumed = |version| {
        let labels = format!("{{kind=\"resumed\",version=\"{version}\"}}");
        gateway.metric(&format!("hsmux_gateway_handshakes_total{labels}"))
    };
    assert_eq!((resumed("1.2"), resumed("1.3")), (1, 1));
}

#[test]
fn a_certificate_with_another_key_is_refused_at_the_start() {
    let mut rig = Gateway::prepare();
    let site = format!("[[site]]\ncertificates = [\"ec.pem\"]\nkeys = [\"KEY\"]\n{FOLDER}");
    let file = rig.keys.file("rsa");
    for key in [&*file.to_string_lossy(), "pkcs11:object=rsa"] {
        configure(&mut rig, "", &site.replace("KEY", key));
        rig.write_config();
        let said = rig.hsmux("gateway").fails();
        said.says("ec.pem").says("do not belong together");
    }
}

/// The tokens' own certificates differ from those in files.
#[test]
fn certificates_are_taken_from_the_pool() {
    let rig = Gateway::prepare();
    let uris = ["rsa", "ec"].map(|key| format!("\"pkcs11:object={key};type=cert\""));
    let site = format!("[[site]]\ncertificates = [{}]\n{FOLDER}", uris.join(", "));
    let gateway = Gateway::start(rig, "", &site);
    for (key, options) in [("rsa", "-cipher ECDHE-RSA-AES128-GCM-SHA256"), ("ec", "")] {
        let file = gateway.rig.keys.certificate(key);
        let own = Run::new("openssl").args("x509 -inform DER -in").arg(file);
        let own = own.ok().out;
        let said = gateway.s_client(&format!("-tls1_2 {options}"), ASK);
        let served = said.contains(own.trim()) && said.contains("a page");
        assert!(served, "{key}: {said}");
    }
}

#[test]
fn a_uri_has_to_match_one_certificate() {
    let mut rig = Gateway::prepare();
    let convert = rig.run("openssl").args("x509 -in ec.pem -outform DER");
    convert.args("-out another.der").ok();
    let write = rig.softhsm.tool("hsm1");
    let write = write.args("--type cert --id 02 --label ec --write-object");
    write.arg(rig.path("another.der")).ok();
    let cases = [
        ("pkcs11:object=ec;type=cert", "2 objects match"),
        ("pkcs11:object=other;type=cert", "nothing like that"),
    ];
    for (uri, why) in cases {
        let site = format!("[[site]]\ncertificates = [\"{uri}\"]\n{FOLDER}");
        configure(&mut rig, "", &site);
        rig.write_config();
        rig.hsmux("gateway").fails().says(uri).says(why);
    }
}

#[test]
fn an_expired_certificate_is_served_with_a_warning() {
    let rig = Gateway::prepare();
    certify(&rig, "old", "ec", -1);
    let gateway = Gateway::start(
        rig,
        "",
        &format!("[[site]]\ncertificates = [\"old.pem\"]\n{FOLDER}"),
    );
    gateway.curl("a.test", "/page.txt", "").says("a page");
    assert_eq!(gateway.metric("hsmux_gateway_certificates_expired"), 1);
    let log = gateway.rig.daemon.as_ref().expect("a daemon").log();
    assert!(log.contains("old.pem HAS EXPIRED"), "{log}");
}

#[test]
fn a_certificate_that_expires_while_it_is_served_is_logged() {
    let site = format!("[[site]]\ncertificates = [\"ec.pem\"]\n{FOLDER}");
    let gateway = Gateway::start(Gateway::prepare(), "", &site);
    let expired = || gateway.metric("hsmux_gateway_certificates_expired");
    assert_eq!(expired(), 0);
    // The gateway reads it within a second, before it expires.
    fs::write(gateway.rig.path("short.pem"), short(&gateway.rig, "ec")).expect("write");
    fs::rename(gateway.rig.path("short.pem"), gateway.rig.path("ec.pem")).expect("rename");
    until("it is counted", PATIENCE, || (expired() == 1).then_some(()));
    until("it is told", PATIENCE, || {
        let log = gateway.rig.daemon.as_ref().expect("a daemon").log();
        log.contains("ec.pem HAS EXPIRED").then_some(())
    });
    gateway.curl("a.test", "/page.txt", "").says("a page");
}

/// A certificate (PEM) for a key of the rig, valid for five seconds. `openssl x509` counts in days.
fn short(rig: &Rig, key: &str) -> Vec<u8> {
    let pem = fs::read(rig.keys.file(key)).expect("a key");
    let key = PKey::private_key_from_pem(&pem).expect("a key in PEM");
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a clock");
    let time = |at: Duration| Asn1Time::from_unix(at.as_secs().cast_signed()).expect("a time");
    let build = || {
        let mut builder = X509::builder()?;
        let serial = BigNum::from_u32(1)?.to_asn1_integer()?;
        builder.set_version(2)?;
        builder.set_serial_number(&serial)?;
        builder.set_not_before(&time(now))?;
        builder.set_not_after(&time(now + Duration::from_secs(5)))?;
        builder.set_pubkey(&key)?;
        builder.sign(&key, MessageDigest::sha256())?;
        builder.build().to_pem()
    };
    build().expect("a certificate")
}

#[test]
fn an_ocsp_response_is_sent_with_its_certificate() {
    let rig = Gateway::prepare();
    let openssl = |line: &str| {
        Run::new("openssl")
            .dir(rig.path("").as_path())
            .args(line)
            .ok()
    };
    let serial = openssl("x509 -in ec.pem -noout -serial").out;
    let serial = serial.trim().trim_start_matches("serial=");
    let index = format!("V\t401121000000Z\t\t{serial}\tunknown\t/CN=ec\n");
    fs::write(rig.path("index.txt"), index).expect("write the index");
    let key = rig.keys.file("ec");
    openssl(&format!(
        "ocsp -index index.txt -CA ec.pem -rsigner ec.pem -rkey {} -issuer ec.pem -cert ec.pem -respout ec.ocsp",
        key.display()
    ));
    let site = format!("[[site]]\ncertificates = [\"ec.pem\"]\nocsp = [\"ec.ocsp\"]\n{FOLDER}");
    let gateway = Gateway::start(rig, "", &site);
    for version in ["-tls1_3", "-tls1_2"] {
        let said = gateway.s_client(&format!("-status {version}"), ASK);
        assert!(said.contains("OCSP Response Status: successful"), "{said}");
    }
}

#[test]
fn certificates_change_without_a_restart() {
    let gateway = Gateway::with_folder();
    let serial = || {
        let said = gateway.s_client("-tls1_3", ASK);
        let (_, pem) = said.split_once("-----BEGIN").expect("a certificate");
        pem.split_once("-----END").expect("its end").0.to_owned()
    };
    let before = serial();
    fs::write(gateway.rig.path("ec.pem"), "not a certificate").expect("write");
    until("the mistake is told", PATIENCE, || {
        let log = gateway.rig.daemon.as_ref().expect("a daemon").log();
        log.contains("it is served as before").then_some(())
    });
    assert_eq!(serial(), before);
    certify(&gateway.rig, "ec", "ec", 60);
    until("the new certificate is served", PATIENCE, || {
        (serial() != before).then_some(())
    });
}
