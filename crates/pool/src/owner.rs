//! Whose work something is, and what it counts for: where there is not enough, owners share equally.

use hsmux_token::Operation;

/// Whose work something is. Each owner has the same share of the tokens' time and of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The program that has the pool to itself.
    #[default]
    Service,
    /// The gateway of this process.
    Gateway,
    /// A client of the broker of this process, by a number of its own; 0: the broker itself. All of them have the share
    /// of one owner, in which they take turns.
    Broker(u64),
    /// A local user, by its id.
    User(u32),
    /// Another host, by a number of its own.
    Host(u64),
    /// The pool itself, for its proofs: they always have a place in the queue.
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

/// What a request counts for in its owner's share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub owner: Owner,
    pub bytes: u64,
}

/// What an operation counts for beside its bytes: SoftHSM encrypts about so many in the time of a signature.
const BASE: u64 = 4096;

/// What a new key counts for: RSA takes SoftHSM about a thousand times as long as a signature.
const NEW_KEY: u64 = 1000 * BASE;

/// An operation that counts for more than this is long: whoever waits for its lane would notice.
const LONG: u64 = 64 << 10;

/// How many times longer than one of 2,048 bits a new key takes to be made, at least 1: the time grows with the fourth
/// power of the size.
fn times_longer(operation: &Operation) -> u64 {
    /// No token makes larger ones, and a power must not overflow.
    const MOST: u64 = 1 << 15;
    let asked = operation.new_key_bits().unwrap_or(0).min(MOST);
    (asked.pow(4) / 2048_u64.pow(4)).max(1)
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
        // Whatever a program sends along, as the additional data of GCM, the token reads.
        Self {
            owner,
            bytes: BASE + operation.bytes() as u64 + more,
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
}
