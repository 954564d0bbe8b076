//! The mechanisms on offer: those of the members, and those of this process.

use hsmux_token::ck::*;
use hsmux_token::{KeyKind, Mechanism, MechanismEntry, MechanismInfo, TokenInfo, Uses};

/// The mechanisms of C_GetMechanismList, sorted.
#[derive(Clone, Default)]
pub struct Mechanisms {
    offered: Vec<MechanismInfo>,
    of_token: Vec<MechanismInfo>,
}

impl Mechanisms {
    /// The mechanisms of the table that the token has, with uses that this process adds (hashing, public keys), and
    /// the vendor's own for signatures.
    pub fn new(token: &TokenInfo) -> Self {
        let mut offered: Vec<_> = hsmux_token::entries()
            .iter()
            .filter_map(|entry| offer(entry, token))
            .collect();
        let vendors = token.mechanisms.iter();
        offered.extend(vendors.filter_map(vendor_defined));
        offered.sort_unstable_by_key(|info| info.kind);
        Self {
            offered,
            of_token: token.mechanisms.clone(),
        }
    }

    /// All, sorted.
    pub fn all(&self) -> &[MechanismInfo] {
        &self.offered
    }

    /// One of them.
    pub fn get(&self, kind: CK_MECHANISM_TYPE) -> Option<&MechanismInfo> {
        lookup(&self.offered, kind)
    }

    /// True if the members themselves have a mechanism for a use.
    pub fn on_token(&self, kind: CK_MECHANISM_TYPE, uses: Uses) -> bool {
        lookup(&self.of_token, kind).is_some_and(|info| info.flags & uses.bits() != 0)
    }
}

fn vendor_defined(info: &MechanismInfo) -> Option<MechanismInfo> {
    let flags = info.flags & (CKF_SIGN | CKF_HW);
    let offered = Mechanism::is_vendor_defined(info.kind) && flags & CKF_SIGN != 0;
    offered.then_some(MechanismInfo { flags, ..*info })
}

fn lookup(sorted: &[MechanismInfo], kind: CK_MECHANISM_TYPE) -> Option<&MechanismInfo> {
    let at = sorted.binary_search_by_key(&kind, |info| info.kind).ok()?;
    Some(&sorted[at])
}

fn offer(entry: &MechanismEntry, token: &TokenInfo) -> Option<MechanismInfo> {
    let own = token.mechanism(entry.kind).copied();
    if entry.uses.contains(Uses::DIGEST) {
        return Some(MechanismInfo {
            kind: entry.kind,
            min_key: 0,
            max_key: 0,
            flags: CKF_DIGEST,
        });
    }
    let raw = entry
        .prehash
        .and_then(|prehash| token.mechanism(prehash.raw));
    let mut info = own.or(raw.copied())?;
    info.kind = entry.kind;
    info.flags = own.map_or(0, |own| own.flags) | raw.map_or(0, |raw| raw.flags & !OPERATIONS);
    info.flags |= raw.map_or(0, |raw| raw.flags & CKF_SIGN);
    info.flags |= in_software(entry);
    // Recovery is offered only for signatures that a member can make.
    if info.flags & CKF_SIGN_RECOVER == 0 {
        info.flags &= !CKF_VERIFY_RECOVER;
    }
    Some(info)
}

/// The uses of a public key in this process.
fn in_software(entry: &MechanismEntry) -> CK_FLAGS {
    if !matches!(entry.key, KeyKind::Rsa | KeyKind::Ec | KeyKind::Edwards) {
        return 0;
    }
    let mut flags = (entry.uses & (Uses::VERIFY | Uses::ENCRYPT)).bits();
    if entry.uses.contains(Uses::SIGN_RECOVER) {
        flags |= CKF_VERIFY_RECOVER;
    }
    flags
}

/// The flags that say what a mechanism does, as against those of hardware and curves.
const OPERATIONS: CK_FLAGS = CKF_ENCRYPT
    | CKF_DECRYPT
    | CKF_DIGEST
    | CKF_SIGN
    | CKF_SIGN_RECOVER
    | CKF_VERIFY
    | CKF_VERIFY_RECOVER
    | CKF_GENERATE
    | CKF_GENERATE_KEY_PAIR
    | CKF_WRAP
    | CKF_UNWRAP
    | CKF_DERIVE;
