//! Whose work something is, and what it counts for: where there is not enough, owners share equally.

use hsmux_token::Operation;

/// Whose work something is. Each owner has the same share of the tokens' time and of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The gateway or the broker of this process, or the program that has the pool to itself.
    #[default]
    Service,
    /// A local user, by its id.
    User(u32),
    /// Another host, by a number of its own.
    Host(u64),
    /// The pool itself, for its proofs: they always have a place in the queue.
    Pool,
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

impl Cost {
    pub fn is_long(&self) -> bool {
        self.bytes > LONG
    }

    pub fn of(operation: &Operation, owner: Owner) -> Self {
        let bytes = match operation {
            Operation::Use { data, .. } => data.len() as u64,
            Operation::Random { len } => u64::from(*len),
            Operation::Unwrap { wrapped, .. } => wrapped.len() as u64,
            Operation::Generate { .. } | Operation::GeneratePair { .. } => NEW_KEY,
            _ => 0,
        };
        Self {
            owner,
            bytes: BASE + bytes,
        }
    }

    /// Of the pool's own work.
    pub const POOL: Self = Self {
        owner: Owner::Pool,
        bytes: BASE,
    };
}
