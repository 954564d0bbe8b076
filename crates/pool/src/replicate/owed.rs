//! What members owe, for people, and for how long it is remembered.

use super::Coordinator;
use super::journal::State;
use crate::{DebtStatus, Seat};
use hsmux_token::Error;
use hsmux_token::sync::Mutex;
use std::collections::BTreeSet;

impl State {
    /// The name of a token: of the member that it was last behind, or its serial number.
    pub(super) fn member_of(&self, serial: &str) -> String {
        let mut names = self.serials.iter();
        let found = names.find(|(_, known)| *known == serial);
        found.map_or_else(|| serial.to_owned(), |(name, _)| name.clone())
    }
}

impl Coordinator {
    /// Who owes how many changes. Asks no token.
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

/// Members that were configured when the pool was started, and those of them that have come into service since. Only
/// when all have is it sure that a token which owes something is none of them by another name.
pub(super) struct Strangers {
    pub configured: BTreeSet<String>,
    /// Members that have not come yet; nothing once all have.
    unseen: Mutex<BTreeSet<String>>,
}

impl Strangers {
    pub fn new(seats: &[Seat]) -> Self {
        let own = seats.iter().filter(|seat| !seat.connector.remote());
        let configured: BTreeSet<String> = own.map(|seat| seat.member.clone()).collect();
        Self {
            unseen: Mutex::new(configured.clone()),
            configured,
        }
    }

    /// This one has come: whether it is the last of them.
    pub fn all_seen(&self, member: &str) -> bool {
        let mut unseen = self.unseen.lock();
        unseen.remove(member) && unseen.is_empty()
    }
}
