//! Keys of the simulation: they are checked by the same code as real ones, and cost nothing.
//!
//! The primes p of a modulus are such that p - 1 divides [`ORDER`]. So a private operation with the exponent 1 undoes
//! the public one with `ORDER + 1`.

use std::sync::OnceLock;

use hsmux_software::PublicKey;
use hsmux_token::{Attributes, Class, Mechanism, Object, ObjectId, ck};

const ORDER: u64 = 720_720;

/// The number of private keys.
pub(super) const PRIVATE: usize = 4;

/// The number of the secret key, after the private ones.
pub(super) const SECRET: usize = PRIVATE;

/// The objects of all keys.
pub(super) fn objects() -> &'static [Object; PRIVATE + 1] {
    static OBJECTS: OnceLock<[Object; PRIVATE + 1]> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        std::array::from_fn(|number| {
            if number == SECRET {
                secret()
            } else {
                private(number)
            }
        })
    })
}

pub(super) fn id(number: usize) -> ObjectId {
    objects()[number].id
}

pub(super) fn number(id: &ObjectId) -> Option<usize> {
    objects().iter().position(|object| object.id == *id)
}

/// How a key is used. Its other uses are forbidden.
pub(super) fn mechanism(number: usize) -> Mechanism {
    Mechanism::plain(if number == SECRET {
        ck::CKM_AES_ECB
    } else {
        ck::CKM_RSA_PKCS
    })
}

fn private(number: usize) -> Object {
    let attributes = Attributes::default()
        .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
        .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
        .with(ck::CKA_MODULUS, modulus(number))
        .with(
            ck::CKA_PUBLIC_EXPONENT,
            (ORDER + 1).to_be_bytes()[5..].to_vec(),
        );
    let public = PublicKey::from_attributes(&attributes).expect("a sound key");
    let attributes = public
        .to_attributes()
        .with_number(ck::CKA_CLASS, ck::CKO_PRIVATE_KEY)
        .with(ck::CKA_LABEL, format!("key {number}"))
        .with_flag(ck::CKA_SIGN, true)
        .with_flag(ck::CKA_DECRYPT, true);
    Object {
        id: ObjectId::of_public_key(Class::PRIVATE_KEY, public.spki()),
        attributes,
    }
}

fn secret() -> Object {
    Object {
        id: ObjectId::of_secret_key(ck::CKK_AES, b"secret", b"kcv"),
        attributes: Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_SECRET_KEY)
            .with_number(ck::CKA_KEY_TYPE, ck::CKK_AES)
            .with(ck::CKA_LABEL, "secret"),
    }
}

/// A modulus of 512 bits or a few more, another one for each number.
fn modulus(number: usize) -> Vec<u8> {
    let is_prime = |p: u64| (3..=p.isqrt()).all(|d| !p.is_multiple_of(d));
    let divisors = (2..=ORDER).filter(|d| ORDER.is_multiple_of(*d));
    let mut primes: Vec<u64> = divisors.map(|d| d + 1).filter(|p| p % 2 == 1).collect();
    primes.retain(|p| is_prime(*p));
    primes.rotate_right(number * 5);
    // The least significant byte comes first.
    let mut product = vec![1_u8];
    for prime in primes.into_iter().rev() {
        if product.len() >= 65 {
            break;
        }
        let mut carry = 0;
        for byte in &mut product {
            carry += u64::from(*byte) * prime;
            *byte = carry as u8;
            carry >>= 8;
        }
        while carry > 0 {
            product.push(carry as u8);
            carry >>= 8;
        }
    }
    product.reverse();
    product
}

/// What the key answers to a use.
pub(super) fn answer(number: usize, verb: hsmux_token::Verb, data: &[u8]) -> Vec<u8> {
    if number == SECRET {
        return data.iter().map(|byte| byte ^ 0x5a).collect();
    }
    if verb == hsmux_token::Verb::Decrypt {
        return data[..8].to_vec();
    }
    let modulus = objects()[number].attributes.get(ck::CKA_MODULUS);
    let len = modulus.map_or(0, <[u8]>::len);
    let mut block = vec![0xff; len];
    block[..2].copy_from_slice(&[0, 1]);
    let at = len - data.len();
    block[at - 1] = 0;
    block[at..].copy_from_slice(data);
    block
}
