//! The transport key on its token: found or made, and verified.

use super::TRANSPORT_LABEL;
use crate::channel::{OAEP_HASHES, oaep};
use crate::token_access::TokenAccess;
use hmac::{Hmac, Mac};
use hsmux_software::PublicKey;
use hsmux_software::refuses_template;
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Class, Error, Kind, Mechanism, Object, ObjectId, Operation, Result, Verb,
};
use sha2::Sha256;

/// Bits of a new transport key: as strong as AES-128 (SP 800-57). A token that makes no such key makes its largest.
const MODULUS_BITS: u64 = 3072;

/// The text of the MAC by which a token proves that it has unwrapped a key.
const PROOF: &[u8] = b"hsmux transport key proof 2";

/// The transport private key that an earlier run left on the token.
pub(super) fn existing(access: TokenAccess, serial: &str) -> Result<Option<Object>> {
    let wanted = Attributes::default()
        .with_number(CKA_CLASS, CKO_PRIVATE_KEY)
        .with(CKA_LABEL, label(serial).into_bytes());
    let snapshot = access.token.objects().map_err(|e| e.at(access.name))?;
    let least = modulus_bits(access) as usize;
    let found = snapshot.objects.iter().find(|object| {
        object.attributes.matches(&wanted) && only_unwraps(object) && {
            let bits = PublicKey::from_attributes(&object.attributes).map_or(0, |key| key.bits());
            if bits < least {
                let id = object.id;
                tracing::warn!(
                    member = access.name,
                    "transport key {id} has {bits} bits: a new one of {least} takes its place"
                );
            }
            bits >= least
        }
    });
    Ok(found.cloned())
}

/// A raw RSA signature deciphers as well. Tokens need not say whether a key signs.
fn only_unwraps(private: &Object) -> bool {
    let may = |usage| private.attributes.flag(usage);
    may(CKA_DECRYPT) == Some(false) && SIGNS.iter().all(|(usage, _)| may(*usage) != Some(true))
}

/// The usages by which a key signs.
const SIGNS: [(u64, &str); 2] = [
    (CKA_SIGN, "CKA_SIGN"),
    (CKA_SIGN_RECOVER, "CKA_SIGN_RECOVER"),
];

/// Bits of a new transport key of this token.
fn modulus_bits(access: TokenAccess) -> u64 {
    let info = access.token.info();
    let largest = info
        .mechanism(CKM_RSA_PKCS_KEY_PAIR_GEN)
        .map_or(0, |info| info.max_key);
    match largest {
        0 => MODULUS_BITS,
        largest => largest.min(MODULUS_BITS),
    }
}

pub(super) fn generate(access: TokenAccess, serial: &str) -> Result<Object> {
    let recovers_none = pair(serial, modulus_bits(access), true)?;
    let made = match access.run(&recovers_none) {
        // Not every token has CKA_SIGN_RECOVER.
        Err(error) if refuses_template(&error) => {
            access.run(&pair(serial, modulus_bits(access), false)?)
        }
        made => made,
    };
    let made = made?.into_objects()?;
    let private = made
        .into_iter()
        .find(|made| made.object.id.class == Class::PRIVATE_KEY);
    private.map(|made| made.object).ok_or_else(|| {
        Error::protocol(format!(
            "{}: C_GenerateKeyPair made no private key",
            access.name
        ))
    })
}

/// Removes a pair that is of no use: each attempt would leave one more.
pub(super) fn discard(access: TokenAccess, private: ObjectId) {
    for class in [Class::PRIVATE_KEY, Class::PUBLIC_KEY] {
        let id = ObjectId { class, ..private };
        if let Err(error) = access.destroy(id.into()) {
            tracing::warn!(member = access.name, %error, "a transport key of no use stays");
        }
    }
}

/// A new transport key, which says that it recovers no signature if the token `has_recover`.
fn pair(serial: &str, bits: u64, has_recover: bool) -> Result<Operation> {
    // An older key of this label may be there still, whose halves are others.
    let id = [label(serial).as_bytes(), b".", &crate::random::<4>()?].concat();
    let named = Attributes::default()
        .with_flag(CKA_TOKEN, true)
        .with(CKA_LABEL, label(serial).into_bytes())
        .with(CKA_ID, id);
    let private = named
        .clone()
        .with_flag(CKA_PRIVATE, true)
        .with_flag(CKA_SENSITIVE, true)
        .with_flag(CKA_EXTRACTABLE, false)
        .with_flag(CKA_UNWRAP, true)
        .with_flag(CKA_DECRYPT, false)
        .with_flag(CKA_SIGN, false);
    Ok(Operation::GeneratePair {
        mechanism: Mechanism::plain(CKM_RSA_PKCS_KEY_PAIR_GEN),
        public: named
            .with_number(CKA_MODULUS_BITS, bits)
            .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1])
            .with_flag(CKA_WRAP, true)
            .with_flag(CKA_ENCRYPT, false)
            .with_flag(CKA_VERIFY, false),
        private: if has_recover {
            private.with_flag(CKA_SIGN_RECOVER, false)
        } else {
            private
        },
    })
}

/// The public half of a transport key that was born on its token and cannot leave it.
pub(super) fn guarded(access: TokenAccess, private: &Object) -> Result<PublicKey> {
    let wanted = [
        (CKA_LOCAL, true, "CKA_LOCAL"),
        (CKA_SENSITIVE, true, "CKA_SENSITIVE"),
        (CKA_EXTRACTABLE, false, "CKA_EXTRACTABLE"),
        (CKA_DECRYPT, false, "CKA_DECRYPT"),
    ];
    let signs = SIGNS.map(|(kind, name)| (kind, false, name));
    for (kind, value, name) in wanted.into_iter().chain(signs) {
        // Tokens need not say whether it signs.
        let may_be_silent = SIGNS.iter().any(|(usage, _)| *usage == kind);
        let silent = may_be_silent && private.attributes.flag(kind).is_none();
        if private.attributes.flag(kind) != Some(value) && !silent {
            return Err(Error::token(
                Kind::Unproved,
                format!(
                    "{}: the transport key {} is not guarded by the token ({name} is not {value}): \
                     delete it, so that a new one is made",
                    access.name, private.id
                ),
            ));
        }
    }
    PublicKey::from_attributes(&private.attributes).map_err(|e| e.at(access.name))
}

/// The token unwraps what was enciphered to the key: answers the best hash by which it does.
pub(super) fn prove(access: TokenAccess, private: ObjectId, public: &PublicKey) -> Result<u64> {
    let mut why = None;
    for hash in OAEP_HASHES {
        match unwraps_a_challenge(access, private, public, hash) {
            Ok(true) => return Ok(hash),
            Ok(false) => {}
            Err(error) if error.ends_connection() => return Err(error),
            // Tokens that have no such hash say so in many ways.
            Err(error) => why = Some(error),
        }
    }
    let why = why.map_or_else(String::new, |error| format!(": {error}"));
    Err(Error::token(
        Kind::Unproved,
        format!(
            "{}: the transport key {private} did not unwrap its challenge{why}",
            access.name
        ),
    ))
}

fn unwraps_a_challenge(
    access: TokenAccess,
    private: ObjectId,
    public: &PublicKey,
    hash: u64,
) -> Result<bool> {
    let challenge = crate::random::<32>()?;
    // If the token computes no HMAC, the challenge is read in the clear.
    let macs = access.offers(CKM_SHA256_HMAC, CKF_SIGN);
    let template = Attributes::default()
        .with_number(CKA_CLASS, CKO_SECRET_KEY)
        .with_number(CKA_KEY_TYPE, CKK_GENERIC_SECRET)
        .with_flag(CKA_TOKEN, false)
        .with_flag(CKA_SENSITIVE, macs)
        .with_flag(CKA_EXTRACTABLE, !macs);
    let template = if macs {
        template.with_flag(CKA_SIGN, true)
    } else {
        template
    };
    let key = access.make_session(&Operation::Unwrap {
        unwrapping: private.into(),
        mechanism: oaep(hash),
        wrapped: public.encrypt(&oaep(hash), &challenge)?.into(),
        template,
    })?;
    if !macs {
        let object = key.reference();
        let read = access.make(&Operation::Read { object })?;
        return Ok(read.object.attributes.get(CKA_VALUE) == Some(&challenge));
    }
    let hmac = Mechanism::plain(CKM_SHA256_HMAC);
    let tag = access.with_key(Verb::Sign, key.reference(), hmac, PROOF.to_vec())?;
    let mut expected = Hmac::<Sha256>::new_from_slice(&challenge).expect("any length will do");
    expected.update(PROOF);
    Ok(expected.verify_slice(&tag).is_ok())
}

pub(super) fn label(serial: &str) -> String {
    format!("{TRANSPORT_LABEL}{serial}")
}
