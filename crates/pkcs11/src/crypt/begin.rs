//! Init: whether the mechanism, the key and the function go together, and the way the data will take.

use std::sync::Arc;

use hsmux_software::{Hasher, prehash};
use hsmux_token::ck::*;
use hsmux_token::{Class, Hash, KeyKind, Mechanism};

use super::active::Active;
use super::blocks::Blocks;
use super::function::Function;
use super::input::Input;
use super::params;
use super::target::{Asked, Target};
use crate::mechanisms::Mechanisms;
use crate::object::Entry;
use crate::rv::{Result, Rv};

impl Active {
    /// C_DigestInit.
    pub fn digest(mechanism: Mechanism) -> Result<Self> {
        let hash = Hash::of(mechanism.kind).ok_or(Rv(CKR_MECHANISM_INVALID))?;
        Ok(Self {
            function: Function::Digest,
            mechanism,
            input: Input::Hash(Hasher::new(hash)),
            target: Target::Digest,
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
        key: Arc<Entry>,
        offered: &Mechanisms,
    ) -> Result<Self> {
        check(function, &mechanism, &key, offered)?;
        let target = match (key.class, function.verb(), key.reference()) {
            (Class::PUBLIC_KEY, ..)
                if key.is_checked_here() && !params::are_a_default(&mechanism) =>
            {
                Target::Public(Arc::clone(&key))
            }
            (_, Some(verb), Some(key)) => Target::Member(Asked { verb, key }),
            _ => return Err(Rv(CKR_KEY_TYPE_INCONSISTENT)),
        };
        let (input, mechanism) = way(&target, mechanism, &key, offered);
        Ok(Self {
            function,
            mechanism,
            input,
            locked: key.asks_each_time && matches!(target, Target::Member(_)),
            target,
            key: Some(key),
            begun: false,
            kept: None,
        })
    }
}

fn check(function: Function, mechanism: &Mechanism, key: &Entry, offered: &Mechanisms) -> Result {
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
    target: &Target,
    mechanism: Mechanism,
    key: &Entry,
    offered: &Mechanisms,
) -> (Input, Mechanism) {
    let can = |part| match target {
        Target::Member(asked) => key.allows(part) && offered.on_token(part, asked.verb.needs()),
        Target::Public(_) | Target::Digest => true,
    };
    if let Some((hash, raw)) = prehash(&mechanism)
        && can(raw.kind)
    {
        return (Input::Hash(Hasher::new(hash)), raw);
    }
    if let Target::Member(asked) = target
        && let Some(blocks) = Blocks::new(asked.verb, &mechanism)
        && can(blocks.part())
    {
        return (Input::Blocks(Box::new(blocks)), mechanism);
    }
    (Input::Gather(Vec::new()), mechanism)
}
