//! Mechanisms with their parameters, free of pointers.

use crate::{Blob, Borrow, ck};
use minicbor::{Decode, Encode};

/// A mechanism and its parameter (PKCS#11 3.0, section 3.5).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Mechanism {
    /// `CKM_*`.
    #[n(0)]
    pub kind: u64,
    /// The parameter.
    #[n(1)]
    pub params: Params,
}

impl Mechanism {
    /// A mechanism without parameter.
    pub const fn plain(kind: u64) -> Self {
        Self {
            kind,
            params: Params::None,
        }
    }

    /// Whether a vendor defines what it does (CKM_VENDOR_DEFINED and above): then hsmux knows nothing of it but what
    /// the token says, and offers it for signatures alone.
    pub const fn is_vendor_defined(kind: u64) -> bool {
        kind >= ck::CKM_VENDOR_DEFINED
    }

    /// A mechanism whose parameter is a byte string: the IV of CBC.
    pub fn with_bytes(kind: u64, bytes: impl Into<Blob>) -> Self {
        Self {
            kind,
            params: Params::Bytes(bytes.into()),
        }
    }

    /// `CKM_SHA256_RSA_PKCS`, or the number for one that hsmux does not know by name.
    pub fn name(&self) -> std::borrow::Cow<'static, str> {
        match crate::entry(self.kind) {
            Some(entry) => entry.name.into(),
            None => format!("mechanism 0x{:08x}", self.kind).into(),
        }
    }
}

/// A mechanism's parameter.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(context_bound = "Borrow")]
pub enum Params {
    /// None.
    #[n(0)]
    None,
    /// A byte string: an IV, the data of CKM_CONCATENATE_BASE_AND_DATA's kin by their own variants.
    #[n(1)]
    Bytes(#[n(0)] Blob),
    /// A number (`CK_ULONG`): CK_MAC_GENERAL_PARAMS.
    #[n(2)]
    Number(#[n(0)] u64),
    /// CK_RSA_PKCS_PSS_PARAMS.
    #[n(3)]
    Pss(#[n(0)] Pss),
    /// CK_RSA_PKCS_OAEP_PARAMS.
    #[n(4)]
    Oaep(#[n(0)] Oaep),
    /// CK_GCM_PARAMS.
    #[n(5)]
    Gcm(#[n(0)] Gcm),
    /// CK_AES_CTR_PARAMS: counter bits and counter block.
    #[n(6)]
    Ctr {
        /// ulCounterBits.
        #[n(0)]
        bits: u64,
        /// cb, 16 bytes.
        #[n(1)]
        block: Blob,
    },
    /// CK_ECDH1_DERIVE_PARAMS.
    #[n(7)]
    Ecdh {
        /// `CKD_*`.
        #[n(0)]
        kdf: u64,
        /// pSharedData.
        #[n(1)]
        shared: Blob,
        /// pPublicData: the peer's point.
        #[n(2)]
        public: Blob,
    },
    /// CK_AES_CBC_ENCRYPT_DATA_PARAMS and CK_DES_CBC_ENCRYPT_DATA_PARAMS: IV and data.
    #[n(8)]
    CbcData {
        /// iv, 16 bytes; of DES 8 bytes.
        #[n(0)]
        iv: Blob,
        /// pData.
        #[n(1)]
        data: Blob,
    },
    /// CK_KEY_DERIVATION_STRING_DATA.
    #[n(9)]
    StringData(#[n(0)] Blob),
    /// CK_EDDSA_PARAMS: prehash flag and context.
    #[n(10)]
    Eddsa {
        /// phFlag.
        #[n(0)]
        prehash: bool,
        /// pContextData.
        #[n(1)]
        context: Blob,
    },
}

/// CK_RSA_PKCS_PSS_PARAMS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Pss {
    /// hashAlg, `CKM_*`.
    #[n(0)]
    pub hash: u64,
    /// mgf, `CKG_*`.
    #[n(1)]
    pub mgf: u64,
    /// sLen, bytes.
    #[n(2)]
    pub salt: u64,
}

/// CK_RSA_PKCS_OAEP_PARAMS; the source is always CKZ_DATA_SPECIFIED.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Oaep {
    /// hashAlg, `CKM_*`.
    #[n(0)]
    pub hash: u64,
    /// mgf, `CKG_*`.
    #[n(1)]
    pub mgf: u64,
    /// pSourceData: the label.
    #[n(2)]
    pub label: Blob,
}

impl Oaep {
    /// SHA-256 with MGF1-SHA-256 and no label.
    pub fn sha256() -> Self {
        Self {
            hash: ck::CKM_SHA256,
            mgf: ck::CKG_MGF1_SHA256,
            label: Blob::default(),
        }
    }

    /// SHA-1 with MGF1-SHA-1 and no label: the form that every token has.
    pub fn sha1() -> Self {
        Self {
            hash: ck::CKM_SHA_1,
            mgf: ck::CKG_MGF1_SHA1,
            label: Blob::default(),
        }
    }
}

/// CK_GCM_PARAMS.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Gcm {
    /// pIv.
    #[n(0)]
    pub iv: Blob,
    /// pAAD.
    #[n(1)]
    pub aad: Blob,
    /// ulTagBits.
    #[n(2)]
    pub tag_bits: u64,
}
