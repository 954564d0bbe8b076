//! The objects of a token: the public side of its keys.

use hsmux_token::Attributes;
use hsmux_token::ck::*;

use crate::keys::{Aes, Ec, MlDsa, Rsa};

/// One object.
pub struct Thing {
    /// CK_OBJECT_HANDLE: the same in every token.
    pub handle: CK_OBJECT_HANDLE,
    /// `rsa`, `ec`, `aes`, `ml-dsa` or `ml-dsa-twin`.
    pub name: &'static str,
    /// All its attributes.
    pub attributes: Attributes,
}

/// Handles of usable keys.
pub const RSA: CK_OBJECT_HANDLE = 2;
pub const EC: CK_OBJECT_HANDLE = 4;
pub const AES: CK_OBJECT_HANDLE = 5;
pub const ML_DSA_PUBLIC: CK_OBJECT_HANDLE = 6;
pub const ML_DSA: CK_OBJECT_HANDLE = 7;

/// DER of the object identifier of P-256.
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// The objects of these keys.
pub fn all(rsa: &Rsa, ec: &Ec, aes: &Aes, ml_dsa: &MlDsa) -> Vec<Thing> {
    let rsa_public = |class| {
        key(class, CKK_RSA, 1, "rsa")
            .with(CKA_MODULUS, rsa.modulus())
            .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1])
    };
    let ml_dsa_public =
        |class| key(class, CKK_ML_DSA, 4, "ml-dsa").with_number(CKA_PARAMETER_SET, CKP_ML_DSA_65);
    let ec_public = |class| key(class, CKK_EC, 2, "ec").with(CKA_EC_PARAMS, P256);
    let point = [&[0x04, 65][..], &ec.point()].concat();
    let rsa_uses = [CKA_SIGN, CKA_DECRYPT];
    let aes_uses = [CKA_ENCRYPT, CKA_DECRYPT];
    let things = [
        (
            "rsa",
            uses(rsa_public(CKO_PUBLIC_KEY), &[CKA_VERIFY, CKA_ENCRYPT])
                .with_number(CKA_MODULUS_BITS, 2048),
        ),
        ("rsa", uses(kept(rsa_public(CKO_PRIVATE_KEY)), &rsa_uses)),
        (
            "ec",
            uses(ec_public(CKO_PUBLIC_KEY), &[CKA_VERIFY]).with(CKA_EC_POINT, point),
        ),
        ("ec", uses(kept(ec_public(CKO_PRIVATE_KEY)), &[CKA_SIGN])),
        (
            "aes",
            uses(kept(key(CKO_SECRET_KEY, CKK_AES, 3, "aes")), &aes_uses)
                .with_number(CKA_VALUE_LEN, 32)
                .with(CKA_CHECK_VALUE, aes.check_value().to_vec()),
        ),
        (
            "ml-dsa",
            uses(ml_dsa_public(CKO_PUBLIC_KEY), &[CKA_VERIFY]).with(CKA_VALUE, ml_dsa.public()),
        ),
        (
            "ml-dsa",
            uses(kept(ml_dsa_public(CKO_PRIVATE_KEY)), &[CKA_SIGN]),
        ),
        (
            "ml-dsa-twin",
            uses(kept(ml_dsa_public(CKO_PRIVATE_KEY)), &[CKA_SIGN]),
        ),
    ];
    let numbered = (1..).zip(things);
    numbered
        .map(|(handle, (name, attributes))| Thing {
            handle,
            name,
            attributes,
        })
        .collect()
}

fn key(class: u64, key_type: u64, id: u8, label: &'static str) -> Attributes {
    Attributes::default()
        .with_number(CKA_CLASS, class)
        .with_flag(CKA_TOKEN, true)
        .with_flag(CKA_PRIVATE, class != CKO_PUBLIC_KEY)
        .with_flag(CKA_MODIFIABLE, false)
        .with(CKA_LABEL, label)
        .with_number(CKA_KEY_TYPE, key_type)
        .with(CKA_ID, vec![id])
        .with_flag(CKA_LOCAL, true)
}

fn kept(key: Attributes) -> Attributes {
    key.with_flag(CKA_SENSITIVE, true)
        .with_flag(CKA_EXTRACTABLE, false)
        .with_flag(CKA_ALWAYS_SENSITIVE, true)
        .with_flag(CKA_NEVER_EXTRACTABLE, true)
}

fn uses(key: Attributes, uses: &[u64]) -> Attributes {
    uses.iter()
        .fold(key, |key, usage| key.with_flag(*usage, true))
}
