//! The promises of a change, by the members that are there when it begins.

use std::collections::BTreeSet;

use hsmux_token::{Made, ObjectId, Outcome, Result};

use super::change::Change;
use super::expected::{Exceptions, Expected};
use super::run::ChangeRun;
use super::token_model::TokenModel;
use crate::journal::JournalState;

/// What is known of the members when a change begins.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// Members in service.
    pub present: usize,
    /// Tokens that are away, and that the journal does not know.
    pub unseen: BTreeSet<String>,
    /// Tokens for which no key can be kept.
    pub unable: BTreeSet<String>,
    /// Tokens in service that owe a change of the same object.
    pub owing: BTreeSet<String>,
    /// The object is to be renamed to what another one is called: that is refused.
    pub is_taken: bool,
}

impl ChangeRun {
    pub(super) fn facts(&self, change: &Change) -> Facts {
        let coordinator = self.coordinator();
        let state = self.world.state();
        let away = |token: &&TokenModel| !token.serves();
        let is_known = |token: &TokenModel| {
            coordinator
                .journal
                .read(|state| state.serials.get(&token.member) == Some(&token.serial))
        };
        let serials = |which: &dyn Fn(&TokenModel) -> bool| {
            let tokens = state.tokens.iter().filter(away);
            tokens
                .filter(|token| which(token))
                .map(|token| token.serial.clone())
                .collect()
        };
        let unseen = serials(&|token| !is_known(token));
        let mut unable: BTreeSet<String> =
            serials(&|token| coordinator.transport.pin(&token.serial).is_none());
        unable.extend(self.unable.iter().cloned());
        let touched = Expected::touched(change);
        let owing = coordinator.journal.read(|state| state.debtors(&touched));
        let owing = owing.into_iter().map(|debtor| debtor.serial);
        let serving = || state.tokens.iter().filter(|token| token.serves());
        let owing = owing.filter(|serial| serving().any(|token| token.serial == *serial));
        let owing: BTreeSet<String> = owing.collect();
        let is_taken = |token: &TokenModel| match change {
            Change::Set {
                object, becomes, ..
            } => object != becomes && token.holds(*becomes).is_some(),
            _ => false,
        };
        Facts {
            is_taken: serving().any(|token| is_taken(token) && !owing.contains(&token.serial)),
            owing,
            present: serving().count(),
            unseen,
            unable,
        }
    }

    /// Tokens of which a change promises less.
    pub(super) fn exceptions(&self, change: &Change, facts: &Facts) -> Exceptions {
        let mut may_lack = facts.unseen.clone();
        if change.generates().is_some() {
            may_lack.extend(facts.unable.iter().cloned());
            if self.may_be_lone() {
                may_lack.extend(self.serials());
            }
            let state = self.world.state();
            if self.need(facts) < facts.present && state.failures.is_plan_spoilt {
                may_lack.extend(state.tokens.iter().map(|token| token.serial.clone()));
            }
        }
        Exceptions {
            may_lack,
            unseen: facts.unseen.clone(),
        }
    }

    /// One replica is enough, so a key that a token refused to copy may have been made on one token, without a plan.
    pub(super) fn may_be_lone(&self) -> bool {
        self.world.plan.replicas == 1 && self.world.state().failures.is_refused
    }

    /// An error that does not say that nothing is left of the change.
    pub(super) fn is_unclear(&self, change: &Change, answer: &Result<Outcome>) -> bool {
        let Err(error) = answer else {
            return false;
        };
        // The one token may have made it nevertheless.
        let is_lone = change.generates().is_some() && self.may_be_lone();
        is_lone || error.to_string().contains("finished or undone when")
    }

    /// A deletion that no token has confirmed, but that one of them may have done.
    pub(super) fn is_unconfirmed(answer: &Result<Outcome>) -> bool {
        answer
            .as_ref()
            .is_err_and(|error| error.to_string().contains("is finished when"))
    }

    fn serials(&self) -> Vec<String> {
        let state = self.world.state();
        state
            .tokens
            .iter()
            .map(|token| token.serial.clone())
            .collect()
    }

    /// So many members have to do a change. Those that still owe an earlier one of its objects count as away.
    fn need(&self, facts: &Facts) -> usize {
        match self.world.plan.replicas {
            0 => facts.present - facts.owing.len(),
            replicas => replicas,
        }
    }

    /// How many tokens in service hold the object that is to be changed or copied.
    pub(super) fn holders(&self, change: &Change, facts: &Facts) -> usize {
        let (Change::Copy { model: id, .. } | Change::Set { object: id, .. }) = change else {
            return usize::MAX;
        };
        // What an undecided change has made may be taken back first.
        let open = |state: &JournalState| !state.open.is_empty();
        if self.coordinator().journal.read(open) {
            return 1;
        }
        let state = self.world.state();
        let serving = state.tokens.iter().filter(|token| token.serves());
        let serving = serving.filter(|token| !facts.owing.contains(&token.serial));
        serving.filter(|token| token.holds(*id).is_some()).count()
    }

    /// The objects that are promised, and on how many tokens at least.
    pub(super) fn promised(
        &self,
        change: &Change,
        made: &[Made],
        facts: &Facts,
        holders: usize,
    ) -> Vec<(ObjectId, usize)> {
        let need = self.need(facts).min(holders);
        let wanted = match change {
            Change::GeneratePair { .. } => 2,
            Change::Set { .. } | Change::Destroy { .. } => 0,
            _ => 1,
        };
        if made.len() != wanted {
            self.world
                .fail(&format!("{change:?} is answered with {made:?}"));
        }
        let made = made.iter().map(|made| made.object.id);
        match change {
            Change::Destroy { object } => vec![(*object, 0)],
            Change::Set { becomes, .. } => vec![(*becomes, need)],
            Change::Copy { copy, .. } => vec![(*copy, need)],
            _ => made.map(|id| (id, need)).collect(),
        }
    }
}
