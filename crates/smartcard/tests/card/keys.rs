use hsmux_smartcard::{
    AesAlgorithm, AesSize, Curve, KeyPair, KeyPairKind, KeyReference, SignAlgorithm, StatusWord,
};

use super::script::{card, done, hex};

const KEY: KeyReference = KeyReference(5);

#[test]
fn key_pairs_are_asked_for_with_their_numbers() {
    let rsa = "5F290100 4209555443413030303031 \
               7F4915 060A04007F00070202020102 8203010001 02020800 5F200D44454E4B303030303130303031";
    let mut pair = KeyPair::new(KeyPairKind::Rsa { bits: 2048 }, "DENK0000");
    pair.holder = "DENK000010001".into();
    let p256 = &Curve::SECP256R1;
    let ec = format!(
        "5F290100 4209555443413030303031 7F4981DA 060A04007F00070202020203 \
         8120{} 8220{} 8320{} 8441{} 8520{} 870101 5F200D44454E4B303030303030303031 900400000003 910170",
        hex::encode(p256.prime),
        hex::encode(p256.a),
        hex::encode(p256.b),
        hex::encode(p256.generator),
        hex::encode(p256.order),
    );
    let command = |body: &str| format!("00460500 00{:04X} {body} 0000", hex(body).len());
    let mut card = card(&[(&command(rsa), "67 00 9000"), (&command(&ec), "6A89")]);
    assert_eq!(card.generate_key_pair(KEY, &pair).unwrap(), [0x67, 0]);
    let mut pair = KeyPair::new(KeyPairKind::Ec(p256), "DENK0000");
    pair.use_counter = Some(3);
    pair.algorithms = vec![SignAlgorithm::Ecdsa as u8];
    let error = card.generate_key_pair(KEY, &pair).unwrap_err();
    assert_eq!(error.status(), Some(StatusWord::FILE_EXISTS));
    done(card);
}

#[test]
fn keys_sign_decrypt_and_agree() {
    let cryptogram = [9; 256];
    let mut card = card(&[
        ("80680570 000003 010203 0200", "3006 020101 020102 9000"),
        ("80680540 000001 01 0200", "6984"),
        (
            &format!("80620521 000100 {} 0200", hex::encode(cryptogram)),
            "0002 9000",
        ),
        ("80620580 03 040102 00", "04 AAAA BBBB 9000"),
        ("80620580 03 040102 00", "02 AAAA 9000"),
        ("80760506 03 98 0102", "9000"),
    ]);
    let signature = card.sign(KEY, SignAlgorithm::Ecdsa, &[1, 2, 3]).unwrap();
    assert_eq!(
        hsmux_smartcard::ecdsa_fixed(&signature, 2).unwrap(),
        [0, 1, 0, 2]
    );
    let expired = card.sign(KEY, SignAlgorithm::RsaPss, &[1]).unwrap_err();
    assert!(expired.to_string().contains("use counter"), "{expired}");
    assert_eq!(card.decrypt(KEY, &cryptogram).unwrap().as_slice(), [0, 2]);
    assert_eq!(
        card.agree(KEY, &[4, 1, 2]).unwrap().as_slice(),
        [0xAA, 0xAA]
    );
    assert!(card.agree(KEY, &[4, 1, 2]).is_err());
    card.derive_ec(KEY, KeyReference(6), &[1, 2]).unwrap();
    done(card);
}

#[test]
fn aes_keys_are_made_and_used() {
    let blocks = "00112233445566778899AABBCCDDEEFF";
    let inverted = "FFEEDDCCBBAA99887766554433221100";
    let mut card = card(&[
        ("004805B2 07 9105 1011189299", "9000"),
        ("004805B0 09 910118 900400000001", "6A86"),
        (
            &format!("80780510 10 {inverted} 00"),
            &format!("{blocks} 9000"),
        ),
        (
            &format!("80780511 10 {blocks} 00"),
            &format!("{inverted} 9000"),
        ),
        (&format!("80780511 10 {blocks} 00"), "00 9000"),
        ("80780518 02 0102 00", &format!("{blocks} 9000")),
        ("80780518 02 0102 00", "01 9000"),
        ("80780599 01 AA 00", "010203 9000"),
    ]);
    card.generate_aes(KEY, AesSize::Bits256, &AesAlgorithm::ALL, None)
        .unwrap();
    let cmac_only = [AesAlgorithm::Cmac];
    assert!(
        card.generate_aes(KEY, AesSize::Bits128, &cmac_only, Some(1))
            .is_err()
    );
    let iv = [0xFF; 16];
    assert_eq!(
        card.cbc_encrypt(KEY, &iv, &hex(blocks)).unwrap(),
        hex(blocks)
    );
    assert_eq!(
        card.cbc_decrypt(KEY, &iv, &hex(blocks)).unwrap().to_vec(),
        hex(blocks)
    );
    assert!(card.cbc_decrypt(KEY, &iv, &hex(blocks)).is_err());
    assert_eq!(card.cmac(KEY, &[1, 2]).unwrap().to_vec(), hex(blocks));
    assert!(card.cmac(KEY, &[1, 2]).is_err());
    assert_eq!(card.derive(KEY, &[0xAA]).unwrap().as_slice(), [1, 2, 3]);
    assert!(card.cbc_encrypt(KEY, &iv, &[0; 15]).is_err());
    done(card);
}

/// CBC over more than one command goes on where the last one ended.
#[test]
fn cbc_is_chained_over_commands() {
    let (first, rest) = (1216, 48);
    let zeros = "00".repeat(first);
    let ends_in_ones = format!("{}{}", "00".repeat(first - 16), "11".repeat(16));
    let ones = "11".repeat(16);
    let encrypt = (
        format!("80780510 0004C0 {zeros} 04C0"),
        format!("80780510 30 {ones} {} 00", "00".repeat(32)),
    );
    let decrypt = (
        format!("80780511 0004C0 {ends_in_ones} 04C0"),
        format!("80780511 30 {} 00", "22".repeat(rest)),
    );
    let mut card = card(&[
        (&encrypt.0, &format!("{ends_in_ones} 9000")),
        (&encrypt.1, &format!("{} 9000", "22".repeat(rest))),
        (&decrypt.0, &format!("{zeros} 9000")),
        (&decrypt.1, &format!("{ones} {} 9000", "00".repeat(32))),
    ]);
    let plaintext = vec![0; first + rest];
    let ciphertext = card.cbc_encrypt(KEY, &[0; 16], &plaintext).unwrap();
    assert_eq!(
        hex::encode(&ciphertext),
        format!("{ends_in_ones}{}", "22".repeat(rest))
    );
    let back = card.cbc_decrypt(KEY, &[0; 16], &ciphertext).unwrap();
    assert!(back.as_slice() == plaintext);
    done(card);
}
