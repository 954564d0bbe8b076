//! CK_MECHANISM with its parameter structures, freed of their pointers.

use bytes::Bytes;
use hsmux_token::ck::*;
use hsmux_token::{Blob, Gcm, Mechanism, MechanismEntry, Oaep, Params, Pss};

use super::pointer::{check, slice};
use crate::rv::{Result, Rv};

/// The form of a mechanism's parameter.
enum ParameterShape {
    Nothing,
    /// So many bytes, exactly.
    Bytes(usize),
    BytesUpTo(usize),
    /// So many bytes, or no parameter.
    OptionalBytes(usize),
    Number,
    Pss,
    /// With or without a parameter: modules have defaults, and some accept no other.
    Oaep,
    Gcm,
    Ctr,
    Ecdh,
    CbcData,
    DesCbcData,
    StringData,
    Eddsa,
}

/// The longest public value of DH that is taken: 16,384 bits, as the longest that PKCS#11 modules know.
const MAX_DH: usize = 2048;

fn shape(mechanism: &MechanismEntry) -> ParameterShape {
    match mechanism.kind {
        CKM_AES_CBC | CKM_AES_CBC_PAD => ParameterShape::Bytes(16),
        CKM_DES_CBC | CKM_DES_CBC_PAD | CKM_DES3_CBC | CKM_DES3_CBC_PAD => ParameterShape::Bytes(8),
        CKM_DH_PKCS_DERIVE => ParameterShape::BytesUpTo(MAX_DH),
        CKM_AES_KEY_WRAP | CKM_AES_KEY_WRAP_PAD => ParameterShape::OptionalBytes(8),
        CKM_AES_KEY_WRAP_KWP => ParameterShape::OptionalBytes(4),
        CKM_AES_CMAC_GENERAL => ParameterShape::Number,
        CKM_RSA_PKCS_PSS => ParameterShape::Pss,
        CKM_RSA_PKCS_OAEP => ParameterShape::Oaep,
        CKM_AES_GCM => ParameterShape::Gcm,
        CKM_AES_CTR => ParameterShape::Ctr,
        CKM_ECDH1_DERIVE | CKM_ECDH1_COFACTOR_DERIVE => ParameterShape::Ecdh,
        CKM_AES_CBC_ENCRYPT_DATA => ParameterShape::CbcData,
        CKM_DES_CBC_ENCRYPT_DATA | CKM_DES3_CBC_ENCRYPT_DATA => ParameterShape::DesCbcData,
        CKM_AES_ECB_ENCRYPT_DATA | CKM_DES_ECB_ENCRYPT_DATA | CKM_DES3_ECB_ENCRYPT_DATA => {
            ParameterShape::StringData
        }
        CKM_EDDSA => ParameterShape::Eddsa,
        _ => match mechanism.prehash {
            Some(prehash) if prehash.raw == CKM_RSA_PKCS_PSS => ParameterShape::Pss,
            _ => ParameterShape::Nothing,
        },
    }
}

/// A mechanism, copied out of the application's memory.
///
/// # Safety
/// `mechanism` is null or valid, with a parameter that is what the standard says for it.
pub unsafe fn read(mechanism: *const CK_MECHANISM) -> Result<Mechanism> {
    // SAFETY: not null, and valid by this function's own contract.
    let mechanism = unsafe { &*check(mechanism.cast_mut())? };
    let kind = mechanism.mechanism;
    // Parameters of unknown mechanisms may carry pointers, which mean nothing in another process.
    if Mechanism::is_vendor_defined(kind) {
        return match mechanism.ulParameterLen {
            0 => Ok(Mechanism::plain(kind)),
            _ => Err(Rv(CKR_MECHANISM_PARAM_INVALID)),
        };
    }
    let entry = hsmux_token::entry(kind).ok_or(Rv(CKR_MECHANISM_INVALID))?;
    let raw = RawParameter {
        data: mechanism.pParameter.cast(),
        len: mechanism.ulParameterLen,
    };
    // SAFETY: as above.
    let params = unsafe { raw.params(&shape(entry)) };
    Ok(Mechanism {
        kind,
        params: params.map_err(|_| Rv(CKR_MECHANISM_PARAM_INVALID))?,
    })
}

/// `pParameter` and `ulParameterLen`.
struct RawParameter {
    data: *const u8,
    len: CK_ULONG,
}

/// CK_GCM_PARAMS as it was before 2.40's errata, without ulIvBits: still in use.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_snake_case)]
pub struct OldGcm {
    pub pIv: *mut u8,
    pub ulIvLen: CK_ULONG,
    pub pAAD: *mut u8,
    pub ulAADLen: CK_ULONG,
    pub ulTagBits: CK_ULONG,
}

impl RawParameter {
    unsafe fn params(&self, shape: &ParameterShape) -> Result<Params> {
        // SAFETY: the parameter and what it points to are valid by the contract of `read`.
        Ok(unsafe {
            match *shape {
                ParameterShape::Nothing
                | ParameterShape::OptionalBytes(_)
                | ParameterShape::Eddsa
                | ParameterShape::Oaep
                    if self.len == 0 =>
                {
                    Params::None
                }
                ParameterShape::Nothing => return Err(Rv(CKR_MECHANISM_PARAM_INVALID)),
                ParameterShape::Bytes(len) | ParameterShape::OptionalBytes(len) => {
                    if self.len != len as CK_ULONG {
                        return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
                    }
                    Params::Bytes(copy(self.data, self.len)?)
                }
                ParameterShape::Number => Params::Number(self.get::<CK_ULONG>()?),
                ParameterShape::Pss => pss(&self.get()?),
                ParameterShape::Oaep => oaep(&self.get()?)?,
                ParameterShape::Gcm => self.gcm()?,
                ParameterShape::Ctr => ctr(&self.get()?),
                ParameterShape::Ecdh => ecdh(&self.get()?)?,
                ParameterShape::BytesUpTo(most) => {
                    if !(1..=most as CK_ULONG).contains(&self.len) {
                        return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
                    }
                    Params::Bytes(copy(self.data, self.len)?)
                }
                ParameterShape::CbcData => {
                    let p = self.get::<CK_AES_CBC_ENCRYPT_DATA_PARAMS>()?;
                    cbc_data(&p.iv, p.pData, p.length)?
                }
                ParameterShape::DesCbcData => {
                    let p = self.get::<CK_DES_CBC_ENCRYPT_DATA_PARAMS>()?;
                    cbc_data(&p.iv, p.pData, p.length)?
                }
                ParameterShape::StringData => {
                    let p = self.get::<CK_KEY_DERIVATION_STRING_DATA>()?;
                    Params::StringData(copy(p.pData, p.ulLen)?)
                }
                ParameterShape::Eddsa => eddsa(&self.get()?)?,
            }
        })
    }

    /// The parameter as one structure; of its size, or it is none.
    unsafe fn get<T: Copy>(&self) -> Result<T> {
        if self.data.is_null() || self.len != size_of::<T>() as CK_ULONG {
            return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
        }
        // SAFETY: readable for the length of a T, which is plain data; alignment is the application's affair.
        Ok(unsafe { self.data.cast::<T>().read_unaligned() })
    }

    unsafe fn gcm(&self) -> Result<Params> {
        // SAFETY: as in `params`.
        let (iv, aad, tag_bits) = unsafe {
            if self.len == size_of::<OldGcm>() as CK_ULONG {
                let p = self.get::<OldGcm>()?;
                (
                    copy(p.pIv, p.ulIvLen)?,
                    copy(p.pAAD, p.ulAADLen)?,
                    p.ulTagBits,
                )
            } else {
                let p = self.get::<CK_GCM_PARAMS>()?;
                (
                    copy(p.pIv, p.ulIvLen)?,
                    copy(p.pAAD, p.ulAADLen)?,
                    p.ulTagBits,
                )
            }
        };
        if tag_bits > 128 || tag_bits % 8 != 0 {
            return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
        }
        Ok(Params::Gcm(Gcm { iv, aad, tag_bits }))
    }
}

fn pss(p: &CK_RSA_PKCS_PSS_PARAMS) -> Params {
    Params::Pss(Pss {
        hash: p.hashAlg,
        mgf: p.mgf,
        salt: p.sLen,
    })
}

unsafe fn oaep(p: &CK_RSA_PKCS_OAEP_PARAMS) -> Result<Params> {
    // Programs without a label often leave the source at 0.
    if p.source != CKZ_DATA_SPECIFIED && p.ulSourceDataLen != 0 {
        return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
    }
    Ok(Params::Oaep(Oaep {
        hash: p.hashAlg,
        mgf: p.mgf,
        // SAFETY: valid by the contract of `read`.
        label: unsafe { copy(p.pSourceData.cast(), p.ulSourceDataLen)? },
    }))
}

fn ctr(p: &CK_AES_CTR_PARAMS) -> Params {
    Params::Ctr {
        bits: p.ulCounterBits,
        block: Blob(Bytes::copy_from_slice(&p.cb)),
    }
}

unsafe fn ecdh(p: &CK_ECDH1_DERIVE_PARAMS) -> Result<Params> {
    // SAFETY: valid by the contract of `read`.
    unsafe {
        Ok(Params::Ecdh {
            kdf: p.kdf,
            shared: copy(p.pSharedData, p.ulSharedDataLen)?,
            public: copy(p.pPublicData, p.ulPublicDataLen)?,
        })
    }
}

unsafe fn cbc_data(iv: &[u8], data: *const u8, len: CK_ULONG) -> Result<Params> {
    Ok(Params::CbcData {
        iv: Blob(Bytes::copy_from_slice(iv)),
        // SAFETY: valid by the contract of `read`.
        data: unsafe { copy(data, len)? },
    })
}

unsafe fn eddsa(p: &CK_EDDSA_PARAMS) -> Result<Params> {
    Ok(Params::Eddsa {
        prehash: p.phFlag != CK_FALSE,
        // SAFETY: valid by the contract of `read`.
        context: unsafe { copy(p.pContextData, p.ulContextDataLen)? },
    })
}

unsafe fn copy(data: *const u8, len: CK_ULONG) -> Result<Blob> {
    // SAFETY: valid by the contract of `read`.
    Ok(Blob(Bytes::copy_from_slice(unsafe { slice(data, len)? })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_value_of_dh_has_2048_bytes_at_most() {
        let read = |length: usize| {
            let mut value = vec![1_u8; length];
            let mechanism = CK_MECHANISM {
                mechanism: CKM_DH_PKCS_DERIVE,
                pParameter: value.as_mut_ptr().cast(),
                ulParameterLen: length as CK_ULONG,
            };
            // SAFETY: the parameter is readable for its length.
            unsafe { read(&raw const mechanism) }
        };
        assert!(read(2048).is_ok());
        for length in [0, 2049] {
            assert_eq!(read(length), Err(Rv(CKR_MECHANISM_PARAM_INVALID)));
        }
    }
}
