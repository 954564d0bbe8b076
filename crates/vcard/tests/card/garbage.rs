use hsmux_smartcard::CardChannel;
use hsmux_smartcard::tlv::tlv;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::host::{Host, ec_body};

/// Bytes of existing instructions, and some others.
const INS: [u8; 24] = [
    0xA4, 0x58, 0xB1, 0xD7, 0xE4, 0x20, 0x24, 0x2C, 0x84, 0x50, 0x52, 0x72, 0x74, 0x46, 0x48, 0x76,
    0x68, 0x62, 0x78, 0x22, 0x2A, 0x54, 0xC0, 0x00,
];

/// Parameters near the valid ones.
fn parameter() -> impl Strategy<Value = u8> {
    const KNOWN: &[u8] = &[
        0, 1, 2, 4, 0x10, 0x11, 0x18, 0x20, 0x21, 0x30, 0x33, 0x40, 0x43, 0x70, 0x73, 0x80, 0x81,
        0x88, 0x92, 0x93, 0x99, 0xB0, 0xC4, 0xCC, 0xCE, 0xCF, 0x2F, 0x10,
    ];
    prop_oneof![3 => prop::sample::select(KNOWN), 1 => any::<u8>()]
}

/// Data that resemble those of commands, and random data.
fn data() -> impl Strategy<Value = Vec<u8>> {
    const TAGS: &[u32] = &[
        0x53, 0x54, 0x80, 0x81, 0x82, 0x90, 0x91, 0x92, 0x02, 0x06, 0x7F49, 0x5F20, 0x42,
    ];
    let field = (prop::sample::select(TAGS), vec(any::<u8>(), 0..40));
    let fields = vec(field, 0..6);
    prop_oneof![
        vec(any::<u8>(), 0..300),
        fields.prop_map(|fields| {
            let fields = fields.iter().map(|(tag, value)| tlv(*tag, &[value]));
            fields.collect::<Vec<_>>().concat()
        }),
    ]
}

fn command() -> impl Strategy<Value = Vec<u8>> {
    let header = (
        prop::sample::select(&[0u8, 0x80, 0x10, 0xFF][..]),
        prop::sample::select(&INS[..]),
        parameter(),
        parameter(),
    );
    let whole = (header, data(), any::<bool>()).prop_map(|((cla, ins, p1, p2), data, le)| {
        let mut command = hsmux_smartcard::CommandApdu::new(cla, ins, p1, p2).with_data(data);
        command.ne = le.then_some(65_536);
        command.encode().unwrap().to_vec()
    });
    prop_oneof![4 => whole, 1 => vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, the card answers with a status word, and continues to work.
    #[test]
    fn every_command_gets_a_status_word(commands in vec(command(), 1..40)) {
        let mut host = Host::ready(1);
        host.generate(1, &ec_body(hsmux_smartcard::Curve::by_name("P-192").unwrap()));
        host.ok(0, 0x48, 2, 0xB0, &[], None);
        for command in commands {
            let answer = host.channel.transmit(&command).unwrap();
            prop_assert!(answer.len() >= 2);
            prop_assert!([0x90, 0x61, 0x62, 0x63, 0x65, 0x67, 0x68, 0x69, 0x6A, 0x6B, 0x6D, 0x6E]
                .contains(&answer[answer.len() - 2]), "{answer:02X?}");
        }
        host.select();
        prop_assert_eq!(host.enumerate()[0], 0xCC00);
    }
}
