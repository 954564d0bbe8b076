//! Parameters that some tokens refuse: Init asks a member once and remembers the acceptance.
//!
//! PKCS#11 does not list the hashes that a token takes for CKM_RSA_PKCS_OAEP and CKM_RSA_PKCS_PSS, nor the key sizes
//! for CKM_SHA256_HMAC. Programs try Init. Init asks no member about parameters that every token takes.

use std::collections::HashSet;

use hsmux_token::ck::*;
use hsmux_token::sync::Mutex;
use hsmux_token::{Blob, Error, Hash, KeyKind, Mechanism, ObjectRef, Operation, Params, Verb};

use super::keyed_step::KeyedStep;
use super::length;
use super::operation::ActiveOperation;
use super::params::are_a_default;
use crate::backend::Backend;
use crate::object::ObjectEntry;
use crate::rv::{Result, Rv};

/// Acceptances that are remembered. One more replaces them all.
const REMEMBERED: usize = 256;

/// The uncommon parameters that members have accepted.
#[derive(Default)]
pub struct InitChecks(Mutex<HashSet<UncommonInit>>);

/// A mechanism with its parameter, and the key for it.
#[derive(PartialEq, Eq, Hash)]
struct UncommonInit {
    verb: Verb,
    key: ObjectRef,
    mechanism: u64,
    /// `CKM_*` and `CKG_*`; 0 for none.
    hashes: [u64; 2],
    /// A salt's length; whether there is a label.
    size: u64,
}

impl InitChecks {
    /// Asks a member whether it takes the operation's mechanism and parameter, if some tokens refuse them.
    ///
    /// The error is the member's refusal. Other failures say nothing of the mechanism: the step after Init meets them
    /// again.
    pub fn check(&self, active: &ActiveOperation, backend: &dyn Backend) -> Result {
        let (KeyedStep::Member(asked), Some(key)) = (&active.target, &active.key) else {
            return Ok(());
        };
        let mechanism = &active.mechanism;
        let Some((hashes, size)) = uncommon(mechanism, key) else {
            return Ok(());
        };
        let init = UncommonInit {
            verb: asked.verb,
            key: asked.key,
            mechanism: mechanism.kind,
            hashes,
            size,
        };
        if self.0.lock().contains(&init) {
            return Ok(());
        }
        let begin = Operation::Begin {
            verb: asked.verb,
            key: asked.key,
            mechanism: mechanism.clone(),
        };
        match backend.execute(&begin) {
            Ok(_) => {
                let mut accepted = self.0.lock();
                if accepted.len() >= REMEMBERED {
                    accepted.clear();
                }
                accepted.insert(init);
                Ok(())
            }
            Err(error) => init_refusal(&error).map_or(Ok(()), |code| Err(Rv(code))),
        }
    }
}

/// The parts of a parameter, or of a key's size, that some tokens refuse; `None` if every token takes them.
fn uncommon(mechanism: &Mechanism, key: &ObjectEntry) -> Option<([u64; 2], u64)> {
    match &mechanism.params {
        Params::Oaep(oaep) => {
            let common = (oaep.hash, oaep.mgf) == (CKM_SHA_1, CKG_MGF1_SHA1);
            let label = oaep.label != Blob::default();
            (!common || label).then_some(([oaep.hash, oaep.mgf], u64::from(label)))
        }
        Params::Pss(pss) => {
            let common = Hash::of(pss.hash).is_some_and(|hash| hash.mgf() == pss.mgf);
            (!common).then_some(([pss.hash, pss.mgf], pss.salt))
        }
        _ => {
            let asks = are_a_default(mechanism) || is_uncommon_hmac(mechanism, key);
            asks.then_some(([0, 0], 0))
        }
    }
}

/// HMAC with a key of another type, or one that is shorter than the hash (NIST SP 800-107, section 5.3.4), or of
/// unknown length.
fn is_uncommon_hmac(mechanism: &Mechanism, key: &ObjectEntry) -> bool {
    let entry = hsmux_token::entry(mechanism.kind);
    let of_hmac = entry.is_some_and(|entry| entry.key == KeyKind::Generic);
    let Some(hash) = length::of_mac(mechanism).filter(|_| of_hmac) else {
        return false;
    };
    let key_len = key.attributes.number(CKA_VALUE_LEN);
    key.kind != KeyKind::Generic || key_len.is_none_or(|len| len < hash as u64)
}

/// The code for a mechanism, parameter or key that is refused; `None` for an error that says nothing of them.
pub fn init_refusal(error: &Error) -> Option<CK_RV> {
    match error.to_rv() {
        // The arguments of the member's Init are the mechanism and a key that is there.
        CKR_ARGUMENTS_BAD | CKR_MECHANISM_PARAM_INVALID => Some(CKR_MECHANISM_PARAM_INVALID),
        code @ (CKR_KEY_SIZE_RANGE
        | CKR_MECHANISM_INVALID
        | CKR_KEY_TYPE_INCONSISTENT
        | CKR_KEY_FUNCTION_NOT_PERMITTED) => Some(code),
        _ => None,
    }
}
