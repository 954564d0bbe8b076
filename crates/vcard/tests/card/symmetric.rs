use hsmux_smartcard::tlv::tlv;

use crate::host::Host;

#[test]
fn cbc_both_ways_and_cmac_with_every_size() {
    let mut host = Host::ready(1);
    for (id, size) in [(1, 0xB0), (2, 0xB1), (3, 0xB2)] {
        host.ok(
            0,
            0x48,
            id,
            size,
            &tlv(0x91, &[&[0x10, 0x11, 0x18, 0x99]]),
            None,
        );
        let plain = [7; 48];
        let secret = host.ok(0x80, 0x78, id, 0x10, &plain, Some(256));
        assert_eq!(secret.len(), 48);
        assert_ne!(secret[..16], secret[16..32], "chained");
        assert_eq!(host.ok(0x80, 0x78, id, 0x11, &secret, Some(256)), plain);
        // With one whole block CMAC is CBC of the block and a subkey: not plain CBC.
        let mac = host.ok(0x80, 0x78, id, 0x18, &plain[..16], Some(256));
        assert_eq!(mac.len(), 16);
        assert_ne!(mac, secret[..16]);
        let derived = host.ok(0x80, 0x78, id, 0x99, b"label", Some(256));
        assert_eq!(derived.len(), 32);
        assert_eq!(host.ok(0x80, 0x78, id, 0x99, b"label", Some(256)), derived);
        assert_ne!(host.ok(0x80, 0x78, id, 0x99, b"other", Some(256)), derived);
    }
    assert_eq!(host.status(0x80, 0x78, 1, 0x10, &[7; 17]), 0x6700);
    assert_eq!(host.status(0x80, 0x78, 1, 0x12, &[7; 16]), 0x6A86);
    assert_eq!(host.status(0x80, 0x78, 9, 0x10, &[7; 16]), 0x6A82);
    assert_eq!(host.status(0x80, 0x68, 1, 0x70, &[7; 32]), 0x6985);
    assert_eq!(host.status(0, 0x48, 4, 0xB3, &[]), 0x6A86);
    assert_eq!(host.status(0, 0x48, 1, 0xB0, &[]), 0x6A89);
}

#[test]
fn a_key_does_what_its_list_allows() {
    let mut host = Host::ready(1);
    host.ok(0, 0x48, 1, 0xB0, &tlv(0x91, &[&[0x18]]), None);
    assert_eq!(host.status(0x80, 0x78, 1, 0x18, &[7; 16]), 0x9000);
    assert_eq!(host.status(0x80, 0x78, 1, 0x10, &[7; 16]), 0x6985);
    assert_eq!(host.status(0x80, 0x72, 1, 0x92, &[]), 0x6985);
}

#[test]
fn a_use_counter_runs_out() {
    let mut host = Host::ready(1);
    host.ok(0, 0x48, 1, 0xB0, &tlv(0x90, &[&[0, 0, 0, 2]]), None);
    assert_eq!(host.status(0x80, 0x78, 1, 0x18, &[1]), 0x9000);
    assert_eq!(
        host.status(0x80, 0x72, 1, 0x92, &[]),
        0x6985,
        "no copy of it"
    );
    assert_eq!(host.status(0x80, 0x78, 1, 0x18, &[1]), 0x9000);
    assert_eq!(host.status(0x80, 0x78, 1, 0x18, &[1]), 0x6984);
    host.ok(0, 0x48, 2, 0xB0, &[], None);
    assert_eq!(host.status(0, 0x48, 3, 0xB0, &tlv(0x90, &[&[1]])), 0x6A80);
}
