//! OpenSC's `pkcs11-tool` with OpenSC's module.

use std::fs;

use hsmux_suite::{Cards, Finished};

/// How OpenSSL verifies what a mechanism signs, and which input it takes.
enum Judge {
    /// `openssl dgst` of the data with these options.
    Digest(&'static str),
    /// `openssl pkeyutl` of the input itself with these options.
    Input(&'static str),
}
use Judge::{Digest, Input};

/// RSA: PSS signatures have a salt as long as the digest.
const RSA: &[(&str, Judge)] = &[
    (
        "RSA-X-509",
        Input("-verifyrecover -pkeyopt rsa_padding_mode:none"),
    ),
    ("RSA-PKCS", Input("-verify -pkeyopt rsa_padding_mode:pkcs1")),
    ("MD5-RSA-PKCS", Digest("-md5")),
    ("SHA1-RSA-PKCS", Digest("-sha1")),
    ("SHA224-RSA-PKCS", Digest("-sha224")),
    ("SHA256-RSA-PKCS", Digest("-sha256")),
    ("SHA384-RSA-PKCS", Digest("-sha384")),
    ("SHA512-RSA-PKCS", Digest("-sha512")),
    ("RIPEMD160-RSA-PKCS", Digest("-rmd160")),
    (
        "RSA-PKCS-PSS",
        Input("-verify -pkeyopt rsa_padding_mode:pss -pkeyopt digest:sha256"),
    ),
    (
        "SHA1-RSA-PKCS-PSS",
        Digest("-sha1 -sigopt rsa_padding_mode:pss"),
    ),
    (
        "SHA224-RSA-PKCS-PSS",
        Digest("-sha224 -sigopt rsa_padding_mode:pss"),
    ),
    (
        "SHA256-RSA-PKCS-PSS",
        Digest("-sha256 -sigopt rsa_padding_mode:pss"),
    ),
    (
        "SHA384-RSA-PKCS-PSS",
        Digest("-sha384 -sigopt rsa_padding_mode:pss"),
    ),
    (
        "SHA512-RSA-PKCS-PSS",
        Digest("-sha512 -sigopt rsa_padding_mode:pss"),
    ),
];

const EC: &[(&str, Judge)] = &[
    ("ECDSA", Input("-verify")),
    ("ECDSA-SHA1", Digest("-sha1")),
    ("ECDSA-SHA224", Digest("-sha224")),
    ("ECDSA-SHA256", Digest("-sha256")),
    ("ECDSA-SHA384", Digest("-sha384")),
    ("ECDSA-SHA512", Digest("-sha512")),
];

#[test]
fn rsa_signs_with_every_mechanism_that_is_listed() {
    let cards = Cards::start(1);
    cards.generate(0, "rsa:2048", "10", "rsa");
    sign_with_all(&cards, "RSA", RSA, "");
}

#[test]
fn ec_signs_with_every_mechanism_that_is_listed() {
    let cards = Cards::start(1);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    sign_with_all(&cards, "ECDSA", EC, "--signature-format openssl");
}

/// Signs with each mechanism of the module's list whose name has `family` in it; the table has to
/// know them all, and the list all of the table.
fn sign_with_all(cards: &Cards, family: &str, table: &[(&str, Judge)], options: &str) {
    let list = cards.pkcs11_tool(0, "-M").ok();
    let listed: Vec<_> = with_use(&list, "sign")
        .filter(|name| name.contains(family))
        .collect();
    for name in &listed {
        assert!(
            table.iter().any(|(known, _)| known == name),
            "{name} is not tested\n{list}"
        );
    }
    let key = family.trim_end_matches("DSA").to_lowercase();
    for (name, judge) in table {
        assert!(listed.contains(name), "{name} is not listed\n{list}");
        fs::write(cards.path("data"), input(name)).unwrap();
        let hash = if *name == "RSA-PKCS-PSS" {
            "--hash-algorithm SHA256 --mgf MGF1-SHA256"
        } else {
            ""
        };
        cards
            .pkcs11_tool(
                0,
                &format!("--sign --id 10 -m {name} {hash} {options} -i data -o signature"),
            )
            .ok();
        match judge {
            Digest(how) => cards
                .run("openssl")
                .args(&format!(
                    "dgst {how} -verify {key}.pub -signature signature data"
                ))
                .ok()
                .says("Verified OK"),
            Input(how) if how.starts_with("-verifyrecover") => {
                cards
                    .run("openssl")
                    .args(&format!(
                        "pkeyutl {how} -pubin -inkey {key}.pub -in signature -out back"
                    ))
                    .ok();
                assert_eq!(fs::read(cards.path("back")).unwrap(), input(name), "{name}");
                continue;
            }
            Input(how) => cards
                .run("openssl")
                .args(&format!(
                    "pkeyutl {how} -pubin -inkey {key}.pub -in data -sigfile signature"
                ))
                .ok()
                .says("Signature Verified Successfully"),
        };
    }
}

/// A block as long as the key's modulus where the card gets it as it is; 32 bytes where they stand
/// for a digest; text otherwise.
fn input(mechanism: &str) -> Vec<u8> {
    match mechanism {
        "RSA-X-509" => [&[0; 8][..], &[0x5A; 248]].concat(),
        "RSA-PKCS-PSS" | "ECDSA" => vec![0x5A; 32],
        _ => b"what is signed".to_vec(),
    }
}

/// The mechanisms that `pkcs11-tool -M` lists with this use.
fn with_use<'l>(list: &'l Finished, of: &'l str) -> impl Iterator<Item = &'l str> {
    list.out.lines().filter_map(move |line| {
        let mut words = line.trim().split(", ");
        let name = words.next()?;
        words.any(|word| word == of).then_some(name)
    })
}

#[test]
fn rsa_decrypts_with_every_mechanism_that_is_listed() {
    let cards = Cards::start(1);
    cards.generate(0, "rsa:2048", "10", "rsa");
    let list = cards.pkcs11_tool(0, "-M").ok();
    let listed: Vec<_> = with_use(&list, "decrypt").collect();
    let table = [
        ("RSA-PKCS", "-pkeyopt rsa_padding_mode:pkcs1", ""),
        (
            "RSA-PKCS-OAEP",
            "-pkeyopt rsa_padding_mode:oaep -pkeyopt rsa_oaep_md:sha256",
            "--hash-algorithm SHA256 --mgf MGF1-SHA256",
        ),
        ("RSA-X-509", "-pkeyopt rsa_padding_mode:none", ""),
    ];
    for name in &listed {
        assert!(
            table.iter().any(|(known, ..)| known == name),
            "{name} is not tested\n{list}"
        );
    }
    for (name, how, options) in table.iter().filter(|(name, ..)| listed.contains(name)) {
        let text = if *name == "RSA-X-509" {
            input(name)
        } else {
            b"for the card only".to_vec()
        };
        fs::write(cards.path("text"), &text).unwrap();
        cards
            .run("openssl")
            .args(&format!(
                "pkeyutl -encrypt {how} -pubin -inkey rsa.pub -in text -out secret"
            ))
            .ok();
        cards
            .pkcs11_tool(
                0,
                &format!("--decrypt --id 10 -m {name} {options} -i secret -o back"),
            )
            .ok();
        assert_eq!(fs::read(cards.path("back")).unwrap(), text, "{name}");
    }
    assert!(listed.contains(&"RSA-PKCS"), "{list}");
}

#[test]
fn a_shared_secret_is_derived() {
    let cards = Cards::start(1);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    cards
        .run("openssl")
        .args("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out peer.key")
        .ok();
    cards
        .run("openssl")
        .args("pkey -in peer.key -pubout -outform DER -out peer.der")
        .ok();
    cards
        .pkcs11_tool(0, "--derive --id 10 -m ECDH1-DERIVE -i peer.der -o shared")
        .ok();
    cards
        .run("openssl")
        .args("pkeyutl -derive -inkey peer.key -peerkey ec.pub -out expected")
        .ok();
    let [shared, expected] = ["shared", "expected"].map(|name| fs::read(cards.path(name)).unwrap());
    assert_eq!(shared, expected);
}

#[test]
fn keys_of_every_curve_are_made_and_sign() {
    let cards = Cards::start(1);
    // All that OpenSC 0.23 knows of this card.
    let curves = [
        "secp192r1",
        "prime256v1",
        "secp384r1",
        "secp521r1",
        "brainpoolP192r1",
        "brainpoolP224r1",
        "brainpoolP256r1",
        "brainpoolP320r1",
        "brainpoolP384r1",
        "brainpoolP512r1",
        "secp256k1",
    ];
    for (number, curve) in (0x10..).zip(curves) {
        let id = format!("{number:02x}");
        cards.generate(0, &format!("EC:{curve}"), &id, curve);
        cards.sign_and_verify(0, &id, curve, "ECDSA-SHA256");
    }
}

#[test]
fn the_tools_own_test_finds_no_fault() {
    let cards = Cards::start(1);
    cards.generate(0, "rsa:2048", "10", "rsa");
    cards.generate(0, "EC:prime256v1", "11", "ec");
    cards.pkcs11_tool(0, "--test").ok().says("No errors");
}

#[test]
fn a_wrong_pin_costs_one_try() {
    let cards = Cards::start(1);
    cards
        .pkcs11_tool_without_login(0, "--login --pin 111111 -O")
        .fails()
        .says("CKR_PIN_INCORRECT");
    cards.status(0).says("User PIN tries left  : 2");
    cards.pkcs11_tool(0, "-O").ok();
    cards.status(0).says("User PIN tries left  : 3");
}

#[test]
fn objects_are_stored_read_and_deleted() {
    let cards = Cards::start(1);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    fs::write(cards.path("note"), "a data object").unwrap();
    cards
        .pkcs11_tool(0, "--write-object note --type data --label note")
        .ok();
    cards
        .pkcs11_tool(0, "--read-object --type data --label note -o back")
        .ok();
    assert_eq!(fs::read(cards.path("back")).unwrap(), b"a data object");
    cards
        .pkcs11_tool(0, "--delete-object --type privkey --id 10")
        .ok();
    cards.pkcs11_tool(0, "-O").ok().never_says("Private Key");
}
