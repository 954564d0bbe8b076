//! What cards and their tools have in files.

use hsmux_smartcard::dkek::{
    Dkek, DkekShare, KeyMaterial, WrappedKey, WrappedKeyFile, WrappedKind, custodian,
};
use hsmux_smartcard::pkcs15::{
    CertificateDescription, DataDescription, KeyDescription, KeyFamily, KeyUsage, ObjectAttributes,
    TokenInfo as CardInfo,
};
use hsmux_smartcard::provision::initialise;
use hsmux_smartcard::tlv::{Tlv, tlv};
use hsmux_smartcard::{Card, Curve, FileId, Initialize, KeyPair, KeyPairKind, KeyReference, SoPin};
use hsmux_token::Secret;
use hsmux_vcard::{Profile, Slot};

use super::{after, write};

pub fn cards() {
    let dkek = Dkek::from_shares([&DkekShare::from([9; 32])]);
    for kind in [
        WrappedKind::Rsa,
        WrappedKind::RsaCrt,
        WrappedKind::Ec,
        WrappedKind::Aes,
    ] {
        let values = kind.fields().iter().map(|_| vec![1; 32].into()).collect();
        let key = KeyMaterial::new(kind, values).expect("fields");
        let key = WrappedKey::seal(&key, &[0x10], &dkek).expect("a wrapped key");
        write(
            "key_blobs",
            &format!("wrapped-{kind:?}"),
            after(0, key.as_bytes()),
        );
        let file = WrappedKeyFile {
            key,
            description: Some(tlv(0x30, &[b"description"])),
            certificate: Some(tlv(0x67, &[b"request"])),
        };
        write(
            "key_blobs",
            &format!("file-{kind:?}"),
            after(0, &file.to_der()),
        );
        let fields = [&[0, 32], &[2; 32][..]].concat();
        let clear = [&[1, kind as u8, 1, 0][..], &fields.repeat(8)].concat();
        write("key_blobs", &format!("clear-{kind:?}"), clear);
    }
    write(
        "key_blobs",
        "clear-aes-16",
        [&[1, WrappedKind::Aes as u8, 0, 16][..], &[3; 16]].concat(),
    );
    let info = CardInfo::labelled("card").encode();
    write("tlv", "token-info", &info);
    let data = DataDescription {
        object: ObjectAttributes::labelled("notes"),
        application: "hsmux".into(),
        oid: Some(vec![0x2b, 6]),
        path: vec![0xcf, 1],
    };
    write("tlv", "data", data.encode());
    let certificate = CertificateDescription {
        object: ObjectAttributes::labelled("root"),
        id: vec![1, 2],
        authority: true,
        path: vec![0xca, 1],
    };
    write("tlv", "certificate", certificate.encode());
    for (name, family) in [("rsa", KeyFamily::Rsa), ("ec", KeyFamily::Ec)] {
        let key = KeyDescription::new(
            family,
            KeyReference(1),
            "web",
            &[1, 2],
            KeyUsage::SIGN,
            2048,
        );
        write("tlv", &format!("key-{name}"), key.encode());
    }
    write(
        "tlv",
        "nested",
        tlv(
            0x7f21,
            &[
                &tlv(0x7f4e, &[&tlv(0x42, &[b"DECVCA"])]),
                &tlv(0x5f37, &[&[1; 64]]),
            ],
        ),
    );
    write("tlv", "long", tlv(0x30, &[&[7; 300]]));
    write("tlv", "select", [0, 0xa4, 4, 0, 2, 0x3f, 0]);
    write("tlv", "response", [1, 2, 0x90, 0]);
}

/// A certificate of a card in memory, and the request of a key that it has made.
pub fn certificates() {
    let card = hsmux_vcard::Card::new(Profile::new("VC000001")).expect("a card");
    let mut card = Card::new(Slot::new(card).channel());
    card.select().expect("the application");
    let file = card
        .read_file(FileId::DEVICE_CERTIFICATES)
        .expect("its certificates");
    write("cvc", "device", &*file);
    let pin = || Secret::new(b"648219".to_vec());
    let how = Initialize {
        so_pin: SoPin::from_hex(b"3537363231383830").expect("digits"),
        pin: pin(),
        retries: 3,
        dkek_shares: None,
        public_keys: None,
        allow_reset: true,
        transport_pin: false,
    };
    initialise::initialise(&mut card, "VC000001", &how, "seeds", false).expect("a card with PINs");
    card.select().expect("the application");
    card.verify(&pin()).expect("the PIN");
    let kinds = [
        ("p256", KeyPairKind::Ec(&Curve::SECP256R1)),
        ("brainpool", KeyPairKind::Ec(&Curve::BRAINPOOLP256R1)),
        ("rsa", KeyPairKind::Rsa { bits: 2048 }),
    ];
    for (at, (name, kind)) in kinds.into_iter().enumerate() {
        let pair = KeyPair::new(kind, "VC000001");
        let request = card.generate_key_pair(KeyReference(1 + at as u8), &pair);
        let request = request.expect("a key");
        write("cvc", &format!("request-{name}"), &request);
        // The certificate inside, alone: one without an outer signature.
        let (outer, _) = Tlv::first(&request).expect("a request");
        let inner = outer.child(0x7F21).expect("a certificate");
        write("cvc", &format!("inner-{name}"), inner.raw);
    }
    write("cvc", "x509", [0x30, 3, 0x30, 1, 0]);
}

pub fn dkek_files() {
    let share = [&b"Salted__"[..], &[5; 56]].concat();
    write("dkek_files", "share", &share);
    write("dkek_files", "share-cut", &share[..63]);
    let (_, shares) = custodian::split(2, 3).expect("shares");
    for (at, share) in shares.iter().enumerate() {
        write(
            "dkek_files",
            &format!("password-{at}"),
            share.to_text().as_bytes(),
        );
    }
    // The fields of `Backup`, in CBOR: two files, no key.
    let mut content = vec![0xa5, 0, 0x61, b'A', 1, 0x61, b'B', 2, 0x48];
    content.extend([1; 8]);
    content.extend([
        3, 0x80, 4, 0x82, 0x82, 0x19, 0xcf, 1, 0x41, 9, 0x82, 0x19, 0xc9, 1, 0x40,
    ]);
    write("dkek_files", "backup-content", &content);
    let backup = hsmux_smartcard::fuzzing::parse_content(&content).expect("a backup");
    write("dkek_files", "backup", backup.encode().expect("a backup"));
}
