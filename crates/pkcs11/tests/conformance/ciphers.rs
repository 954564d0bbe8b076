//! Block ciphers: parts of any size give what the whole gives.

use hsmux_pkcs11::entry::*;
use hsmux_token::ck::*;

use crate::calls::*;
use crate::soft::AES;

const IV: [u8; 16] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3];

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7) as u8).collect()
}

fn in_parts(s: Session, update: Whole, last: Final, data: &[u8], size: usize) -> Answer<Vec<u8>> {
    let mut out = Vec::new();
    for part in data.chunks(size) {
        out.extend(twice(s.whole(update, part))?);
    }
    out.extend(twice(s.last(last))?);
    Ok(out)
}

fn parts_are_like_the_whole(mechanism: CK_MECHANISM, lens: &[usize]) {
    let _library = library();
    let s = user();
    let key = s.one(CKO_SECRET_KEY, AES);
    for &len in lens {
        let plain = text(len);
        s.init(C_EncryptInit, mechanism, key).unwrap();
        let whole = twice(s.whole(C_Encrypt, &plain)).unwrap();
        s.init(C_DecryptInit, mechanism, key).unwrap();
        assert_eq!(twice(s.whole(C_Decrypt, &whole)).unwrap(), plain);
        for size in [1, 5, 15, 16, 17, 31, 32, 33, 1000] {
            s.init(C_EncryptInit, mechanism, key).unwrap();
            let parts = in_parts(s, C_EncryptUpdate, C_EncryptFinal, &plain, size);
            assert_eq!(parts.as_ref(), Ok(&whole), "{len} in parts of {size}");
            s.init(C_DecryptInit, mechanism, key).unwrap();
            let parts = in_parts(s, C_DecryptUpdate, C_DecryptFinal, &whole, size);
            assert_eq!(parts.as_ref(), Ok(&plain), "{len} in parts of {size}");
        }
    }
}

#[test]
fn ecb() {
    parts_are_like_the_whole(plain(CKM_AES_ECB), &[0, 16, 48, 160]);
}

#[test]
fn cbc() {
    parts_are_like_the_whole(mechanism(CKM_AES_CBC, &IV), &[0, 16, 48, 160]);
}

#[test]
fn cbc_with_padding() {
    parts_are_like_the_whole(
        mechanism(CKM_AES_CBC_PAD, &IV),
        &[0, 1, 15, 16, 17, 31, 32, 100],
    );
}

/// Counters and how many blocks may follow each (PKCS#11 3.0, section 6.11.5).
fn counters() -> [(CK_MECHANISM, usize); 4] {
    let counter = |bits, last| {
        let mut cb = [0xff; 16];
        cb[15] = last;
        CK_AES_CTR_PARAMS {
            ulCounterBits: bits,
            cb,
        }
    };
    let wide = |last| counter(128, last);
    let parameters = [
        (counter(8, 0xf6), 10),
        (counter(2, 0xfd), 3),
        (wide(0xf6), 10),
        (wide(0xff), 1),
    ];
    parameters.map(|(parameter, blocks)| {
        // They live as long as the test.
        let parameter = Box::leak(Box::new(parameter));
        (mechanism(CKM_AES_CTR, parameter), blocks)
    })
}

#[test]
fn ctr_goes_up_to_the_last_value_of_its_counter() {
    for (mechanism, blocks) in counters() {
        let all = blocks * 16;
        parts_are_like_the_whole(mechanism, &[0, 1, 15, all - 1, all]);
    }
}

#[test]
fn ctr_takes_nothing_for_which_a_counter_would_come_again() {
    let library = library();
    let s = user();
    let key = s.one(CKO_SECRET_KEY, AES);
    for (mechanism, blocks) in counters() {
        let (all, room) = (blocks * 16, (blocks + 1) * 16);
        for (init, whole, update, last) in [
            (
                C_EncryptInit as Init,
                C_Encrypt as Whole,
                C_EncryptUpdate as Whole,
                C_EncryptFinal as Final,
            ),
            (C_DecryptInit, C_Decrypt, C_DecryptUpdate, C_DecryptFinal),
        ] {
            let before = library.calls();
            s.init(init, mechanism, key).unwrap();
            let refused = given(room, s.whole(whole, &text(all + 1)));
            assert_eq!(refused.0, CKR_DATA_LEN_RANGE);
            assert_eq!(library.calls(), before);
            for size in [1, 16, all] {
                s.init(init, mechanism, key).unwrap();
                for part in text(all).chunks(size) {
                    twice(s.whole(update, part)).unwrap();
                }
                let refused = given(room, s.whole(update, &[1]));
                assert_eq!(refused.0, CKR_DATA_LEN_RANGE, "after parts of {size}");
                // The operation has ended.
                assert_eq!(given(room, s.last(last)).0, CKR_OPERATION_NOT_INITIALIZED);
            }
        }
    }
}

#[test]
fn gcm_is_gathered() {
    let parameter = CK_GCM_PARAMS {
        pIv: IV.as_ptr().cast_mut(),
        ulIvLen: 12,
        ulIvBits: 96,
        pAAD: std::ptr::null_mut(),
        ulAADLen: 0,
        ulTagBits: 128,
    };
    parts_are_like_the_whole(mechanism(CKM_AES_GCM, &parameter), &[0, 1, 16, 100]);
}

#[test]
fn large_data_travels_in_chunks() {
    let library = library();
    let s = user();
    let key = s.one(CKO_SECRET_KEY, AES);
    let plain = text((2 << 20) + 5);
    let before = library.calls();
    s.init(C_EncryptInit, mechanism(CKM_AES_CBC_PAD, &IV), key)
        .unwrap();
    let whole = twice(s.whole(C_Encrypt, &plain)).unwrap();
    assert_eq!(whole.len(), (2 << 20) + 16);
    assert_eq!(library.calls(), before + 3);
    s.init(C_DecryptInit, mechanism(CKM_AES_CBC_PAD, &IV), key)
        .unwrap();
    assert!(twice(s.whole(C_Decrypt, &whole)).unwrap() == plain);
}

#[test]
fn odd_lengths_are_refused_without_a_token() {
    let library = library();
    let s = user();
    let key = s.one(CKO_SECRET_KEY, AES);
    let cbc = mechanism(CKM_AES_CBC, &IV);
    let pad = mechanism(CKM_AES_CBC_PAD, &IV);
    let before = library.calls();
    s.init(C_EncryptInit, cbc, key).unwrap();
    assert_eq!(
        given(64, s.whole(C_Encrypt, &text(17))).0,
        CKR_DATA_LEN_RANGE
    );
    s.init(C_DecryptInit, cbc, key).unwrap();
    assert_eq!(
        given(64, s.whole(C_Decrypt, &text(17))).0,
        CKR_ENCRYPTED_DATA_LEN_RANGE
    );
    s.init(C_DecryptInit, pad, key).unwrap();
    assert_eq!(
        given(64, s.whole(C_Decrypt, &[])).0,
        CKR_ENCRYPTED_DATA_LEN_RANGE
    );
    s.init(C_EncryptInit, cbc, key).unwrap();
    twice(s.whole(C_EncryptUpdate, &text(5))).unwrap();
    assert_eq!(given(64, s.last(C_EncryptFinal)).0, CKR_DATA_LEN_RANGE);
    s.init(C_DecryptInit, pad, key).unwrap();
    twice(s.whole(C_DecryptUpdate, &text(5))).unwrap();
    assert_eq!(
        given(64, s.last(C_DecryptFinal)).0,
        CKR_ENCRYPTED_DATA_LEN_RANGE
    );
    assert_eq!(library.calls(), before);
}

#[test]
fn input_and_output_may_be_one_buffer() {
    let _library = library();
    let s = user();
    let key = s.one(CKO_SECRET_KEY, AES);
    s.init(C_EncryptInit, mechanism(CKM_AES_CBC, &IV), key)
        .unwrap();
    let expected = twice(s.whole(C_Encrypt, &text(64))).unwrap();
    let mut buffer = text(64);
    let place = buffer.as_mut_ptr();
    s.init(C_EncryptInit, mechanism(CKM_AES_CBC, &IV), key)
        .unwrap();
    assert_eq!(unsafe { C_Encrypt(s.0, place, 64, place, &mut 64) }, CKR_OK);
    assert_eq!(buffer, expected);
}

#[test]
fn a_digest_goes_along() {
    let _library = library();
    let s = user();
    let key = s.one(CKO_SECRET_KEY, AES);
    let plain = text(80);
    s.digest_init(CKM_SHA256).unwrap();
    let expected = twice(s.whole(C_Digest, &plain)).unwrap();
    s.init(C_EncryptInit, mechanism(CKM_AES_CBC, &IV), key)
        .unwrap();
    s.digest_init(CKM_SHA256).unwrap();
    let mut cipher_text = Vec::new();
    for part in plain.chunks(23) {
        cipher_text.extend(twice(s.whole(C_DigestEncryptUpdate, part)).unwrap());
    }
    twice(s.last(C_EncryptFinal)).unwrap();
    assert_eq!(twice(s.last(C_DigestFinal)).unwrap(), expected);

    s.init(C_DecryptInit, mechanism(CKM_AES_CBC, &IV), key)
        .unwrap();
    s.digest_init(CKM_SHA256).unwrap();
    let mut back = Vec::new();
    for part in cipher_text.chunks(23) {
        back.extend(twice(s.whole(C_DecryptDigestUpdate, part)).unwrap());
    }
    twice(s.last(C_DecryptFinal)).unwrap();
    assert_eq!(back, plain);
    assert_eq!(twice(s.last(C_DigestFinal)).unwrap(), expected);
}
