//! CK_MECHANISM and its parameter structures.

use hsmux_token::ck::*;
use hsmux_token::{Blob, Gcm, Mechanism, Oaep, Params, Pss};

use super::input::{FuzzArray, FuzzInput};
use crate::entry::mechanism;
use crate::rv::Rv;

/// Mechanisms whose parameter is a structure with pointers: each is given one, or a parameter of another size.
const WITH_POINTERS: [CK_MECHANISM_TYPE; 11] = [
    CKM_RSA_PKCS_OAEP,
    CKM_AES_GCM,
    CKM_ECDH1_DERIVE,
    CKM_ECDH1_COFACTOR_DERIVE,
    CKM_AES_CBC_ENCRYPT_DATA,
    CKM_AES_ECB_ENCRYPT_DATA,
    CKM_DES_CBC_ENCRYPT_DATA,
    CKM_DES3_CBC_ENCRYPT_DATA,
    CKM_DES_ECB_ENCRYPT_DATA,
    CKM_DES3_ECB_ENCRYPT_DATA,
    CKM_EDDSA,
];

/// Reads a mechanism that the input describes, and checks what was read.
pub fn mechanism(input: &[u8]) -> Option<Mechanism> {
    let input = &mut FuzzInput(input);
    let known = hsmux_token::entries();
    let kind = match known.get(usize::from(input.byte())) {
        Some(entry) => entry.kind,
        None => input.number(),
    };
    let raw = input.byte().is_multiple_of(4);
    if WITH_POINTERS.contains(&kind) && !raw {
        return with_pointers(kind, input);
    }
    let mut parameter = input.array();
    // Another size than any structure of these mechanisms: 16 (string), 24, 32, 40, 48 bytes.
    let like_a_structure = parameter.len > 0 && parameter.len.is_multiple_of(8);
    if WITH_POINTERS.contains(&kind) && like_a_structure && parameter.readable {
        parameter = FuzzArray::of(Box::from([1, 2, 3]));
    }
    let said = CK_MECHANISM {
        mechanism: kind,
        pParameter: parameter.pointer(),
        ulParameterLen: parameter.len,
    };
    // SAFETY: the parameter is readable for its length, or has one that no parameter has.
    let read = unsafe { mechanism::read(&raw const said) };
    if !known.iter().any(|entry| entry.kind == kind) && !Mechanism::is_vendor_defined(kind) {
        assert_eq!(read, Err(Rv(CKR_MECHANISM_INVALID)));
        return None;
    }
    let data = parameter.data().unwrap_or_default();
    match &read {
        Ok(Mechanism { params, .. }) => assert_eq!(*params, plain(kind, parameter.len, data)),
        Err(rv) => assert_eq!(*rv, Rv(CKR_MECHANISM_PARAM_INVALID)),
    }
    read.ok()
}

/// The expected meaning of a parameter without pointers.
fn plain(kind: CK_MECHANISM_TYPE, len: CK_ULONG, data: &[u8]) -> Params {
    assert_eq!(len, data.len() as CK_ULONG);
    let number = |at: usize| {
        let bytes = data[8 * at..].first_chunk();
        CK_ULONG::from_le_bytes(*bytes.expect("a parameter that is too short was read"))
    };
    match data.len() {
        0 => Params::None,
        _ if kind == CKM_DH_PKCS_DERIVE => Params::Bytes(Blob(data.to_vec().into())),
        8 if kind == CKM_AES_CMAC_GENERAL => Params::Number(number(0)),
        24 if kind == CKM_AES_CTR => Params::Ctr {
            bits: number(0),
            block: Blob(data[8..].to_vec().into()),
        },
        24 => Params::Pss(Pss {
            hash: number(0),
            mgf: number(1),
            salt: number(2),
        }),
        _ => Params::Bytes(Blob(data.to_vec().into())),
    }
}

fn with_pointers(kind: CK_MECHANISM_TYPE, input: &mut FuzzInput) -> Option<Mechanism> {
    let (mut one, mut other) = (input.array(), input.array());
    let numbers = [input.number(), input.number()];
    let flag = input.byte();
    let block: [u8; 16] = std::array::from_fn(|_| input.byte());
    let read = match kind {
        CKM_RSA_PKCS_OAEP => read(
            kind,
            &CK_RSA_PKCS_OAEP_PARAMS {
                hashAlg: numbers[0],
                mgf: numbers[1],
                source: CK_ULONG::from(flag),
                pSourceData: one.pointer(),
                ulSourceDataLen: one.len,
            },
        ),
        CKM_AES_GCM if flag & 1 == 0 => read(
            kind,
            &CK_GCM_PARAMS {
                pIv: one.pointer(),
                ulIvLen: one.len,
                ulIvBits: numbers[1],
                pAAD: other.pointer(),
                ulAADLen: other.len,
                ulTagBits: tag_bits(numbers[0]),
            },
        ),
        CKM_AES_GCM => read(
            kind,
            &mechanism::OldGcm {
                pIv: one.pointer(),
                ulIvLen: one.len,
                pAAD: other.pointer(),
                ulAADLen: other.len,
                ulTagBits: tag_bits(numbers[0]),
            },
        ),
        CKM_ECDH1_DERIVE | CKM_ECDH1_COFACTOR_DERIVE => read(
            kind,
            &CK_ECDH1_DERIVE_PARAMS {
                kdf: numbers[0],
                ulSharedDataLen: one.len,
                pSharedData: one.pointer(),
                ulPublicDataLen: other.len,
                pPublicData: other.pointer(),
            },
        ),
        CKM_AES_CBC_ENCRYPT_DATA => read(
            kind,
            &CK_AES_CBC_ENCRYPT_DATA_PARAMS {
                iv: block,
                pData: one.pointer(),
                length: one.len,
            },
        ),
        CKM_DES_CBC_ENCRYPT_DATA | CKM_DES3_CBC_ENCRYPT_DATA => read(
            kind,
            &CK_DES_CBC_ENCRYPT_DATA_PARAMS {
                iv: std::array::from_fn(|at| block[at]),
                pData: one.pointer(),
                length: one.len,
            },
        ),
        CKM_AES_ECB_ENCRYPT_DATA | CKM_DES_ECB_ENCRYPT_DATA | CKM_DES3_ECB_ENCRYPT_DATA => read(
            kind,
            &CK_KEY_DERIVATION_STRING_DATA {
                pData: one.pointer(),
                ulLen: one.len,
            },
        ),
        _ => read(
            kind,
            &CK_EDDSA_PARAMS {
                phFlag: flag,
                pContextData: one.pointer(),
                ulContextDataLen: one.len,
            },
        ),
    };
    let params = expected(kind, &one, &other, numbers, flag, block);
    let expected = params.map(|params| Mechanism { kind, params });
    assert_eq!(read, expected.ok_or(Rv(CKR_MECHANISM_PARAM_INVALID)));
    read.ok()
}

fn read<T>(kind: CK_MECHANISM_TYPE, parameter: &T) -> Result<Mechanism, Rv> {
    let said = CK_MECHANISM {
        mechanism: kind,
        pParameter: std::ptr::from_ref(parameter).cast_mut().cast(),
        ulParameterLen: size_of::<T>() as CK_ULONG,
    };
    // SAFETY: `parameter` is the mechanism's structure; its arrays are readable, or `slice` refuses them.
    unsafe { mechanism::read(&raw const said) }
}

/// Mostly a length that there is.
fn tag_bits(number: u64) -> CK_ULONG {
    if number & 1 == 0 {
        number >> 1 & 0xff
    } else {
        number
    }
}

/// A model of `read`, by what the standard says.
fn expected(
    kind: CK_MECHANISM_TYPE,
    one: &FuzzArray,
    other: &FuzzArray,
    numbers: [u64; 2],
    flag: u8,
    block: [u8; 16],
) -> Option<Params> {
    let blob = |array: &FuzzArray| {
        let data = array.data().unwrap_or_default();
        array.readable.then(|| Blob(data.to_vec().into()))
    };
    let first = blob(one)?;
    Some(match kind {
        CKM_RSA_PKCS_OAEP if CK_ULONG::from(flag) != CKZ_DATA_SPECIFIED && one.len > 0 => {
            return None;
        }
        CKM_RSA_PKCS_OAEP => Params::Oaep(Oaep {
            hash: numbers[0],
            mgf: numbers[1],
            label: first,
        }),
        CKM_AES_GCM => {
            let tag_bits = tag_bits(numbers[0]);
            let whole_bytes = tag_bits <= 128 && tag_bits.is_multiple_of(8);
            let aad = blob(other).filter(|_| whole_bytes)?;
            Params::Gcm(Gcm {
                iv: first,
                aad,
                tag_bits,
            })
        }
        CKM_ECDH1_DERIVE | CKM_ECDH1_COFACTOR_DERIVE => Params::Ecdh {
            kdf: numbers[0],
            shared: first,
            public: blob(other)?,
        },
        CKM_AES_CBC_ENCRYPT_DATA => Params::CbcData {
            iv: Blob(block.to_vec().into()),
            data: first,
        },
        CKM_DES_CBC_ENCRYPT_DATA | CKM_DES3_CBC_ENCRYPT_DATA => Params::CbcData {
            iv: Blob(block[..8].to_vec().into()),
            data: first,
        },
        CKM_AES_ECB_ENCRYPT_DATA | CKM_DES_ECB_ENCRYPT_DATA | CKM_DES3_ECB_ENCRYPT_DATA => {
            Params::StringData(first)
        }
        _ => Params::Eddsa {
            prehash: flag != 0,
            context: first,
        },
    })
}
