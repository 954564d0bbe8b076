//! Session objects: derived keys, and public keys for wrapping.

use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Class, Kind, Mechanism, Oaep, ObjectRef, Operation, Params, Scope, Token, Verb,
};

use crate::fixture::{Run, aes, ec_pair, ec_pair_of, on_token, token};

#[test]
fn a_session_object_lives_as_long_as_the_token_is_open() {
    let token = token("session-objects");
    let pair = token.made(ec_pair(1));
    let peer = token.made(ec_pair(2));
    let point = peer[0].object.attributes.get(CKA_EC_POINT).unwrap();
    let derive = |public: &[u8]| Operation::Derive {
        key: pair[1].object.id.into(),
        mechanism: Mechanism {
            kind: CKM_ECDH1_DERIVE,
            params: Params::Ecdh {
                kdf: CKD_NULL,
                shared: Vec::new().into(),
                public: public.to_vec().into(),
            },
        },
        template: Attributes::default()
            .with_number(CKA_CLASS, CKO_SECRET_KEY)
            .with_number(CKA_KEY_TYPE, CKK_AES)
            .with_number(CKA_VALUE_LEN, 32)
            .with_flag(CKA_TOKEN, false)
            .with_flag(CKA_SENSITIVE, false)
            .with_flag(CKA_EXTRACTABLE, true)
            .with_flag(CKA_ENCRYPT, true),
    };
    let shared = token.made(derive(point)).remove(0);
    assert_eq!(shared.object.attributes.get(CKA_VALUE).unwrap().len(), 32);
    let session = shared.session.unwrap();
    assert_eq!(session.owner, 0);
    let encrypt = || Operation::Use {
        verb: Verb::Encrypt,
        key: ObjectRef::Session(session),
        mechanism: Mechanism::plain(CKM_AES_ECB),
        data: vec![0; 16].into(),
    };
    let text = token.bytes(encrypt()).unwrap();
    assert_eq!(
        text[..3],
        *shared.object.attributes.get(CKA_CHECK_VALUE).unwrap()
    );
    // It is not among the token's objects.
    assert_eq!(token.objects().unwrap().objects.len(), 4);
    let object = ObjectRef::Session(session);
    token.run(Operation::Destroy { object }).unwrap();
    assert!(token.bytes(encrypt()).is_err());
}

#[test]
fn a_session_key_that_wants_its_pin_for_each_use_does_not_blame_the_token() {
    let token = token("always-authenticate");
    let mut pair = ec_pair_of(Attributes::default().with_flag(CKA_TOKEN, false));
    if let Operation::GeneratePair { private, .. } = &mut pair {
        private.set_flag(CKA_ALWAYS_AUTHENTICATE, true);
    }
    let key = token.made(pair)[1].session.unwrap();
    let sign = |key: ObjectRef| {
        token.bytes(Operation::Use {
            verb: Verb::Sign,
            key,
            mechanism: Mechanism::plain(CKM_ECDSA),
            data: vec![7; 32].into(),
        })
    };
    for _ in 0..3 {
        let error = sign(ObjectRef::Session(key)).unwrap_err();
        assert_eq!(error.scope(), Scope::Request, "{error}");
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    }
    // Its sessions are replaced: other keys still sign.
    let other = token.made(ec_pair(1)).remove(1);
    for _ in 0..5 {
        sign(other.object.id.into()).unwrap();
    }
}

#[test]
fn keys_travel_wrapped_between_tokens() {
    let (from, to) = (token("wraps"), token("unwraps"));
    let transport = to.made(Operation::GeneratePair {
        mechanism: Mechanism::plain(CKM_RSA_PKCS_KEY_PAIR_GEN),
        public: on_token(9)
            .with_number(CKA_MODULUS_BITS, 2048)
            .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1])
            .with_flag(CKA_WRAP, true),
        private: on_token(9).with_flag(CKA_UNWRAP, true),
    });
    let public = &transport[0].object.attributes;
    let template = Attributes::default()
        .with_number(CKA_CLASS, CKO_PUBLIC_KEY)
        .with_number(CKA_KEY_TYPE, CKK_RSA)
        .with_flag(CKA_TOKEN, false)
        .with_flag(CKA_WRAP, true)
        .with(CKA_MODULUS, public.get(CKA_MODULUS).unwrap().to_vec())
        .with(
            CKA_PUBLIC_EXPONENT,
            public.get(CKA_PUBLIC_EXPONENT).unwrap().to_vec(),
        );
    let imported = from
        .made(Operation::Create {
            template,
            near: None,
        })
        .remove(0);
    let Operation::Generate {
        mechanism,
        template,
    } = aes(3)
    else {
        unreachable!()
    };
    let template = template.with_flag(CKA_EXTRACTABLE, true);
    let key = from
        .made(Operation::Generate {
            mechanism,
            template,
        })
        .remove(0);
    let oaep = Mechanism {
        kind: CKM_RSA_PKCS_OAEP,
        params: Params::Oaep(Oaep::sha1()),
    };
    let wrapped = from
        .bytes(Operation::Wrap {
            wrapping: ObjectRef::Session(imported.session.unwrap()),
            mechanism: oaep.clone(),
            key: key.object.id.into(),
        })
        .unwrap();
    assert_eq!(wrapped.len(), 256);
    let arrived = to
        .made(Operation::Unwrap {
            unwrapping: transport[1].object.id.into(),
            mechanism: oaep,
            wrapped: wrapped.into(),
            template: on_token(3)
                .with_number(CKA_CLASS, CKO_SECRET_KEY)
                .with_number(CKA_KEY_TYPE, CKK_AES)
                .with_flag(CKA_ENCRYPT, true),
        })
        .remove(0);
    // The same name, because of the same check value.
    assert_eq!(arrived.object.id, key.object.id);
    assert_eq!(arrived.object.id.class, Class::SECRET_KEY);
}
