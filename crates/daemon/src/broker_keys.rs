//! The rights on a key of the broker of a listener or peer that names it. They keep the broker's promises true.

use hsmux_pool::BROKER_ROLE;
use hsmux_token::{Class, Mechanism, Object, Operation, Params, Verb, ck};

/// The nonce and the tag of the broker's ciphertexts. A shorter tag could be guessed, which gives the key stream away.
const GCM_NONCE: usize = 12;
const GCM_TAG_BITS: u64 = 128;

/// True if the operation may work with this key of the broker.
pub fn permits(operation: &Operation, key: &Object) -> bool {
    let (Operation::Use {
        verb, mechanism, ..
    }
    | Operation::Begin {
        verb, mechanism, ..
    }) = operation
    else {
        // It destroys or changes the key, or makes another one of it that no rule holds.
        return false;
    };
    let kind = mechanism.kind;
    match (key.id.class, verb) {
        (Class::PUBLIC_KEY, _) => true,
        // A raw signature is a decryption, and so may be one that a vendor has defined.
        (Class::PRIVATE_KEY, Verb::Sign) => {
            kind != ck::CKM_RSA_X_509 && !Mechanism::is_vendor_defined(kind)
        }
        // The others tell good padding from bad.
        (Class::PRIVATE_KEY, Verb::Decrypt) => kind == ck::CKM_RSA_PKCS_OAEP,
        (Class::SECRET_KEY, Verb::Decrypt) => is_whole_gcm(mechanism),
        (Class::SECRET_KEY, Verb::Sign | Verb::Verify) => is_hmac_key(key),
        _ => false,
    }
}

fn is_whole_gcm(mechanism: &Mechanism) -> bool {
    let Params::Gcm(gcm) = &mechanism.params else {
        return false;
    };
    mechanism.kind == ck::CKM_AES_GCM && gcm.iv.0.len() == GCM_NONCE && gcm.tag_bits == GCM_TAG_BITS
}

/// A key of the type `hmac`, and not the one that authenticates what another key enciphers.
fn is_hmac_key(key: &Object) -> bool {
    let id = key.attributes.get(ck::CKA_ID).unwrap_or_default();
    let is_main = id.get(BROKER_ROLE) == Some(&0);
    let is_aes = key.attributes.number(ck::CKA_KEY_TYPE) != Some(ck::CKK_GENERIC_SECRET);
    is_main && !is_aes
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_pool::BROKER_MARK;
    use hsmux_token::{Attributes, Blob, Gcm, Oaep, ObjectId};

    fn key(class: Class, key_type: u64, role: u8) -> Object {
        let id = [&BROKER_MARK[..], &[2, role, 0, 0, 0, 1], &[7; 8]].concat();
        Object {
            id: ObjectId {
                class,
                name: [1; 32],
            },
            attributes: Attributes::default()
                .with(ck::CKA_ID, id)
                .with_number(ck::CKA_KEY_TYPE, key_type),
        }
    }

    fn using(verb: Verb, key: &Object, mechanism: Mechanism) -> Operation {
        Operation::Use {
            verb,
            key: key.id.into(),
            mechanism,
            data: Blob::default(),
        }
    }

    fn gcm(nonce: usize, tag_bits: u64) -> Mechanism {
        let gcm = Gcm {
            iv: vec![0; nonce].into(),
            aad: Blob::default(),
            tag_bits,
        };
        Mechanism {
            kind: ck::CKM_AES_GCM,
            params: Params::Gcm(gcm),
        }
    }

    #[test]
    fn an_aes_key_opens_what_the_broker_has_sealed_and_nothing_else() {
        let aes = key(Class::SECRET_KEY, ck::CKK_AES, 0);
        let may = |verb, mechanism: Mechanism| {
            let begin = Operation::Begin {
                verb,
                key: aes.id.into(),
                mechanism: mechanism.clone(),
            };
            let permitted = permits(&using(verb, &aes, mechanism), &aes);
            // Whoever may not use it so may not ask about it.
            assert_eq!(permits(&begin, &aes), permitted);
            permitted
        };
        assert!(may(Verb::Decrypt, gcm(12, 128)));
        for mechanism in [gcm(12, 96), gcm(12, 8), gcm(16, 128), gcm(0, 128)] {
            assert!(!may(Verb::Decrypt, mechanism));
        }
        let ctr = Mechanism {
            kind: ck::CKM_AES_CTR,
            params: Params::Ctr {
                bits: 32,
                block: vec![0; 16].into(),
            },
        };
        let cbc = Mechanism::with_bytes(ck::CKM_AES_CBC, vec![0; 16]);
        let others = [ctr, cbc, Mechanism::plain(ck::CKM_AES_ECB)];
        for mechanism in others.into_iter().chain([gcm(12, 128)]) {
            assert!(!may(Verb::Encrypt, mechanism.clone()));
            if mechanism.kind != ck::CKM_AES_GCM {
                assert!(!may(Verb::Decrypt, mechanism));
            }
        }
        for verb in [Verb::Sign, Verb::SignRecover, Verb::Verify] {
            assert!(!may(verb, Mechanism::plain(ck::CKM_AES_CMAC)));
        }
    }

    #[test]
    fn keys_that_sign_sign() {
        let mac = |role| key(Class::SECRET_KEY, ck::CKK_GENERIC_SECRET, role);
        let hmac = Mechanism::plain(ck::CKM_SHA256_HMAC);
        let may = |key: &Object, verb, mechanism: &Mechanism| {
            permits(&using(verb, key, mechanism.clone()), key)
        };
        assert!(may(&mac(0), Verb::Sign, &hmac) && may(&mac(0), Verb::Verify, &hmac));
        assert!(!may(&mac(1), Verb::Sign, &hmac) && !may(&mac(1), Verb::Verify, &hmac));
        let rsa = key(Class::PRIVATE_KEY, ck::CKK_RSA, 0);
        let oaep = Mechanism {
            kind: ck::CKM_RSA_PKCS_OAEP,
            params: Params::Oaep(Oaep::sha1()),
        };
        let (pkcs, raw) = (
            Mechanism::plain(ck::CKM_RSA_PKCS),
            Mechanism::plain(ck::CKM_RSA_X_509),
        );
        assert!(may(&rsa, Verb::Sign, &pkcs) && may(&rsa, Verb::Decrypt, &oaep));
        assert!(!may(&rsa, Verb::Decrypt, &pkcs) && !may(&rsa, Verb::Decrypt, &raw));
        let vendors = Mechanism::plain(ck::CKM_VENDOR_DEFINED + 1);
        assert!(!may(&rsa, Verb::Sign, &vendors));
        assert!(!may(&rsa, Verb::Sign, &raw) && !may(&rsa, Verb::SignRecover, &pkcs));
        assert!(may(
            &key(Class::PRIVATE_KEY, ck::CKK_EC, 0),
            Verb::Sign,
            &Mechanism::plain(ck::CKM_ECDSA)
        ));
    }

    #[test]
    fn nobody_takes_changes_or_multiplies_one() {
        for class in [Class::SECRET_KEY, Class::PRIVATE_KEY, Class::PUBLIC_KEY] {
            let key = key(class, ck::CKK_AES, 0);
            let object = key.id.into();
            let (template, mechanism) = (
                Attributes::default(),
                Mechanism::plain(ck::CKM_AES_KEY_WRAP),
            );
            for operation in [
                Operation::Destroy { object },
                Operation::Copy {
                    object,
                    template: template.clone(),
                },
                Operation::SetAttributes {
                    object,
                    template: template.clone(),
                },
                Operation::Wrap {
                    wrapping: object,
                    mechanism: mechanism.clone(),
                    key: object,
                },
                Operation::Unwrap {
                    unwrapping: object,
                    mechanism: mechanism.clone(),
                    wrapped: Blob::default(),
                    template: template.clone(),
                },
                Operation::Derive {
                    key: object,
                    mechanism,
                    template: template.clone(),
                },
                Operation::Create {
                    template,
                    near: Some(object),
                },
            ] {
                assert!(!permits(&operation, &key), "{operation:?}");
            }
        }
    }
}
