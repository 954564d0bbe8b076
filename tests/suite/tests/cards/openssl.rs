//! OpenSSL with the engine of libp11 on OpenSC's module.

use hsmux_suite::{Cards, OPENSC, Run};

#[test]
fn a_certificate_is_made_and_documents_are_signed() {
    let cards = Cards::start(1);
    cards.generate(0, "rsa:2048", "10", "rsa");
    cards.generate(0, "EC:prime256v1", "11", "ec");
    std::fs::write(cards.path("data"), "what is signed").unwrap();
    for label in ["rsa", "ec"] {
        openssl(
            &cards,
            "req -engine pkcs11 -keyform engine -new -x509 -days 1 -subj /CN=made",
        )
        .args("-out made.pem -key")
        .arg(key(label))
        .ok();
        openssl(&cards, "verify -CAfile made.pem made.pem")
            .ok()
            .says("made.pem: OK");
        openssl(
            &cards,
            "dgst -engine pkcs11 -keyform engine -sha256 -out signature -sign",
        )
        .arg(key(label))
        .arg("data")
        .ok();
        openssl(
            &cards,
            &format!("dgst -sha256 -signature signature -verify {label}.pub data"),
        )
        .ok()
        .says("Verified OK");
    }
}

/// The certificate goes onto the card beside its key, and comes back as it was.
#[test]
fn a_certificate_is_kept_on_the_card() {
    let cards = Cards::start(1);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    openssl(
        &cards,
        "req -engine pkcs11 -keyform engine -new -x509 -days 1 -subj /CN=kept",
    )
    .args("-outform DER -out kept.der -key")
    .arg(key("ec"))
    .ok();
    cards
        .pkcs11_tool(0, "--write-object kept.der --type cert --id 10 --label ec")
        .ok();
    cards
        .pkcs11_tool_without_login(0, "--read-object --type cert --id 10 -o back.der")
        .ok();
    let [kept, back] =
        ["kept.der", "back.der"].map(|name| std::fs::read(cards.path(name)).unwrap());
    assert_eq!(kept, back);
    cards
        .run("pkcs15-tool")
        .args("--list-certificates")
        .ok()
        .says("X.509 Certificate [ec]");
}

fn openssl(cards: &Cards, line: &str) -> Run {
    cards
        .run("openssl")
        .args(line)
        .env("PKCS11_MODULE_PATH", OPENSC)
}

fn key(label: &str) -> String {
    format!(
        "pkcs11:object={label};type=private;pin-value={}",
        Cards::PIN
    )
}
