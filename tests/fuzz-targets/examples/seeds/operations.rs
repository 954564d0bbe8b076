//! Operations of all kinds, of which calls and answers are made.

use hsmux_token::{
    Attributes, Class, Gcm, Mechanism, Oaep, ObjectId, ObjectRef, Operation, Params, Pss,
    SessionObject, Verb,
};
use hsmux_wire::Item;
// The numbers of PKCS#11 carry their own prefixes.
#[allow(clippy::wildcard_imports)]
use hsmux_token::ck::*;

pub const KEY: ObjectId = ObjectId {
    class: Class::PRIVATE_KEY,
    name: [7; 32],
};

pub fn mechanisms() -> Vec<Mechanism> {
    let with = |kind, params| Mechanism { kind, params };
    vec![
        Mechanism::plain(CKM_ECDSA),
        Mechanism::plain(CKM_SHA256_RSA_PKCS),
        with(CKM_AES_CBC_PAD, Params::Bytes(vec![1; 16].into())),
        with(CKM_AES_CMAC_GENERAL, Params::Number(8)),
        with(
            CKM_RSA_PKCS_PSS,
            Params::Pss(Pss {
                hash: CKM_SHA256,
                mgf: 2,
                salt: 32,
            }),
        ),
        with(
            CKM_RSA_PKCS_OAEP,
            Params::Oaep(Oaep {
                hash: CKM_SHA256,
                mgf: 2,
                label: vec![3; 4].into(),
            }),
        ),
        with(
            CKM_AES_GCM,
            Params::Gcm(Gcm {
                iv: vec![1; 12].into(),
                aad: vec![2; 5].into(),
                tag_bits: 128,
            }),
        ),
        with(
            CKM_AES_CTR,
            Params::Ctr {
                bits: 32,
                block: vec![1; 16].into(),
            },
        ),
        with(
            CKM_ECDH1_DERIVE,
            Params::Ecdh {
                kdf: 1,
                shared: Vec::new().into(),
                public: vec![4; 65].into(),
            },
        ),
        with(
            CKM_AES_CBC_ENCRYPT_DATA,
            Params::CbcData {
                iv: vec![0; 16].into(),
                data: vec![5; 32].into(),
            },
        ),
        with(
            CKM_AES_ECB_ENCRYPT_DATA,
            Params::StringData(vec![6; 16].into()),
        ),
        with(
            CKM_EDDSA,
            Params::Eddsa {
                prehash: true,
                context: b"context".to_vec().into(),
            },
        ),
    ]
}

pub fn template() -> Attributes {
    Attributes::default()
        .with_number(CKA_CLASS, CKO_PRIVATE_KEY)
        .with_flag(CKA_TOKEN, true)
        .with_flag(CKA_SENSITIVE, true)
        .with(CKA_LABEL, b"web".to_vec())
        .with(CKA_ID, vec![1, 2, 3])
        .with_number(CKA_MODULUS_BITS, 2048)
}

pub fn uses() -> Vec<Operation> {
    let each = mechanisms()
        .into_iter()
        .zip([Verb::Sign, Verb::Decrypt, Verb::Encrypt].iter().cycle());
    each.map(|(mechanism, verb)| Operation::Use {
        verb: *verb,
        key: ObjectRef::Token(KEY),
        mechanism,
        data: vec![9; 32].into(),
    })
    .collect()
}

pub fn operations() -> Vec<Operation> {
    let key = ObjectRef::Token(KEY);
    let session = ObjectRef::Session(SessionObject {
        owner: 5,
        handle: 6,
    });
    let mechanism = Mechanism::plain(CKM_AES_KEY_GEN);
    let mut all = uses();
    all.extend([
        Operation::Random { len: 32 },
        Operation::Generate {
            mechanism: mechanism.clone(),
            template: template(),
        },
        Operation::GeneratePair {
            mechanism: Mechanism::plain(CKM_EC_KEY_PAIR_GEN),
            public: template(),
            private: template(),
        },
        Operation::Derive {
            key,
            mechanism: mechanisms()[8].clone(),
            template: template(),
        },
        Operation::Wrap {
            wrapping: key,
            mechanism: Mechanism::plain(CKM_AES_KEY_WRAP),
            key: session,
        },
        Operation::Unwrap {
            unwrapping: session,
            mechanism,
            wrapped: vec![1; 40].into(),
            template: template(),
        },
        Operation::Create {
            template: template(),
            near: Some(key),
        },
        Operation::Copy {
            object: session,
            template: Attributes::default(),
        },
        Operation::Destroy { object: key },
        Operation::SetAttributes {
            object: key,
            template: template(),
        },
        Operation::Read { object: session },
    ]);
    all
}

pub fn item(operation: Operation) -> Item {
    Item {
        behalf: None,
        operation,
        remaining_us: 30_000_000,
    }
}
