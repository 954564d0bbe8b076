//! Debts of members, for messages, and how long they are kept.

use super::Coordinator;
use super::journal::JournalState;
use hsmux_pool::DebtStatus;
use hsmux_token::Error;
use hsmux_token::sync::Mutex;
use std::collections::BTreeSet;

impl JournalState {
    /// The name of a token: of the member that it was last behind, or its serial number.
    pub(super) fn member_of(&self, serial: &str) -> String {
        let mut names = self.serials.iter();
        let found = names.find(|(_, known)| *known == serial);
        found.map_or_else(|| serial.to_owned(), |(name, _)| name.clone())
    }
}

impl Coordinator {
    /// The number of changes that each member owes. Asks no token.
    pub fn debts(&self) -> Vec<DebtStatus> {
        let owed: Vec<(DebtStatus, Vec<u64>)> = self.journal.read(|state| {
            let debts = state.owed.iter().map(|(serial, changes)| {
                let debt = DebtStatus {
                    member: state.member_of(serial),
                    serial: serial.clone(),
                    changes: changes.len(),
                    attempts: 0,
                    last_error: None,
                };
                (debt, changes.keys().copied().collect())
            });
            debts.collect()
        });
        let with_tries = |(mut debt, changes): (DebtStatus, Vec<u64>)| {
            for change in changes {
                if let Some((times, why)) = self.unpaid.of(&(debt.serial.clone(), change))
                    && times > debt.attempts
                {
                    (debt.attempts, debt.last_error) = (times, Some(why));
                }
            }
            debt
        };
        owed.into_iter().map(with_tries).collect()
    }

    /// A member could not do what it owes for a change.
    pub(super) fn still_owed(&self, member: &str, serial: &str, change: u64, error: &Error) {
        let debt = (serial.to_owned(), change);
        if let Some(times) = self.unpaid.note(debt, error.to_string()) {
            tracing::warn!(member, change, times, %error, "still owes a change; `hsmux status` counts what is owed");
        }
    }

    /// Only these members are configured, and all of them have been seen: what other tokens owe is forgotten.
    pub(super) fn forget_all_but(&self, configured: &BTreeSet<String>) {
        let left: Vec<(String, String, Vec<u64>)> = self.journal.read(|state| {
            let kept = |serial: &str| {
                let mut names = state.serials.iter();
                names.any(|(name, known)| known == serial && configured.contains(name))
            };
            let left = state.owed.iter().filter(|(serial, _)| !kept(serial));
            left.map(|(serial, changes)| {
                let changes = changes.keys().copied().collect();
                (state.member_of(serial), serial.clone(), changes)
            })
            .collect()
        });
        for (member, serial, changes) in left {
            let count = changes.len();
            if let Err(error) = self.journal.forget(&serial, changes) {
                tracing::warn!(%error, member, "what it owes stays in the journal for now");
                continue;
            }
            tracing::warn!(
                member,
                serial,
                "is not configured any more: {count} changes that it owed are forgotten. If it comes back, \
                 `hsmux key list` shows what it lacks, and `hsmux key clone` brings what can be copied"
            );
        }
    }
}

/// Members that are configured, or were since the start, and those of them that have not come yet. Only when all have
/// is it sure that a token which owes something is none of them by another name.
#[derive(Default)]
pub(super) struct UnseenMembers(Mutex<SeenSerials>);

#[derive(Default)]
struct SeenSerials {
    configured: BTreeSet<String>,
    unseen: BTreeSet<String>,
}

impl UnseenMembers {
    /// This member is configured.
    pub fn expect(&self, member: &str) {
        let mut known = self.0.lock();
        if known.configured.insert(member.to_owned()) {
            known.unseen.insert(member.to_owned());
        }
    }

    /// This one has come: all, if it is the last.
    pub fn seen(&self, member: &str) -> Option<BTreeSet<String>> {
        let mut known = self.0.lock();
        let last = known.unseen.remove(member) && known.unseen.is_empty();
        last.then(|| known.configured.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn also_members_that_are_added_later_are_waited_for() {
        let strangers = UnseenMembers::default();
        for member in ["hsm1", "hsm2"] {
            strangers.expect(member);
        }
        assert_eq!(strangers.seen("hsm1"), None);
        strangers.expect("hsm3");
        assert_eq!(strangers.seen("hsm2"), None);
        assert_eq!(strangers.seen("hsm2"), None);
        let all = strangers.seen("hsm3").unwrap();
        assert!(all.iter().eq(&["hsm1", "hsm2", "hsm3"]));
    }
}
