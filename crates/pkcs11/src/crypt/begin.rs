//! Init: whether the mechanism, the key and the function go together, and the way the data will take.

use std::sync::Arc;

use hsmux_software::{Hasher, prehash};
use hsmux_token::ck::*;
use hsmux_token::{Class, Hash, KeyKind, Mechanism};

use super::blocks::Blocks;
use super::function::Function;
use super::input::OperationInput;
use super::keyed_step::{KeyedStep, MemberStep};
use super::operation::ActiveOperation;
use super::params;
use crate::mechanisms::Mechanisms;
use crate::object::ObjectEntry;
use crate::rv::{Result, Rv};

impl ActiveOperation {
    /// C_DigestInit.
    pub fn digest(mechanism: Mechanism) -> Result<Self> {
        let hash = Hash::of(mechanism.kind).ok_or(Rv(CKR_MECHANISM_INVALID))?;
        Ok(Self {
            function: Function::Digest,
            mechanism,
            input: OperationInput::Hash(Hasher::new(hash)),
            target: KeyedStep::Digest,
            key: None,
            begun: false,
            locked: false,
            kept: None,
        })
    }

    /// The other Init functions.
    pub fn keyed(
        function: Function,
        mechanism: Mechanism,
        key: Arc<ObjectEntry>,
        offered: &Mechanisms,
    ) -> Result<Self> {
        check(function, &mechanism, &key, offered)?;
        let target = match (key.class, function.verb(), key.reference()) {
            (Class::PUBLIC_KEY, ..)
                if key.is_checked_here() && !params::are_a_default(&mechanism) =>
            {
                KeyedStep::Public(Arc::clone(&key))
            }
            (_, Some(verb), Some(key)) => KeyedStep::Member(MemberStep { verb, key }),
            _ => return Err(Rv(CKR_KEY_TYPE_INCONSISTENT)),
        };
        let (input, mechanism) = way(&target, mechanism, &key, offered);
        Ok(Self {
            function,
            mechanism,
            input,
            locked: key.asks_each_time && matches!(target, KeyedStep::Member(_)),
            target,
            key: Some(key),
            begun: false,
            kept: None,
        })
    }
}

fn check(
    function: Function,
    mechanism: &Mechanism,
    key: &ObjectEntry,
    offered: &Mechanisms,
) -> Result {
    let entry = hsmux_token::entry(mechanism.kind);
    if entry.is_none() && !Mechanism::is_vendor_defined(mechanism.kind) {
        return Err(Rv(CKR_MECHANISM_INVALID));
    }
    match offered.get(mechanism.kind) {
        Some(info) if info.flags & function.flag() != 0 => {}
        _ => return Err(Rv(CKR_MECHANISM_INVALID)),
    }
    // A MAC takes keys of several types; which ones is the token's affair, as with what its vendor has defined.
    let fits = entry.map_or(key.class == Class::PRIVATE_KEY, |entry| {
        entry.key == key.kind || entry.key == KeyKind::Generic && key.class == Class::SECRET_KEY
    });
    if !function.takes(key.class) || !fits {
        return Err(Rv(CKR_KEY_TYPE_INCONSISTENT));
    }
    if !key.permits(function.usage()) {
        return Err(Rv(CKR_KEY_FUNCTION_NOT_PERMITTED));
    }
    if !key.allows(mechanism.kind) {
        return Err(Rv(CKR_MECHANISM_INVALID));
    }
    let size = (key.kind == KeyKind::Rsa)
        .then(|| key.signature_len())
        .flatten();
    params::check(mechanism, size, key.class != Class::PUBLIC_KEY)
}

/// Hash here what can be hashed here, encipher in parts what can be, and gather the rest.
fn way(
    target: &KeyedStep,
    mechanism: Mechanism,
    key: &ObjectEntry,
    offered: &Mechanisms,
) -> (OperationInput, Mechanism) {
    let can = |part| match target {
        KeyedStep::Member(asked) => key.allows(part) && offered.on_token(part, asked.verb.needs()),
        KeyedStep::Public(_) | KeyedStep::Digest => true,
    };
    if let Some((hash, raw)) = prehash(&mechanism)
        && can(raw.kind)
    {
        return (OperationInput::Hash(Hasher::new(hash)), raw);
    }
    if let KeyedStep::Member(asked) = target
        && let Some(blocks) = Blocks::new(asked.verb, &mechanism)
        && can(blocks.part())
    {
        return (OperationInput::Blocks(Box::new(blocks)), mechanism);
    }
    (OperationInput::Gather(Vec::new()), mechanism)
}
