//! Parameters that not every token takes: a member is asked at Init, once, what it says to them.
//!
//! PKCS#11 has no list of the hashes that a token takes in CKM_RSA_PKCS_OAEP and CKM_RSA_PKCS_PSS, nor of the sizes of
//! keys in CKM_SHA256_HMAC. Programs try Init. What every token takes is not asked, so that it costs no round trip.

use std::collections::HashSet;

use hsmux_token::ck::*;
use hsmux_token::sync::Mutex;
use hsmux_token::{Blob, Error, Hash, KeyKind, Mechanism, ObjectRef, Operation, Params, Verb};

use super::active::Active;
use super::length;
use super::target::Target;
use crate::backend::Backend;
use crate::object::Entry;
use crate::rv::{Result, Rv};

/// Acceptances that are remembered; with one more all are forgotten.
const REMEMBERED: usize = 256;

/// What members have accepted.
#[derive(Default)]
pub struct Accepted(Mutex<HashSet<Question>>);

/// A mechanism with its parameter, and the key that it is to work with.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    verb: Verb,
    key: ObjectRef,
    mechanism: u64,
    /// `CKM_*` and `CKG_*`; 0 for none.
    hashes: [u64; 2],
    /// A salt's length; whether there is a label.
    size: u64,
}

impl Accepted {
    /// Asks a member what it says to the operation's mechanism, if not every token takes that.
    ///
    /// A refusal is the member's code. Anything else that fails says nothing of the mechanism, and is left to the
    /// step that follows.
    pub fn check(&self, active: &Active, backend: &dyn Backend) -> Result {
        let (Target::Member(asked), Some(key)) = (&active.target, &active.key) else {
            return Ok(());
        };
        let mechanism = &active.mechanism;
        let Some((hashes, size)) = unusual(mechanism, key) else {
            return Ok(());
        };
        let question = Question {
            verb: asked.verb,
            key: asked.key,
            mechanism: mechanism.kind,
            hashes,
            size,
        };
        if self.0.lock().contains(&question) {
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
                accepted.insert(question);
                Ok(())
            }
            Err(error) => refusal(&error).map_or(Ok(()), |code| Err(Rv(code))),
        }
    }
}

/// What is unusual about a mechanism's parameter or its key.
fn unusual(mechanism: &Mechanism, key: &Entry) -> Option<([u64; 2], u64)> {
    match &mechanism.params {
        Params::Oaep(oaep) => {
            let usual = (oaep.hash, oaep.mgf) == (CKM_SHA_1, CKG_MGF1_SHA1);
            let label = oaep.label != Blob::default();
            (!usual || label).then_some(([oaep.hash, oaep.mgf], u64::from(label)))
        }
        Params::Pss(pss) => {
            let usual = Hash::of(pss.hash).is_some_and(|hash| hash.mgf() == pss.mgf);
            (!usual).then_some(([pss.hash, pss.mgf], pss.salt))
        }
        _ => is_short_hmac(mechanism, key).then_some(([0, 0], 0)),
    }
}

/// Whether it is HMAC with a key shorter than the hash, which some tokens refuse (NIST SP 800-107, section 5.3.4).
fn is_short_hmac(mechanism: &Mechanism, key: &Entry) -> bool {
    let entry = hsmux_token::entry(mechanism.kind);
    let of_hmac = entry.is_some_and(|entry| entry.key == KeyKind::Generic);
    let Some(hash) = length::of_mac(mechanism).filter(|_| of_hmac) else {
        return false;
    };
    let key_len = key.attributes.number(CKA_VALUE_LEN);
    key_len.is_none_or(|len| len < hash as u64)
}

/// The code of a member that does not take the mechanism with this parameter or key.
fn refusal(error: &Error) -> Option<CK_RV> {
    match error.code()? {
        // The arguments of the member's Init are the mechanism and a key that is there.
        CKR_ARGUMENTS_BAD | CKR_MECHANISM_PARAM_INVALID => Some(CKR_MECHANISM_PARAM_INVALID),
        code @ (CKR_KEY_SIZE_RANGE
        | CKR_MECHANISM_INVALID
        | CKR_KEY_TYPE_INCONSISTENT
        | CKR_KEY_FUNCTION_NOT_PERMITTED) => Some(code),
        _ => None,
    }
}
