//! Owners of requests, and the costs of requests. Owners share the tokens equally.

use hsmux_token::{Class, Object, Operation, ck};

/// The owner of a request. Each owner has the same share of the tokens' time and of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The program that has the pool to itself.
    #[default]
    Service,
    /// The gateway of this process.
    Gateway,
    /// A client of the broker of this process, by its number. 0 is the broker itself. All of them share what one owner
    /// has.
    Broker(u64),
    /// A local user, by its id.
    User(u32),
    /// Another host, by a number of its own.
    Host(u64),
    /// The pool itself, for its proofs. The queue always admits them.
    Pool,
}

impl Owner {
    /// The owner that stands for all those with which this one has a share.
    pub(crate) fn group(self) -> Self {
        match self {
            Self::Broker(_) => Self::Broker(0),
            alone => alone,
        }
    }
}

/// The cost of a request in its owner's share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub owner: Owner,
    pub bytes: u64,
}

/// The cost of an operation besides its bytes: SoftHSM encrypts about as many bytes in the time of a signature.
const BASE: u64 = 4096;

/// The cost of a new key: with SoftHSM an RSA key takes about a thousand times as long as a signature.
const NEW_KEY: u64 = 1000 * BASE;

/// An operation that costs more is long: a request that waits for its lane would notice.
const LONG: u64 = 64 << 10;

/// No token has larger keys, in bits, and a power must not overflow.
const MOST: u64 = 1 << 15;

/// Keys of this size and smaller ones count as they are.
const USUAL: u64 = 2048;

/// The time of a new key relative to one of 2,048 bits, at least 1. It grows with the fourth power of the size.
fn times_longer(operation: &Operation) -> u64 {
    let asked = operation.new_key_bits().unwrap_or(0).min(MOST);
    (asked.pow(4) / USUAL.pow(4)).max(1)
}

/// The time of an operation with this key relative to a private RSA key of 2,048 bits, at least 1. It grows with the
/// square of the modulus, and with the exponent.
pub(crate) fn times_longer_with(key: &Object) -> u64 {
    let bits = |kind| {
        let value = key.attributes.get(kind)?;
        let zeros = value.iter().take_while(|byte| **byte == 0).count();
        Some((value.len() - zeros) as u64 * 8).map(|bits| bits.min(MOST))
    };
    let Some(modulus) = bits(ck::CKA_MODULUS).or_else(|| bits(ck::CKA_PRIME)) else {
        return 1;
    };
    let is_public = key.id.class == Class::PUBLIC_KEY;
    let exponent = is_public.then(|| bits(ck::CKA_PUBLIC_EXPONENT)).flatten();
    let exponent = exponent.or_else(|| bits(ck::CKA_SUBPRIME));
    let times = modulus.pow(2) * exponent.unwrap_or(modulus) / USUAL.pow(3);
    times.max(1)
}

impl Cost {
    pub fn is_long(&self) -> bool {
        self.bytes > LONG
    }

    pub fn of(operation: &Operation, owner: Owner) -> Self {
        let more = match operation {
            Operation::Random { len } => u64::from(*len),
            Operation::Generate { .. } | Operation::GeneratePair { .. } => {
                NEW_KEY * times_longer(operation)
            }
            _ => 0,
        };
        // All data of a request count, such as the additional data of GCM, because the token reads them.
        Self {
            owner,
            bytes: BASE + operation.bytes() as u64 + more,
        }
    }

    /// The same with keys that take so many times longer.
    pub fn times(self, times: u64) -> Self {
        Self {
            bytes: self.bytes.saturating_add(BASE.saturating_mul(times - 1)),
            ..self
        }
    }

    /// Of the pool's own work.
    pub const POOL: Self = Self {
        owner: Owner::Pool,
        bytes: BASE,
    };
}

#[cfg(test)]
mod tests {
    use hsmux_token::{Attributes, Gcm, Mechanism, ObjectId, Params, Verb, ck};

    use super::*;

    fn cost(operation: &Operation) -> u64 {
        Cost::of(operation, Owner::Service).bytes
    }

    #[test]
    fn all_that_a_program_sends_along_counts() {
        let aad = |len: usize| Operation::Use {
            verb: Verb::Encrypt,
            key: ObjectId::of_secret_key(ck::CKK_AES, b"1", b"abc").into(),
            mechanism: Mechanism {
                kind: ck::CKM_AES_GCM,
                params: Params::Gcm(Gcm {
                    iv: vec![0; 12].into(),
                    aad: vec![0; len].into(),
                    tag_bits: 128,
                }),
            },
            data: Vec::new().into(),
        };
        assert!(cost(&aad(0)) < 2 * BASE);
        assert!(cost(&aad(1 << 20)) > 1 << 20);
        let create = Operation::Create {
            template: Attributes::default().with(ck::CKA_VALUE, vec![0; 1 << 20]),
            near: None,
        };
        assert!(cost(&create) > 1 << 20);
    }

    #[test]
    fn a_new_key_counts_by_the_time_that_it_takes() {
        let rsa = |bits| Operation::GeneratePair {
            mechanism: Mechanism::plain(ck::CKM_RSA_PKCS_KEY_PAIR_GEN),
            public: Attributes::default().with_number(ck::CKA_MODULUS_BITS, bits),
            private: Attributes::default(),
        };
        assert!((NEW_KEY..NEW_KEY + 2 * BASE).contains(&cost(&rsa(2048))));
        assert!(cost(&rsa(4096)) >= 16 * NEW_KEY);
        assert!(cost(&rsa(16_384)) >= 4096 * NEW_KEY);
        assert!(cost(&rsa(u64::MAX)) >= 4096 * NEW_KEY);
    }

    #[test]
    fn a_large_key_counts_by_the_time_that_it_takes() {
        let key = |class, kind, bits: usize, exponent: usize| {
            let mut attributes = Attributes::default().with(kind, vec![0xff; bits / 8]);
            attributes.set(ck::CKA_PUBLIC_EXPONENT, vec![0xff; exponent]);
            let id = ObjectId::of_secret_key(ck::CKK_RSA, b"1", b"abc");
            let id = ObjectId { class, ..id };
            times_longer_with(&Object { id, attributes })
        };
        let private = |bits| key(Class::PRIVATE_KEY, ck::CKA_MODULUS, bits, 3);
        assert_eq!([1024, 2048, 4096, 8192].map(private), [1, 1, 8, 64]);
        assert_eq!(private(16_384), 512);
        assert_eq!(private(1 << 20), 4096);
        let public = |exponent| key(Class::PUBLIC_KEY, ck::CKA_MODULUS, 8192, exponent);
        assert_eq!([3, 1024].map(public), [1, 64]);
        assert_eq!(key(Class::PRIVATE_KEY, ck::CKA_PRIME, 8192, 3), 64);
        assert_eq!(key(Class::SECRET_KEY, ck::CKA_VALUE, 8192, 3), 1);
    }
}
