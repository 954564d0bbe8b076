use hsmux_smartcard::cvc::CvcRequest;
use hsmux_smartcard::tlv::tlv;
use hsmux_smartcard::{Curve, ecdsa_fixed};
use hsmux_token::{Hash, Mechanism, ck};

use crate::host::{ALL, Host, ec_body, padded, rsa_body};

const DATA: &[u8] = b"what is signed";

fn wrap(host: &mut Host, id: u8) -> Vec<u8> {
    host.ok(0x80, 0x72, id, 0x92, &[], ALL)
}

/// A card with an RSA, an EC and an AES key, and their wrapped forms.
fn source() -> (Host, [Vec<u8>; 3]) {
    let mut host = Host::ready(7);
    host.generate(1, &rsa_body(1024));
    host.generate(2, &ec_body(Curve::by_name("brainpoolP512r1").unwrap()));
    host.ok(0, 0x48, 3, 0xB2, &tlv(0x91, &[&[0x18, 0x92]]), None);
    let blobs = [1, 2, 3].map(|id| wrap(&mut host, id));
    (host, blobs)
}

#[test]
fn keys_go_to_a_card_with_the_same_dkek_in_both_styles() {
    let (mut one, blobs) = source();
    for in_file in [false, true] {
        let mut other = Host::ready(7);
        for (id, blob) in (11..).zip(&blobs) {
            if in_file {
                assert_eq!(other.write(0x2F10, blob), 0x9000);
                assert_eq!(other.status(0x80, 0x74, id, 0x93, &[]), 0x9000);
                assert_eq!(other.status(0x80, 0x74, id, 0x93, &[]), 0x6A82, "used up");
            } else {
                assert_eq!(other.status(0x80, 0x74, id, 0x93, blob), 0x9000);
            }
        }
        assert_eq!(other.enumerate(), [0xCC00, 0xCC0B, 0xCC0C, 0xCC0D]);
        let block = padded(Hash::Sha256, DATA, 128);
        let rsa = |host: &mut Host, id| host.ok(0x80, 0x68, id, 0x20, &block, Some(512));
        assert_eq!(rsa(&mut one, 1), rsa(&mut other, 11));
        let mac = |host: &mut Host, id| host.ok(0x80, 0x78, id, 0x18, DATA, Some(256));
        assert_eq!(mac(&mut one, 3), mac(&mut other, 13));
        // The conditions of use were copied.
        assert_eq!(other.status(0x80, 0x78, 13, 0x10, &[0; 16]), 0x6985);

        let point = one.read(0xCE02).data;
        let parsed = CvcRequest::parse(&point).unwrap();
        let generator = Curve::by_name("brainpoolP512r1").unwrap().generator;
        let agree = |host: &mut Host, id| host.ok(0x80, 0x62, id, 0x80, generator, Some(512));
        let (here, there) = (agree(&mut one, 2), agree(&mut other, 12));
        // The product with the generator is the public point.
        assert!(
            parsed
                .certificate
                .public_key
                .to_public_key()
                .unwrap()
                .spki()
                .ends_with(&here)
        );
        assert_eq!(here, there);
    }
}

#[test]
fn a_clone_signs_for_the_same_public_key() {
    let mut one = Host::ready(7);
    let request = one.generate(1, &ec_body(Curve::by_name("P-256").unwrap()));
    let key = CvcRequest::parse(&request)
        .unwrap()
        .certificate
        .public_key
        .to_public_key()
        .unwrap();
    let blob = wrap(&mut one, 1);
    let mut other = Host::ready(7);
    assert_eq!(other.status(0x80, 0x74, 1, 0x93, &blob), 0x9000);
    let signature = other.ok(0x80, 0x68, 1, 0x73, DATA, Some(256));
    let digest = hsmux_software::digest(Hash::Sha256, DATA);
    let signature = ecdsa_fixed(&signature, 32).unwrap();
    key.verify(&Mechanism::plain(ck::CKM_ECDSA), &digest, &signature)
        .unwrap();
}

#[test]
fn another_dkek_and_damaged_blobs_are_refused() {
    let (_, blobs) = source();
    let mut stranger = Host::ready(8);
    let mut relative = Host::ready(7);
    for blob in &blobs {
        assert_eq!(stranger.status(0x80, 0x74, 1, 0x93, blob), 0x6A80);
        for at in [0, 8, 9, 20, 40, blob.len() / 2, blob.len() - 1] {
            let mut damaged = blob.clone();
            damaged[at] ^= 1;
            assert_eq!(
                relative.status(0x80, 0x74, 1, 0x93, &damaged),
                0x6A80,
                "{at}"
            );
        }
        for len in [1, 15, 16, 24, blob.len() - 16, blob.len() - 1] {
            assert_eq!(
                relative.status(0x80, 0x74, 1, 0x93, &blob[..len]),
                0x6A80,
                "{len}"
            );
        }
    }
    assert_eq!(relative.enumerate(), [0xCC00]);
}

#[test]
fn a_key_that_is_there_already_stays() {
    let (mut one, blobs) = source();
    assert_eq!(one.status(0x80, 0x74, 1, 0x93, &blobs[1]), 0x6A89);
    assert_eq!(one.status(0x80, 0x74, 0, 0x93, &blobs[1]), 0x6A86);
    assert_eq!(
        one.status(0x80, 0x72, 0, 0x92, &[]),
        0x6982,
        "the device key"
    );
    assert_eq!(one.status(0x80, 0x72, 9, 0x92, &[]), 0x6A82);
    assert_eq!(one.status(0x80, 0x72, 1, 0x91, &[]), 0x6A86);
    one.select();
    assert_eq!(one.status(0x80, 0x72, 1, 0x92, &[]), 0x6982);
    assert_eq!(one.status(0x80, 0x74, 9, 0x93, &blobs[1]), 0x6982);
}

#[test]
fn shares_in_any_order_make_the_same_key() {
    let mut checks = Vec::new();
    for shares in [[1u8, 2, 3], [3, 1, 2]] {
        let mut host = Host::new();
        host.initialize(Some(3));
        for (missing, share) in [2, 1, 0].into_iter().zip(shares) {
            let status = host.ok(0x80, 0x52, 0, 0, &[share; 32], Some(256));
            assert_eq!((status.len(), &status[..2]), (10, &[3, missing][..]));
            assert_eq!(status[2..] == [0; 8], missing > 0);
        }
        host.login();
        assert_eq!(host.status(0x80, 0x52, 0, 0, &[4; 32]), 0x6985);
        checks.push(host.ok(0x80, 0x52, 0, 0, &[], Some(256)));
    }
    assert_eq!(checks[0], checks[1]);
    // The first bytes of SHA-256 of 32 zeros: 1 xor 2 xor 3 is 0.
    assert_eq!(hex::encode(&checks[0][2..]), "66687aadf862bd77");
}

#[test]
fn no_wrapping_while_shares_are_missing_or_without_dkek() {
    let mut host = Host::new();
    host.initialize(Some(2));
    host.login();
    host.ok(0, 0x48, 1, 0xB0, &[], None);
    assert_eq!(
        host.ok(0x80, 0x52, 0, 0, &[], Some(256)),
        [2, 2, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(host.status(0x80, 0x52, 0, 0, &[1; 31]), 0x6700);
    assert_eq!(host.status(0x80, 0x72, 1, 0x92, &[]), 0x6985);
    assert_eq!(host.status(0x80, 0x74, 2, 0x93, &[1; 64]), 0x6985);

    host.initialize(None);
    host.login();
    host.ok(0, 0x48, 1, 0xB0, &[], None);
    assert_eq!(host.status(0x80, 0x72, 1, 0x92, &[]), 0x6D00);
    assert_eq!(host.status(0x80, 0x74, 2, 0x93, &[1; 64]), 0x6D00);
}

/// With zero shares the card has a random DKEK: wrapped keys are for this card only.
#[test]
fn a_dkek_without_shares_is_the_cards_own() {
    let own = |host: &mut Host| {
        host.initialize(Some(0));
        host.login();
        host.ok(0, 0x48, 1, 0xB0, &[], None);
        wrap(host, 1)
    };
    let (mut one, mut other) = (Host::new(), Host::new());
    let (blob, _) = (own(&mut one), own(&mut other));
    assert_eq!(one.status(0x80, 0x74, 2, 0x93, &blob), 0x9000);
    assert_eq!(other.status(0x80, 0x74, 2, 0x93, &blob), 0x6A80);
}
