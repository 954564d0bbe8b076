//! The one table of mechanisms: name, key, uses, and how data may be hashed on the host.

use crate::Hash;
#[allow(
    clippy::wildcard_imports,
    reason = "a table of the standard's constants"
)]
use crate::ck::*;
use std::borrow::Cow;

bitflags::bitflags! {
    /// What a mechanism, or a key, may be used for; with the values of CK_MECHANISM_INFO's flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Uses: u64 {
        /// CKF_ENCRYPT, CKA_ENCRYPT.
        const ENCRYPT = CKF_ENCRYPT;
        /// CKF_DECRYPT, CKA_DECRYPT.
        const DECRYPT = CKF_DECRYPT;
        /// CKF_DIGEST.
        const DIGEST = CKF_DIGEST;
        /// CKF_SIGN, CKA_SIGN.
        const SIGN = CKF_SIGN;
        /// CKF_SIGN_RECOVER, CKA_SIGN_RECOVER.
        const SIGN_RECOVER = CKF_SIGN_RECOVER;
        /// CKF_VERIFY, CKA_VERIFY.
        const VERIFY = CKF_VERIFY;
        /// CKF_GENERATE.
        const GENERATE = CKF_GENERATE;
        /// CKF_GENERATE_KEY_PAIR.
        const GENERATE_PAIR = CKF_GENERATE_KEY_PAIR;
        /// CKF_WRAP, CKA_WRAP.
        const WRAP = CKF_WRAP;
        /// CKF_UNWRAP, CKA_UNWRAP.
        const UNWRAP = CKF_UNWRAP;
        /// CKF_DERIVE, CKA_DERIVE.
        const DERIVE = CKF_DERIVE;
    }
}

impl Uses {
    /// Sign and verify.
    pub const SIGNS: Self = Self::SIGN.union(Self::VERIFY);
    /// Encrypt and decrypt.
    pub const CIPHERS: Self = Self::ENCRYPT.union(Self::DECRYPT);
    /// Make keys.
    pub const MAKES: Self = Self::GENERATE.union(Self::GENERATE_PAIR);
    /// Wrap and unwrap.
    pub const WRAPS: Self = Self::WRAP.union(Self::UNWRAP);
}

/// The family of keys that a mechanism works with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyKind {
    /// None: a digest, a generator of something else.
    None,
    /// CKK_RSA.
    Rsa,
    /// CKK_EC.
    Ec,
    /// CKK_EC_EDWARDS.
    Edwards,
    /// CKK_EC_MONTGOMERY.
    Montgomery,
    /// CKK_ML_DSA.
    MlDsa,
    /// CKK_SLH_DSA.
    SlhDsa,
    /// CKK_DSA.
    Dsa,
    /// CKK_DH.
    Dh,
    /// CKK_AES.
    Aes,
    /// CKK_DES.
    Des,
    /// CKK_DES2 and CKK_DES3.
    Des3,
    /// CKK_GENERIC_SECRET and the CKK_*_HMAC kinds.
    Generic,
}

impl KeyKind {
    /// The family of a `CKK_*`.
    pub const fn of(key_type: u64) -> Self {
        match key_type {
            CKK_RSA => Self::Rsa,
            CKK_EC => Self::Ec,
            CKK_EC_EDWARDS => Self::Edwards,
            CKK_EC_MONTGOMERY => Self::Montgomery,
            CKK_ML_DSA => Self::MlDsa,
            CKK_SLH_DSA => Self::SlhDsa,
            CKK_AES => Self::Aes,
            CKK_DSA => Self::Dsa,
            CKK_DH => Self::Dh,
            CKK_DES => Self::Des,
            CKK_DES2 | CKK_DES3 => Self::Des3,
            CKK_GENERIC_SECRET | CKK_MD5_HMAC | CKK_SHA_1_HMAC | CKK_SHA224_HMAC
            | CKK_SHA256_HMAC | CKK_SHA384_HMAC | CKK_SHA512_HMAC => Self::Generic,
            _ => Self::None,
        }
    }

    /// For people: the name of the family's first type.
    pub fn name(self) -> &'static str {
        let of_family = |row: &&(u64, &str)| Self::of(row.0) == self;
        KEY_TYPES.iter().find(of_family).map_or("none", |row| row.1)
    }

    /// How a block is enciphered by a secret key of the family.
    pub const fn block_cipher(self) -> Option<BlockCipher> {
        let (ecb, cbc, len) = match self {
            Self::Aes => (CKM_AES_ECB, CKM_AES_CBC, 16),
            Self::Des => (CKM_DES_ECB, CKM_DES_CBC, 8),
            Self::Des3 => (CKM_DES3_ECB, CKM_DES3_CBC, 8),
            _ => return None,
        };
        Some(BlockCipher { ecb, cbc, len })
    }
}

/// The mechanisms of a block cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockCipher {
    /// Each block by itself.
    pub ecb: u64,
    /// Blocks that depend on those before; its parameter is the IV.
    pub cbc: u64,
    /// Bytes of a block, and of the IV.
    pub len: usize,
}

/// The name of a key type (`CKK_*`), for people; the number of one that hsmux does not know.
pub fn key_type_name(key_type: u64) -> Cow<'static, str> {
    let known = KEY_TYPES.iter().find(|(number, _)| *number == key_type);
    known.map_or_else(
        || format!("0x{key_type:x}").into(),
        |(_, name)| (*name).into(),
    )
}

const KEY_TYPES: &[(u64, &str)] = &[
    (CKK_RSA, "RSA"),
    (CKK_EC, "EC"),
    (CKK_EC_EDWARDS, "Edwards"),
    (CKK_EC_MONTGOMERY, "Montgomery"),
    (CKK_ML_DSA, "ML-DSA"),
    (CKK_SLH_DSA, "SLH-DSA"),
    (CKK_AES, "AES"),
    (CKK_DES, "DES"),
    (CKK_DES2, "DES2"),
    (CKK_DES3, "DES3"),
    (CKK_DSA, "DSA"),
    (CKK_DH, "DH"),
    (CKK_GENERIC_SECRET, "generic"),
    (CKK_MD5_HMAC, "HMAC-MD5"),
    (CKK_SHA_1_HMAC, "HMAC-SHA-1"),
    (CKK_SHA224_HMAC, "HMAC-SHA-224"),
    (CKK_SHA256_HMAC, "HMAC-SHA-256"),
    (CKK_SHA384_HMAC, "HMAC-SHA-384"),
    (CKK_SHA512_HMAC, "HMAC-SHA-512"),
];

/// A mechanism that hashes, and the one that takes the hash: data of any length is hashed on the
/// host, and only the hash travels to the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prehash {
    /// What hashes.
    pub hash: Hash,
    /// What takes the hash; CKM_RSA_PKCS takes it inside a DigestInfo.
    pub raw: u64,
}

/// What hsmux knows of a mechanism.
#[derive(Clone, Copy, Debug)]
pub struct MechanismEntry {
    /// `CKM_*`.
    pub kind: u64,
    /// Its name in the standard.
    pub name: &'static str,
    /// What keys it works with.
    pub key: KeyKind,
    /// What it can be used for.
    pub uses: Uses,
    /// How data may be hashed before.
    pub prehash: Option<Prehash>,
}

/// Every mechanism that hsmux knows.
pub fn entries() -> &'static [MechanismEntry] {
    TABLE
}

/// The entry of a `CKM_*`.
pub fn entry(kind: u64) -> Option<&'static MechanismEntry> {
    // Sixty numbers in one cache-friendly array: faster than hashing.
    TABLE.iter().find(|entry| entry.kind == kind)
}

/// The entry of a name, with or without `CKM_`, in any case: `ecdsa`, `CKM_SHA256_RSA_PKCS`.
pub fn entry_by_name(name: &str) -> Option<&'static MechanismEntry> {
    let wanted = name.to_ascii_uppercase().replace('-', "_");
    let wanted = wanted.strip_prefix("CKM_").unwrap_or(&wanted);
    TABLE.iter().find(|entry| &entry.name[4..] == wanted)
}

macro_rules! table {
    ($($kind:ident $key:ident [$($uses:ident)*] $($hash:ident => $raw:ident)?;)*) => {
        static TABLE: &[MechanismEntry] = &[$(MechanismEntry {
            kind: $kind,
            name: stringify!($kind),
            key: KeyKind::$key,
            uses: Uses::empty()$(.union(Uses::$uses))*,
            prehash: table!(@prehash $($hash $raw)?),
        },)*];
    };
    (@prehash $hash:ident $raw:ident) => { Some(Prehash { hash: Hash::$hash, raw: $raw }) };
    (@prehash) => { None };
}

table! {
    CKM_RSA_PKCS_KEY_PAIR_GEN Rsa [GENERATE_PAIR];
    CKM_RSA_PKCS Rsa [SIGNS SIGN_RECOVER CIPHERS WRAPS];
    CKM_RSA_X_509 Rsa [SIGNS SIGN_RECOVER CIPHERS WRAPS];
    CKM_RSA_PKCS_OAEP Rsa [CIPHERS WRAPS];
    CKM_RSA_PKCS_PSS Rsa [SIGNS];
    CKM_MD5_RSA_PKCS Rsa [SIGNS] Md5 => CKM_RSA_PKCS;
    CKM_SHA1_RSA_PKCS Rsa [SIGNS] Sha1 => CKM_RSA_PKCS;
    CKM_SHA224_RSA_PKCS Rsa [SIGNS] Sha224 => CKM_RSA_PKCS;
    CKM_SHA256_RSA_PKCS Rsa [SIGNS] Sha256 => CKM_RSA_PKCS;
    CKM_SHA384_RSA_PKCS Rsa [SIGNS] Sha384 => CKM_RSA_PKCS;
    CKM_SHA512_RSA_PKCS Rsa [SIGNS] Sha512 => CKM_RSA_PKCS;
    CKM_SHA3_224_RSA_PKCS Rsa [SIGNS] Sha3_224 => CKM_RSA_PKCS;
    CKM_SHA3_256_RSA_PKCS Rsa [SIGNS] Sha3_256 => CKM_RSA_PKCS;
    CKM_SHA3_384_RSA_PKCS Rsa [SIGNS] Sha3_384 => CKM_RSA_PKCS;
    CKM_SHA3_512_RSA_PKCS Rsa [SIGNS] Sha3_512 => CKM_RSA_PKCS;
    CKM_SHA1_RSA_PKCS_PSS Rsa [SIGNS] Sha1 => CKM_RSA_PKCS_PSS;
    CKM_SHA224_RSA_PKCS_PSS Rsa [SIGNS] Sha224 => CKM_RSA_PKCS_PSS;
    CKM_SHA256_RSA_PKCS_PSS Rsa [SIGNS] Sha256 => CKM_RSA_PKCS_PSS;
    CKM_SHA384_RSA_PKCS_PSS Rsa [SIGNS] Sha384 => CKM_RSA_PKCS_PSS;
    CKM_SHA512_RSA_PKCS_PSS Rsa [SIGNS] Sha512 => CKM_RSA_PKCS_PSS;
    CKM_EC_KEY_PAIR_GEN Ec [GENERATE_PAIR];
    CKM_ECDSA Ec [SIGNS];
    CKM_ECDSA_SHA1 Ec [SIGNS] Sha1 => CKM_ECDSA;
    CKM_ECDSA_SHA224 Ec [SIGNS] Sha224 => CKM_ECDSA;
    CKM_ECDSA_SHA256 Ec [SIGNS] Sha256 => CKM_ECDSA;
    CKM_ECDSA_SHA384 Ec [SIGNS] Sha384 => CKM_ECDSA;
    CKM_ECDSA_SHA512 Ec [SIGNS] Sha512 => CKM_ECDSA;
    CKM_ECDSA_SHA3_224 Ec [SIGNS] Sha3_224 => CKM_ECDSA;
    CKM_ECDSA_SHA3_256 Ec [SIGNS] Sha3_256 => CKM_ECDSA;
    CKM_ECDSA_SHA3_384 Ec [SIGNS] Sha3_384 => CKM_ECDSA;
    CKM_ECDSA_SHA3_512 Ec [SIGNS] Sha3_512 => CKM_ECDSA;
    CKM_ECDH1_DERIVE Ec [DERIVE];
    CKM_ECDH1_COFACTOR_DERIVE Ec [DERIVE];
    CKM_EC_EDWARDS_KEY_PAIR_GEN Edwards [GENERATE_PAIR];
    CKM_EDDSA Edwards [SIGNS];
    CKM_EC_MONTGOMERY_KEY_PAIR_GEN Montgomery [GENERATE_PAIR];
    CKM_ML_DSA_KEY_PAIR_GEN MlDsa [GENERATE_PAIR];
    CKM_ML_DSA MlDsa [SIGNS];
    CKM_SLH_DSA_KEY_PAIR_GEN SlhDsa [GENERATE_PAIR];
    CKM_SLH_DSA SlhDsa [SIGNS];
    CKM_DSA_PARAMETER_GEN Dsa [GENERATE];
    CKM_DSA_KEY_PAIR_GEN Dsa [GENERATE_PAIR];
    CKM_DSA Dsa [SIGNS];
    CKM_DSA_SHA1 Dsa [SIGNS] Sha1 => CKM_DSA;
    CKM_DSA_SHA224 Dsa [SIGNS] Sha224 => CKM_DSA;
    CKM_DSA_SHA256 Dsa [SIGNS] Sha256 => CKM_DSA;
    CKM_DSA_SHA384 Dsa [SIGNS] Sha384 => CKM_DSA;
    CKM_DSA_SHA512 Dsa [SIGNS] Sha512 => CKM_DSA;
    CKM_DH_PKCS_PARAMETER_GEN Dh [GENERATE];
    CKM_DH_PKCS_KEY_PAIR_GEN Dh [GENERATE_PAIR];
    CKM_DH_PKCS_DERIVE Dh [DERIVE];
    CKM_AES_KEY_GEN Aes [GENERATE];
    CKM_AES_ECB Aes [CIPHERS WRAPS];
    CKM_AES_CBC Aes [CIPHERS WRAPS];
    CKM_AES_CBC_PAD Aes [CIPHERS WRAPS];
    CKM_AES_CTR Aes [CIPHERS];
    CKM_AES_GCM Aes [CIPHERS];
    CKM_AES_CMAC Aes [SIGNS];
    CKM_AES_CMAC_GENERAL Aes [SIGNS];
    CKM_AES_MAC Aes [SIGNS];
    CKM_AES_KEY_WRAP Aes [WRAPS];
    CKM_AES_KEY_WRAP_PAD Aes [WRAPS];
    CKM_AES_KEY_WRAP_KWP Aes [WRAPS];
    CKM_AES_ECB_ENCRYPT_DATA Aes [DERIVE];
    CKM_AES_CBC_ENCRYPT_DATA Aes [DERIVE];
    CKM_DES_KEY_GEN Des [GENERATE];
    CKM_DES_ECB Des [CIPHERS];
    CKM_DES_CBC Des [CIPHERS];
    CKM_DES_CBC_PAD Des [CIPHERS];
    CKM_DES_ECB_ENCRYPT_DATA Des [DERIVE];
    CKM_DES_CBC_ENCRYPT_DATA Des [DERIVE];
    CKM_DES2_KEY_GEN Des3 [GENERATE];
    CKM_DES3_KEY_GEN Des3 [GENERATE];
    CKM_DES3_ECB Des3 [CIPHERS];
    CKM_DES3_CBC Des3 [CIPHERS];
    CKM_DES3_CBC_PAD Des3 [CIPHERS];
    CKM_DES3_CMAC Des3 [SIGNS];
    CKM_DES3_ECB_ENCRYPT_DATA Des3 [DERIVE];
    CKM_DES3_CBC_ENCRYPT_DATA Des3 [DERIVE];
    CKM_GENERIC_SECRET_KEY_GEN Generic [GENERATE];
    CKM_MD5_HMAC Generic [SIGNS];
    CKM_SHA_1_HMAC Generic [SIGNS];
    CKM_SHA224_HMAC Generic [SIGNS];
    CKM_SHA256_HMAC Generic [SIGNS];
    CKM_SHA384_HMAC Generic [SIGNS];
    CKM_SHA512_HMAC Generic [SIGNS];
    CKM_SHA3_224_HMAC Generic [SIGNS];
    CKM_SHA3_256_HMAC Generic [SIGNS];
    CKM_SHA3_384_HMAC Generic [SIGNS];
    CKM_SHA3_512_HMAC Generic [SIGNS];
    CKM_MD5 None [DIGEST];
    CKM_SHA_1 None [DIGEST];
    CKM_SHA224 None [DIGEST];
    CKM_SHA256 None [DIGEST];
    CKM_SHA384 None [DIGEST];
    CKM_SHA512 None [DIGEST];
    CKM_SHA3_224 None [DIGEST];
    CKM_SHA3_256 None [DIGEST];
    CKM_SHA3_384 None [DIGEST];
    CKM_SHA3_512 None [DIGEST];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mechanism_stands_once_and_its_raw_form_is_there() {
        for (at, entry) in TABLE.iter().enumerate() {
            assert!(
                !TABLE[..at].iter().any(|other| other.kind == entry.kind),
                "{}",
                entry.name
            );
            if let Some(prehash) = entry.prehash {
                assert_eq!(super::entry(prehash.raw).unwrap().key, entry.key);
            }
        }
        assert_eq!(
            entry_by_name("ecdsa-sha256").unwrap().kind,
            CKM_ECDSA_SHA256
        );
    }
}
