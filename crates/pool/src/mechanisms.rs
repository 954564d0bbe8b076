//! Mechanisms of the pool, and those that vendors have defined.

use std::collections::{BTreeMap, BTreeSet};

use hsmux_token::{Mechanism, MechanismInfo, TokenInfo, ck};

/// Mechanisms that a vendor has defined and that the pool offers: for signatures, and of this host's members.
///
/// Their numbers mean something else with each vendor: one that tokens of two vendors have is not offered.
#[derive(Default)]
pub(crate) struct VendorMechanisms(BTreeSet<u64>);

impl VendorMechanisms {
    /// Of these tokens.
    pub fn of<'a>(tokens: impl Iterator<Item = &'a TokenInfo>) -> Self {
        let mut vendors: BTreeMap<u64, Option<(&str, &str)>> = BTreeMap::new();
        for info in tokens {
            let vendor = Some((info.library.as_str(), info.manufacturer.as_str()));
            for mechanism in info.mechanisms.iter().filter(|one| signs(one)) {
                let known = vendors.entry(mechanism.kind).or_insert(vendor);
                if *known != vendor {
                    *known = None;
                }
            }
        }
        let of_one = vendors.into_iter().filter(|(_, vendor)| vendor.is_some());
        Self(of_one.map(|(kind, _)| kind).collect())
    }

    /// True if a mechanism of a member is offered; one of the standard always is.
    pub fn offers(&self, mechanism: &MechanismInfo, remote: bool) -> bool {
        !Mechanism::is_vendor_defined(mechanism.kind)
            || !remote && signs(mechanism) && self.0.contains(&mechanism.kind)
    }
}

fn signs(mechanism: &MechanismInfo) -> bool {
    Mechanism::is_vendor_defined(mechanism.kind) && mechanism.flags & ck::CKF_SIGN != 0
}

/// What one member or another can do.
pub(crate) fn union<'a>(all: impl Iterator<Item = &'a MechanismInfo>) -> Vec<MechanismInfo> {
    let mut union: BTreeMap<u64, MechanismInfo> = BTreeMap::new();
    for mechanism in all {
        let merged = union.entry(mechanism.kind).or_insert(*mechanism);
        merged.min_key = merged.min_key.min(mechanism.min_key);
        merged.max_key = merged.max_key.max(mechanism.max_key);
        merged.flags |= mechanism.flags;
    }
    let mut union: Vec<_> = union.into_values().collect();
    for mechanism in &mut union {
        if Mechanism::is_vendor_defined(mechanism.kind) {
            mechanism.flags &= ck::CKF_SIGN | ck::CKF_HW;
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: u64 = ck::CKM_VENDOR_DEFINED + 0x11;

    fn mechanism(kind: u64, flags: u64) -> MechanismInfo {
        MechanismInfo {
            kind,
            min_key: 256,
            max_key: 256,
            flags,
        }
    }

    fn token(library: &str, mechanisms: &[MechanismInfo]) -> TokenInfo {
        TokenInfo {
            library: library.into(),
            mechanisms: mechanisms.to_vec(),
            ..TokenInfo::default()
        }
    }

    #[test]
    fn a_number_of_two_vendors_is_offered_by_none() {
        let signs = mechanism(KIND, ck::CKF_SIGN);
        let (one, same, other) = (
            token("one", &[signs]),
            token("one", &[signs]),
            token("other", &[signs]),
        );
        let offers = |tokens: &[&TokenInfo]| {
            let vendors = VendorMechanisms::of(tokens.iter().copied());
            vendors.offers(&signs, false)
        };
        assert!(offers(&[&one, &same, &token("other", &[])]));
        assert!(!offers(&[&one, &other]) && !offers(&[&one, &other, &same]));
    }

    #[test]
    fn vendors_sign_here_and_do_nothing_else() {
        let all = ck::CKF_SIGN | ck::CKF_WRAP | ck::CKF_DERIVE | ck::CKF_HW;
        let (signs, wraps) = (mechanism(KIND, all), mechanism(KIND + 1, ck::CKF_WRAP));
        let standard = mechanism(ck::CKM_ECDSA, ck::CKF_SIGN | ck::CKF_VERIFY);
        let token = token("one", &[standard, signs, wraps]);
        let vendors = VendorMechanisms::of([&token].into_iter());
        assert!(vendors.offers(&signs, false) && !vendors.offers(&signs, true));
        assert!(!vendors.offers(&wraps, false) && vendors.offers(&standard, true));
        let union = union([&standard, &signs].into_iter());
        assert_eq!(union[0], standard);
        assert_eq!(union[1].flags, ck::CKF_SIGN | ck::CKF_HW);
    }
}
