//! Names of OpenSSL (openssl/core_names.h), and their PKCS#11 counterparts.

use std::ffi::CStr;

use hsmux_token::Hash;

/// The provider's own name.
pub const PROVIDER: &CStr = c"hsmux";

/// The data type that a DER decoder passes on between PEM and the key.
pub const STRUCTURE: &CStr = c"hsmux-reference";

/// OSSL_PKEY_PARAM_*: what a key says of itself.
pub const BITS: &CStr = c"bits";
/// How hard it is to break.
pub const SECURITY_BITS: &CStr = c"security-bits";
/// The longest signature, in bytes.
pub const MAX_SIZE: &CStr = c"max-size";
/// The digest if the program names none.
pub const DEFAULT_DIGEST: &CStr = c"default-digest";
/// RSA's modulus.
pub const MODULUS: &CStr = c"n";
/// RSA's exponent.
pub const EXPONENT: &CStr = c"e";
/// Private values: RSA's exponent, the number on a curve.
pub const PRIVATE: [&CStr; 2] = [c"d", c"priv"];
/// The curve.
pub const GROUP: &CStr = c"group";
/// The point.
pub const POINT: &CStr = c"pub";
/// The point as TLS writes it.
pub const ENCODED_POINT: &CStr = c"encoded-pub-key";
/// The form of the point.
pub const POINT_FORMAT: &CStr = c"point-format";

/// OSSL_SIGNATURE_PARAM_*, OSSL_ASYM_CIPHER_PARAM_*: how is to be signed or enciphered.
pub const DIGEST: &CStr = c"digest";
/// RSA's padding.
pub const PAD_MODE: &CStr = c"pad-mode";
/// Bytes of salt in PSS.
pub const SALT: &CStr = c"saltlen";
/// The digest of the mask of PSS and OAEP.
pub const MGF1_DIGEST: &CStr = c"mgf1-digest";
/// OAEP's label.
pub const OAEP_LABEL: &CStr = c"oaep-label";
/// The DER of the AlgorithmIdentifier.
pub const ALGORITHM_ID: &CStr = c"algorithm-id";

/// OpenSSL's names of a digest, the usual one first (EVP_MD-SHA2(7)).
#[rustfmt::skip]
const HASHES: &[(Hash, &[&str])] = &[
    (Hash::Sha256, &["SHA256", "SHA2-256", "SHA-256"]),
    (Hash::Sha384, &["SHA384", "SHA2-384", "SHA-384"]),
    (Hash::Sha512, &["SHA512", "SHA2-512", "SHA-512"]),
    (Hash::Sha224, &["SHA224", "SHA2-224", "SHA-224"]),
    (Hash::Sha1, &["SHA1", "SHA-1", "SSL3-SHA1"]),
    (Hash::Sha3_224, &["SHA3-224"]),
    (Hash::Sha3_256, &["SHA3-256"]),
    (Hash::Sha3_384, &["SHA3-384"]),
    (Hash::Sha3_512, &["SHA3-512"]),
];

/// OpenSSL's names of curves that it has by others than [`hsmux_software::PublicKey::curve`].
const CURVES: &[(&str, &str)] = &[
    ("P-256", "prime256v1"),
    ("P-384", "secp384r1"),
    ("P-521", "secp521r1"),
    ("P-224", "secp224r1"),
    ("P-192", "prime192v1"),
];

/// The digest of a name.
pub fn hash(name: &str) -> Option<Hash> {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    let row = HASHES.iter().find(|row| row.1.iter().any(is))?;
    Some(row.0)
}

/// The name of a digest.
pub fn of_hash(hash: Hash) -> Option<&'static str> {
    let row = HASHES.iter().find(|row| row.0 == hash)?;
    Some(row.1[0])
}

/// OpenSSL's name of a curve.
pub fn of_curve(curve: &'static str) -> &'static str {
    let row = CURVES.iter().find(|row| row.0 == curve);
    row.map_or(curve, |row| row.1)
}
