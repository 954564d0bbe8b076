//! Hands over connections to a worker, for uses of one key that are not recorded.

use std::sync::Arc;

use hsmux_token::{Blob, Error, Kind, Mechanism, ObjectId, ObjectRef, Operation, Result, Verb, ck};
use hsmux_wire::{Answerer, HandedOver};

use crate::application_connection::ConnectionContext;
use crate::rights::Rights;
use crate::settings::Clients;

impl ConnectionContext {
    /// Hands this connection over, if that is allowed.
    pub fn hand_over(self: &Arc<Self>, key: ObjectId, answer: Answerer) {
        let pass = |handed: HandedOver| {
            self.may_go_direct(key)?;
            let service = &self.application.service;
            let owner = service.owner(self.who.account);
            service.shared.pool.hand_over(key, handed.clone(), owner)?;
            self.application.note_direct(handed.clone());
            // Checked again: if the rights changed before the note above, that change did not end this connection.
            self.may_go_direct(key).inspect_err(|_| handed.end())
        };
        answer.hand_over(pass, |answer| self.reply(answer));
    }

    fn may_go_direct(&self, key: ObjectId) -> Result<()> {
        let service = &self.application.service;
        let (shared, settings) = (&service.shared, service.settings.load());
        if !settings.hands_over() {
            return Err(refused("this listener does not hand over"));
        }
        if shared.audit.wants_uses() || shared.traces.are_made() {
            return Err(refused("each use is written down"));
        }
        settings.admit(self.who.uid)?;
        let catalogue = shared.pool.catalogue();
        // A worker does not know the rights on the broker's keys. The broker has all of them.
        let is_guarded = settings.clients != Clients::Broker;
        if is_guarded && catalogue.get(&key).is_some_and(|entry| entry.broker_key) {
            return Err(refused("the broker's keys are not"));
        }
        let rights = Rights {
            settings: &settings,
            catalogue: &catalogue,
            logged_in: self.application.logged_in(),
        };
        // One use is checked for all of them: the token itself checks which uses the key allows.
        let operation = Operation::Use {
            verb: Verb::Sign,
            key: ObjectRef::Token(key),
            mechanism: Mechanism::plain(ck::CKM_ECDSA),
            data: Blob::default(),
        };
        rights.check(&operation, |_| None)
    }
}

fn refused(why: &str) -> Error {
    Error::request(Kind::Unsupported, format!("not handed over: {why}"))
}
