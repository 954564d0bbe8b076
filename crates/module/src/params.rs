//! Mechanisms as C structures.
//! A module gets a parameter only in the mechanism's own form: bytes of a peer never become a structure with pointers.

use hsmux_token::ck::*;
use hsmux_token::{Error, Mechanism, Params, Result};
use smallvec::SmallVec;

/// Calls `call` with the mechanism as CK_MECHANISM, which is valid only during the call.
pub(crate) fn with_raw<R>(
    mechanism: &Mechanism,
    call: impl FnOnce(&mut CK_MECHANISM) -> R,
) -> Result<R> {
    if !fits(mechanism) {
        return Err(invalid(mechanism));
    }
    let kind = mechanism.kind;
    Ok(match &mechanism.params {
        Params::None => call(&mut CK_MECHANISM {
            mechanism: kind,
            pParameter: std::ptr::null_mut(),
            ulParameterLen: 0,
        }),
        Params::Bytes(bytes) => call(&mut CK_MECHANISM {
            mechanism: kind,
            pParameter: bytes.as_ptr().cast_mut().cast(),
            ulParameterLen: bytes.len() as u64,
        }),
        Params::Number(number) => with(kind, *number, call),
        Params::Pss(pss) => with(
            kind,
            CK_RSA_PKCS_PSS_PARAMS {
                hashAlg: pss.hash,
                mgf: pss.mgf,
                sLen: pss.salt,
            },
            call,
        ),
        Params::Oaep(oaep) => {
            let (place, len) = optional(&oaep.label);
            let raw = CK_RSA_PKCS_OAEP_PARAMS {
                hashAlg: oaep.hash,
                mgf: oaep.mgf,
                source: CKZ_DATA_SPECIFIED,
                pSourceData: place.cast(),
                ulSourceDataLen: len,
            };
            with(kind, raw, call)
        }
        Params::Gcm(gcm) => {
            // A copy, because some modules write the IV that they chose.
            let mut iv = SmallVec::<[u8; 16]>::from_slice(&gcm.iv);
            let (aad, aad_len) = optional(&gcm.aad);
            let raw = CK_GCM_PARAMS {
                pIv: iv.as_mut_ptr(),
                ulIvLen: iv.len() as u64,
                ulIvBits: iv.len() as u64 * 8,
                pAAD: aad,
                ulAADLen: aad_len,
                ulTagBits: gcm.tag_bits,
            };
            with(kind, raw, call)
        }
        Params::Ctr { bits, block } => {
            let raw = CK_AES_CTR_PARAMS {
                ulCounterBits: *bits,
                cb: block_of(mechanism, block)?,
            };
            with(kind, raw, call)
        }
        Params::Ecdh {
            kdf,
            shared,
            public,
        } => {
            let (shared, shared_len) = optional(shared);
            let (public, public_len) = optional(public);
            let raw = CK_ECDH1_DERIVE_PARAMS {
                kdf: *kdf,
                ulSharedDataLen: shared_len,
                pSharedData: shared,
                ulPublicDataLen: public_len,
                pPublicData: public,
            };
            with(kind, raw, call)
        }
        Params::CbcData { iv, data } => with_cbc_data(mechanism, iv, data, call)?,
        Params::StringData(data) => {
            let (data, len) = optional(data);
            let raw = CK_KEY_DERIVATION_STRING_DATA {
                pData: data,
                ulLen: len,
            };
            with(kind, raw, call)
        }
        Params::Eddsa { prehash, context } => {
            let (context, len) = optional(context);
            let raw = CK_EDDSA_PARAMS {
                phFlag: CK_BBOOL::from(*prehash),
                ulContextDataLen: len,
                pContextData: context,
            };
            with(kind, raw, call)
        }
    })
}

fn with<P, R>(kind: u64, mut params: P, call: impl FnOnce(&mut CK_MECHANISM) -> R) -> R {
    call(&mut CK_MECHANISM {
        mechanism: kind,
        pParameter: (&raw mut params).cast(),
        ulParameterLen: size_of::<P>() as u64,
    })
}

/// The structures of AES and DES differ only in the length of the IV.
fn with_cbc_data<R>(
    mechanism: &Mechanism,
    iv: &[u8],
    data: &[u8],
    call: impl FnOnce(&mut CK_MECHANISM) -> R,
) -> Result<R> {
    let (data, length) = optional(data);
    if mechanism.kind == CKM_AES_CBC_ENCRYPT_DATA {
        let iv = block_of(mechanism, iv)?;
        let raw = CK_AES_CBC_ENCRYPT_DATA_PARAMS {
            iv,
            pData: data,
            length,
        };
        return Ok(with(mechanism.kind, raw, call));
    }
    let iv = block_of(mechanism, iv)?;
    let raw = CK_DES_CBC_ENCRYPT_DATA_PARAMS {
        iv,
        pData: data,
        length,
    };
    Ok(with(mechanism.kind, raw, call))
}

/// An empty input is a null pointer: modules compare with that.
fn optional(bytes: &[u8]) -> (*mut u8, u64) {
    match bytes {
        [] => (std::ptr::null_mut(), 0),
        bytes => (bytes.as_ptr().cast_mut(), bytes.len() as u64),
    }
}

fn block_of<const N: usize>(mechanism: &Mechanism, block: &[u8]) -> Result<[u8; N]> {
    block.try_into().map_err(|_| invalid(mechanism))
}

fn invalid(mechanism: &Mechanism) -> Error {
    Error::vendor(&mechanism.name(), CKR_MECHANISM_PARAM_INVALID)
}

/// Whether the mechanism takes a parameter of this form.
fn fits(mechanism: &Mechanism) -> bool {
    let kinds: &[u64] = match mechanism.params {
        Params::None => return true,
        Params::Bytes(_) => BYTES,
        Params::Number(_) => NUMBER,
        Params::Pss(_) => PSS,
        Params::Oaep(_) => &[CKM_RSA_PKCS_OAEP],
        Params::Gcm(_) => &[CKM_AES_GCM, CKM_AES_GMAC],
        Params::Ctr { .. } => &[CKM_AES_CTR],
        Params::Ecdh { .. } => &[CKM_ECDH1_DERIVE, CKM_ECDH1_COFACTOR_DERIVE],
        Params::CbcData { .. } => &[
            CKM_AES_CBC_ENCRYPT_DATA,
            CKM_DES_CBC_ENCRYPT_DATA,
            CKM_DES3_CBC_ENCRYPT_DATA,
        ],
        Params::StringData(_) => STRING_DATA,
        Params::Eddsa { .. } => &[CKM_EDDSA],
    };
    kinds.contains(&mechanism.kind)
}

/// Mechanisms whose parameter is an IV or the peer's public value.
const BYTES: &[u64] = &[
    CKM_AES_CBC,
    CKM_AES_CBC_PAD,
    CKM_AES_OFB,
    CKM_AES_CFB8,
    CKM_AES_CFB64,
    CKM_AES_CFB128,
    CKM_AES_GMAC,
    CKM_AES_KEY_WRAP,
    CKM_AES_KEY_WRAP_PAD,
    CKM_AES_KEY_WRAP_KWP,
    CKM_DES_CBC,
    CKM_DES_CBC_PAD,
    CKM_DES3_CBC,
    CKM_DES3_CBC_PAD,
    CKM_CAMELLIA_CBC,
    CKM_CAMELLIA_CBC_PAD,
    CKM_DH_PKCS_DERIVE,
];

/// Mechanisms whose parameter is CK_MAC_GENERAL_PARAMS.
const NUMBER: &[u64] = &[
    CKM_AES_MAC_GENERAL,
    CKM_AES_CMAC_GENERAL,
    CKM_DES3_MAC_GENERAL,
    CKM_DES3_CMAC_GENERAL,
    CKM_MD5_HMAC_GENERAL,
    CKM_SHA_1_HMAC_GENERAL,
    CKM_SHA224_HMAC_GENERAL,
    CKM_SHA256_HMAC_GENERAL,
    CKM_SHA384_HMAC_GENERAL,
    CKM_SHA512_HMAC_GENERAL,
];

/// Mechanisms whose parameter is CK_RSA_PKCS_PSS_PARAMS.
const PSS: &[u64] = &[
    CKM_RSA_PKCS_PSS,
    CKM_SHA1_RSA_PKCS_PSS,
    CKM_SHA224_RSA_PKCS_PSS,
    CKM_SHA256_RSA_PKCS_PSS,
    CKM_SHA384_RSA_PKCS_PSS,
    CKM_SHA512_RSA_PKCS_PSS,
    CKM_SHA3_224_RSA_PKCS_PSS,
    CKM_SHA3_256_RSA_PKCS_PSS,
    CKM_SHA3_384_RSA_PKCS_PSS,
    CKM_SHA3_512_RSA_PKCS_PSS,
];

/// Mechanisms whose parameter is CK_KEY_DERIVATION_STRING_DATA.
const STRING_DATA: &[u64] = &[
    CKM_AES_ECB_ENCRYPT_DATA,
    CKM_DES_ECB_ENCRYPT_DATA,
    CKM_DES3_ECB_ENCRYPT_DATA,
    CKM_CONCATENATE_BASE_AND_DATA,
    CKM_CONCATENATE_DATA_AND_BASE,
    CKM_XOR_BASE_AND_DATA,
];
