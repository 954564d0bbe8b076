//! Uses of keys.

use hsmux_software::{PublicKey, digest};
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Gcm, Hash, KeyKind, Mechanism, Oaep, ObjectId, ObjectRef, Operation, Outcome,
    Params, Pss, Result, Token, Uses, Verb, entry,
};

use crate::fixture::{Run, aes, ec_pair, rsa_pair, token};

/// The use of a key.
pub fn with(verb: Verb, key: ObjectId, mechanism: Mechanism, data: &[u8]) -> Operation {
    Operation::Use {
        verb,
        key: ObjectRef::Token(key),
        mechanism,
        data: data.to_vec().into(),
    }
}

/// The mechanism, with a parameter if it needs one.
fn ready(kind: u64, hash: Hash) -> Mechanism {
    let pss = [CKM_RSA_PKCS_PSS].contains(&kind)
        || entry(kind)
            .unwrap()
            .prehash
            .is_some_and(|p| p.raw == CKM_RSA_PKCS_PSS);
    let params = if pss {
        Params::Pss(Pss {
            hash: hash.mechanism(),
            mgf: hash.mgf(),
            salt: hash.len() as u64,
        })
    } else {
        Params::None
    };
    Mechanism { kind, params }
}

#[test]
fn every_signature_that_the_token_offers_is_right() {
    let token = token("signatures");
    let rsa = token.made(rsa_pair(1));
    let ec = token.made(ec_pair(2));
    let message = b"forty-two bytes of text that all tokens sign";
    let mut tried = 0;
    for offered in &token.info().mechanisms {
        let Some(known) = entry(offered.kind) else {
            continue;
        };
        let pair = match known.key {
            KeyKind::Rsa => &rsa,
            KeyKind::Ec => &ec,
            _ => continue,
        };
        if !known.uses.contains(Uses::SIGN) || offered.flags & CKF_SIGN == 0 {
            continue;
        }
        let hash = known.prehash.map_or(Hash::Sha256, |p| p.hash);
        let mechanism = ready(offered.kind, hash);
        let data = match offered.kind {
            CKM_RSA_PKCS_PSS | CKM_ECDSA => digest(hash, message),
            CKM_RSA_X_509 => [&[0; 256 - 44], &message[..44]].concat(),
            _ => message.to_vec(),
        };
        let key = PublicKey::from_attributes(&pair[0].object.attributes).unwrap();
        assert_eq!(
            pair[0].object.id.with_class(pair[1].object.id.class),
            pair[1].object.id
        );
        let signature = token
            .bytes(with(
                Verb::Sign,
                pair[1].object.id,
                mechanism.clone(),
                &data,
            ))
            .unwrap();
        key.verify(&mechanism, &data, &signature)
            .unwrap_or_else(|e| panic!("{}: {e}", known.name));
        tried += 1;
    }
    assert!(tried >= 13, "SoftHSM has more than {tried}");
}

#[test]
fn a_secret_key_enciphers_and_deciphers() {
    let token = token("ciphers");
    let key = token.made(aes(3)).remove(0).object;
    assert_eq!(key.attributes.get(CKA_CHECK_VALUE).unwrap().len(), 3);
    let gcm = Params::Gcm(Gcm {
        iv: vec![7; 12].into(),
        aad: b"known".to_vec().into(),
        tag_bits: 128,
    });
    let ctr = Params::Ctr {
        bits: 128,
        block: vec![9; 16].into(),
    };
    let iv = Params::Bytes(vec![5; 16].into());
    for (kind, params, longer) in [
        (CKM_AES_ECB, Params::None, 0),
        (CKM_AES_CBC, iv.clone(), 0),
        (CKM_AES_CBC_PAD, iv, 16),
        (CKM_AES_CTR, ctr, 0),
        (CKM_AES_GCM, gcm, 16),
    ] {
        // Below and above the size of the buffer on the stack.
        for len in [0, 16, 960, 976, 992, 1024, 70_000 / 16 * 16] {
            let mechanism = Mechanism {
                kind,
                params: params.clone(),
            };
            let clear = vec![0x42; len];
            let text = token.bytes(with(Verb::Encrypt, key.id, mechanism.clone(), &clear));
            let text = match text {
                // SoftHSM encrypts empty input only with padding or a tag.
                Err(_) if len == 0 && longer == 0 => continue,
                text => text.unwrap(),
            };
            assert_eq!(text.len(), len + longer, "{}", mechanism.name());
            let back = token
                .bytes(with(Verb::Decrypt, key.id, mechanism, &text))
                .unwrap();
            assert_eq!(back, clear);
        }
    }
}

#[test]
fn a_mac_is_verified_by_the_token() {
    let token = token("macs");
    let key = token.made(aes(3)).remove(0).object.id;
    let mechanism = Mechanism::plain(CKM_AES_CMAC);
    let mac = token
        .bytes(with(Verb::Sign, key, mechanism.clone(), b"message"))
        .unwrap();
    let framed = |message: &[u8]| [&(mac.len() as u32).to_be_bytes(), &mac[..], message].concat();
    let verify = |data: &[u8]| token.run(with(Verb::Verify, key, mechanism.clone(), data));
    verify(&framed(b"message")).unwrap();
    let error = verify(&framed(b"massage")).unwrap_err();
    assert_eq!(error.code(), Some(CKR_SIGNATURE_INVALID));
    assert!(verify(&[0, 0, 1]).is_err());
    assert!(verify(&[255; 8]).is_err());
}

#[test]
fn what_a_token_does_not_take_is_known_before_there_are_data() {
    let token = token("begins");
    let key = token.made(rsa_pair(1)).remove(1).object.id;
    let hmac = token.made(Operation::Create {
        template: Attributes::default()
            .with_number(CKA_CLASS, CKO_SECRET_KEY)
            .with_number(CKA_KEY_TYPE, CKK_GENERIC_SECRET)
            .with(CKA_VALUE, vec![7; 16])
            .with_flag(CKA_SIGN, true),
        near: None,
    });
    let hmac = ObjectRef::Session(hmac[0].session.unwrap());
    let begin = |verb, key: ObjectRef, mechanism: Mechanism| {
        token.run(Operation::Begin {
            verb,
            key,
            mechanism,
        })
    };
    let oaep = |oaep| Mechanism {
        kind: CKM_RSA_PKCS_OAEP,
        params: Params::Oaep(oaep),
    };
    let code = |result: Result<Outcome>| result.map(drop).map_err(|error| error.code());
    // SoftHSM 2.6.1 supports only SHA-1, and HMAC keys as long as the hash.
    for _ in 0..5 {
        let decrypt = |mechanism| code(begin(Verb::Decrypt, key.into(), mechanism));
        assert_eq!(decrypt(oaep(Oaep::sha1())), Ok(()));
        assert_eq!(decrypt(oaep(Oaep::sha256())), Err(Some(CKR_ARGUMENTS_BAD)));
        let sign = |kind| code(begin(Verb::Sign, hmac, Mechanism::plain(kind)));
        assert_eq!(sign(CKM_SHA256_HMAC), Err(Some(CKR_KEY_SIZE_RANGE)));
    }
    // No operation stays active in the sessions.
    let data = vec![1; 32].into();
    let sign = Operation::Use {
        verb: Verb::Sign,
        key: key.into(),
        mechanism: Mechanism::plain(CKM_RSA_PKCS),
        data,
    };
    assert_eq!(token.bytes(sign).unwrap().len(), 256);
}
