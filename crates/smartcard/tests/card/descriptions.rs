use hsmux_smartcard::KeyReference;
use hsmux_smartcard::pkcs15::{
    CertificateDescription, KeyDescription, KeyFamily, KeyUsage, ObjectAttributes, TokenInfo,
};

use super::script::hex;

#[test]
fn token_info_is_what_opensc_writes() {
    let written = hex("3010 020100 8007 6D792063617264 03020520");
    let info = TokenInfo::labelled("my card");
    assert_eq!(info.encode(), written);
    assert_eq!(TokenInfo::parse(&written).unwrap(), info);
    assert!(TokenInfo::parse(&hex("0400")).is_err());
}

/// sc-hsm-embedded's, and what its older versions wrote: the size without a SEQUENCE.
#[test]
fn aes_keys_are_described_in_both_ways() {
    let old = hex("A814 3003 0C0161 3007 040105 030206C0 A004 02020100");
    let new = hex("A816 3003 0C0161 3007 040105 030206C0 A006 3004 02020100");
    for content in [&old, &new] {
        let key = KeyDescription::parse(content).unwrap();
        assert_eq!((key.family, key.bits), (KeyFamily::Aes, Some(256)));
        assert_eq!(
            (key.object.label.as_str(), key.id.as_slice()),
            ("a", &[5][..])
        );
        assert_eq!(key.usage, KeyUsage::ENCRYPT | KeyUsage::DECRYPT);
    }
    assert!(KeyDescription::parse(&old[..8]).is_err());
    let usage = KeyUsage::ENCRYPT;
    let key = KeyDescription::new(KeyFamily::Aes, KeyReference(200), "b", &[1], usage, 128);
    assert_eq!(KeyDescription::parse(&key.encode()).unwrap(), key);
}

#[test]
fn certificates_are_described() {
    let description = CertificateDescription {
        object: ObjectAttributes::labelled("CA"),
        id: vec![1, 2],
        authority: true,
        path: vec![0xCA, 0x00],
    };
    let written = description.encode();
    let expected = "3019 3004 0C024341 3007 04020102 0101FF A108 3006 3004 0402CA00";
    assert_eq!(hex::encode(&written), hex::encode(hex(expected)));
    assert_eq!(
        CertificateDescription::parse(&written).unwrap(),
        description
    );
}
