//! How many bytes an operation and its answer have, or may have.

use crate::{Attributes, Made, Mechanism, Object, Operation, Outcome, Params, Verb, ck};

/// A signature, a MAC, or what an error says, in bytes.
const SHORT: usize = 2 << 10;

/// Bytes that a token may add to the template of a new object: its own attributes, and a public key.
const OBJECT: usize = 8 << 10;

/// A wrapped key, in bytes.
const WRAPPED: usize = 16 << 10;

/// What an attribute takes besides its value, in bytes.
const ATTRIBUTE: usize = 40;

impl Attributes {
    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|a| ATTRIBUTE + a.value.len()).sum()
    }
}

impl Object {
    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.attributes.bytes()
    }
}

impl Mechanism {
    /// How many bytes its parameter takes.
    fn bytes(&self) -> usize {
        match &self.params {
            Params::None | Params::Number(_) | Params::Pss(_) => 0,
            Params::Bytes(bytes) | Params::StringData(bytes) => bytes.len(),
            Params::Oaep(oaep) => oaep.label.len(),
            Params::Gcm(gcm) => gcm.iv.len() + gcm.aad.len(),
            Params::Ctr { block, .. } => block.len(),
            Params::Ecdh { shared, public, .. } => shared.len() + public.len(),
            Params::CbcData { iv, data } => iv.len() + data.len(),
            Params::Eddsa { context, .. } => context.len(),
        }
    }
}

impl Operation {
    /// How many bytes it takes besides its names and numbers, which are short.
    pub fn bytes(&self) -> usize {
        let of_mechanism = self.mechanism().map_or(0, Mechanism::bytes);
        of_mechanism
            + match self {
                Self::Use { data, .. } => data.len(),
                Self::Generate { template, .. }
                | Self::Derive { template, .. }
                | Self::Create { template, .. }
                | Self::Copy { template, .. }
                | Self::SetAttributes { template, .. } => template.bytes(),
                Self::GeneratePair {
                    public, private, ..
                } => public.bytes() + private.bytes(),
                Self::Unwrap {
                    wrapped, template, ..
                } => wrapped.len() + template.bytes(),
                Self::Random { .. }
                | Self::Wrap { .. }
                | Self::Destroy { .. }
                | Self::Read { .. }
                | Self::Begin { .. } => 0,
            }
    }

    /// The size in bits that a new key, or new domain parameters, are asked to have: of RSA, DSA and DH, whose making takes
    /// the longer the larger they are. `None` for others.
    pub fn new_key_bits(&self) -> Option<u64> {
        let template = match self {
            Self::GeneratePair { public, .. } => public,
            Self::Generate { template, .. } => template,
            _ => return None,
        };
        let sizes = [ck::CKA_MODULUS_BITS, ck::CKA_PRIME_BITS];
        sizes.iter().filter_map(|kind| template.number(*kind)).max()
    }

    /// How many bytes its answer may have. Objects that are read or copied are not in it: their sizes are known elsewhere.
    pub fn answer_bytes(&self) -> usize {
        match self {
            Self::Use {
                verb: Verb::Encrypt | Verb::Decrypt,
                data,
                ..
            } => SHORT + data.len(),
            Self::Random { len } => *len as usize,
            Self::Wrap { .. } => WRAPPED,
            Self::Generate { template, .. }
            | Self::Derive { template, .. }
            | Self::Create { template, .. }
            | Self::Copy { template, .. } => OBJECT + template.bytes(),
            Self::GeneratePair {
                public, private, ..
            } => 2 * OBJECT + public.bytes() + private.bytes(),
            Self::Unwrap {
                wrapped, template, ..
            } => OBJECT + wrapped.len() + template.bytes(),
            Self::Read { .. } => OBJECT,
            Self::Use { .. }
            | Self::Destroy { .. }
            | Self::SetAttributes { .. }
            | Self::Begin { .. } => SHORT,
        }
    }
}

impl Outcome {
    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Done => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Objects(made) => made.iter().map(|Made { object, .. }| object.bytes()).sum(),
        }
    }
}
