//! Certificates and certification requests against the openssl CLI.

mod common;

use common::{Pair, openssl, path, raw};
use hsmux_software::{PublicKey, csr};
use hsmux_token::{Mechanism, ck};

fn pairs() -> [Pair; 4] {
    [
        Pair::rsa(2048),
        Pair::ec("prime256v1"),
        Pair::ec("secp521r1"),
        Pair::generate(&["-algorithm", "ED25519"]),
    ]
}

#[test]
fn a_certificate_tells_its_key() {
    for pair in pairs() {
        let certificate = pair.certificate();
        assert_eq!(
            PublicKey::from_certificate(&certificate).unwrap(),
            pair.public
        );
        for cut in (0..certificate.len()).step_by(7) {
            // A cut behind the key loses nothing; a cut before it gives no key, and no panic.
            if let Ok(key) = PublicKey::from_certificate(&certificate[..cut]) {
                assert_eq!(key, pair.public);
            }
        }
    }
}

#[test]
fn openssl_accepts_the_request() {
    let names = [
        "www.example.com",
        "192.0.2.7",
        "2001:db8::7",
        "ops@example.com",
        "https://example.com/",
    ];
    for pair in pairs() {
        let info = csr::request_info(
            "CN=www.example.com,O=Example",
            &pair.public,
            &names.map(String::from),
        )
        .unwrap();
        let mechanism = csr::mechanism(&pair.public);
        let signature = match mechanism.kind {
            ck::CKM_EDDSA => pair.pkeyutl(&["-sign", "-rawin"], &[], &info),
            ck::CKM_ECDSA_SHA512 => raw(&pair.sign_hashed("-sha512", &[], &info), 132),
            ck::CKM_ECDSA_SHA256 => raw(&pair.sign_hashed("-sha256", &[], &info), 64),
            _ => pair.sign_hashed("-sha256", &[], &info),
        };
        let request = csr::assemble(&info, &mechanism, &signature).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("request.der");
        std::fs::write(&file, request).unwrap();
        let shown = openssl(
            &[
                "req",
                "-inform",
                "DER",
                "-in",
                path(&file),
                "-verify",
                "-noout",
                "-text",
            ],
            &[],
        );
        let shown = String::from_utf8(shown).unwrap();
        let subject = shown
            .lines()
            .find(|line| line.contains("Subject:"))
            .unwrap();
        assert!(subject.find("Example") < subject.find("www"), "{subject}");
        for name in [
            "DNS:www.example.com",
            "IP Address:192.0.2.7",
            "email:ops@example.com",
            "URI:https:",
            "2001:DB8",
        ] {
            assert!(shown.contains(name), "{name} in {shown}");
        }
    }
}

#[test]
fn a_bad_subject_name_or_mechanism_is_refused_by_name() {
    let pair = Pair::ec("prime256v1");
    let bad = csr::request_info("www.example.com", &pair.public, &[]).unwrap_err();
    assert!(bad.to_string().contains("CN=www.example.com"), "{bad}");
    let bad = csr::request_info("CN=x", &pair.public, &["münchen.example".into()]).unwrap_err();
    assert!(bad.to_string().contains("münchen"), "{bad}");
    let bad = csr::assemble(&[], &Mechanism::plain(ck::CKM_ECDSA), &[1; 64]).unwrap_err();
    assert!(bad.to_string().contains("CKM_ECDSA"), "{bad}");
}
