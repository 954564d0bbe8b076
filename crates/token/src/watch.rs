//! What can be watched of a token beside its work: what others have done to it, and how fast it is.

use minicbor::{Decode, Encode};

use crate::{Borrow, Object, ObjectId, Verb};

/// Changes of a token's objects since the last look.
#[derive(Clone, Default, Debug, PartialEq, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct ObjectChanges {
    /// Objects that are there now, or have another name or other attributes.
    #[n(0)]
    pub made: Vec<Object>,
    /// Objects of which no copy is left.
    #[n(1)]
    pub gone: Vec<ObjectId>,
    /// See [`Snapshot::is_partial`](crate::Snapshot::is_partial): of all objects, as of this look.
    #[cbor(n(2), default)]
    pub is_partial: bool,
}

impl ObjectChanges {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.made.is_empty() && self.gone.is_empty()
    }
}

/// How long one kind of work takes within a process that holds a token: the vendor's calls alone.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct OperationPace {
    /// What was done.
    #[n(0)]
    pub work: OperationKind,
    /// With which key, the last time.
    #[n(1)]
    pub key: ObjectId,
    /// The lower quartile of the last operations, in nanoseconds: what waits for a CPU or for others is
    /// above it as long as some do not.
    #[n(2)]
    pub nanos: u64,
    /// How many operations of this kind there were.
    #[n(3)]
    pub count: u64,
}

/// Operations that take the same time each time: with the output's length it tells sizes of keys apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
#[cbor(array)]
pub struct OperationKind {
    /// What was done.
    #[n(0)]
    pub verb: Verb,
    /// `CKM_*`.
    #[n(1)]
    pub mechanism: u64,
    /// Bits of the input's length in bytes.
    #[n(2)]
    pub input: u32,
    /// Bits of the output's length in bytes.
    #[n(3)]
    pub output: u32,
}

impl OperationKind {
    /// Lengths in bytes.
    pub fn new(verb: Verb, mechanism: u64, input: usize, output: usize) -> Self {
        let bits = |len: usize| usize::BITS - len.leading_zeros();
        Self {
            verb,
            mechanism,
            input: bits(input),
            output: bits(output),
        }
    }
}
