//! Whatever a card answers, a host does not panic.

use hsmux_smartcard::cvc::{self, Certificate, CvcRequest};
use hsmux_smartcard::pkcs15::{CertificateDescription, DataDescription, KeyDescription, TokenInfo};
use hsmux_smartcard::tlv::{Tlv, tlv, values};
use hsmux_smartcard::{
    Card, CardChannel, ChannelError, CommandApdu, FileId, KeyReference, PinReference, ResponseApdu,
    SignAlgorithm, ecdsa_fixed,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// A card that answers what comes next, and then nothing any more.
struct Babbler(Vec<Vec<u8>>);

impl CardChannel for Babbler {
    fn transmit(&mut self, _command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        self.0.pop().ok_or(ChannelError::NoPcscd)
    }

    fn name(&self) -> &'static str {
        "babbler"
    }
}

/// BER-TLV of the tags that certificates and descriptions have, nested, and bytes in between.
fn nearly_tlv() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::sample::select(vec![
        0x67_u32, 0x7F21, 0x7F4E, 0x7F49, 0x5F20, 0x5F29, 0x5F37, 0x42, 0x06, 0x81, 0x82, 0x83,
        0x86, 0x30, 0xA0, 0xA1, 0xA8, 0x02, 0x03, 0x04, 0x0C, 0x80, 0x85, 0x62,
    ]);
    vec(any::<u8>(), 0..24).prop_recursive(6, 64, 6, move |inner| {
        (tags.clone(), vec(inner, 0..6)).prop_map(|(tag, parts)| tlv(tag, &[&parts.concat()]))
    })
}

fn answer() -> impl Strategy<Value = Vec<u8>> {
    let status = prop_oneof![
        Just([0x90, 0x00]),
        Just([0x62, 0x82]),
        Just([0x67, 0x00]),
        any::<u8>().prop_map(|low| [0x61, low]),
        any::<u8>().prop_map(|low| [0x6C, low]),
        any::<[u8; 2]>(),
    ];
    prop_oneof![
        (nearly_tlv(), status).prop_map(|(data, status)| [data, status.to_vec()].concat()),
        vec(any::<u8>(), 0..4),
    ]
}

fn read_everything(bytes: &[u8]) {
    let _ = (Certificate::parse(bytes), Certificate::parse_all(bytes));
    let _ = cvc::public_key_of(bytes);
    if let Ok(request) = CvcRequest::parse(bytes) {
        let _ = (request.verify_inner(), request.certificate.serial().len());
        let _ = request.verify_outer(&request.certificate);
    }
    if let Ok(key) = KeyDescription::parse(bytes) {
        let again = KeyDescription::parse(&key.encode()).unwrap();
        assert_eq!(again.id, key.id);
    }
    let _ = CertificateDescription::parse(bytes).map(|found| found.encode());
    let _ = DataDescription::parse(bytes).map(|found| found.encode());
    let _ = TokenInfo::parse(bytes).map(|found| found.encode());
    let _ = ecdsa_fixed(bytes, 32);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn bytes(bytes in vec(any::<u8>(), 0..64)) {
        for value in values(&bytes) {
            let _ = value.map(|value| value.children().count());
        }
        let _ = ResponseApdu::parse(bytes.clone());
        if let Ok(command) = CommandApdu::parse(&bytes) {
            prop_assert_eq!(CommandApdu::parse(&command.encode().unwrap()).unwrap(), command);
        }
        read_everything(&bytes);
    }

    #[test]
    fn nearly_right(bytes in nearly_tlv(), cut in any::<prop::sample::Index>(), flip in any::<u8>()) {
        read_everything(&bytes);
        let mut broken = bytes.clone();
        if !broken.is_empty() {
            let at = cut.index(broken.len());
            broken[at] ^= flip;
            read_everything(&broken);
            read_everything(&bytes[..at]);
        }
    }

    #[test]
    fn what_is_written_is_read(tag in prop::sample::select(vec![0x42_u32, 0x7F21, 0x005F_8101]), value in vec(any::<u8>(), 0..700)) {
        let written = tlv(tag, &[&value]);
        let (read, rest) = Tlv::first(&written).unwrap();
        prop_assert_eq!((read.tag, read.value), (tag, value.as_slice()));
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn every_command(answers in vec(answer(), 0..12), which in 0..16) {
        let mut card = Card::new(Babbler(answers));
        let key = KeyReference(1);
        let _ = match which {
            0 => card.select().map(drop),
            1 => card.select_file(FileId::TOKEN_INFO).map(drop),
            2 => card.enumerate().map(drop),
            3 => card.read_file(FileId::DEVICE_CERTIFICATES).map(drop),
            4 => card.replace_file(FileId::TOKEN_INFO, &[0; 3000]),
            5 => card.pin_status(PinReference::User).map(drop),
            6 => card.challenge(2000).map(drop),
            7 => card.dkek_status().map(drop),
            8 => card.sign(key, SignAlgorithm::RsaRaw, &[0; 512]).map(drop),
            9 => card.decrypt(key, &[0; 256]).map(drop),
            10 => card.agree(key, &[4; 65]).map(drop),
            11 => card.cbc_encrypt(key, &[0; 16], &[0; 3200]).map(drop),
            12 => card.cbc_decrypt(key, &[0; 16], &[0; 3200]).map(drop),
            13 => card.cmac(key, &[0; 40]).map(drop),
            14 => card.wrap_key(key).map(drop),
            _ => card.unwrap_key(key, &[0; 600]),
        };
    }
}
