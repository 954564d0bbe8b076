//! Connections that are handed over to a worker: uses of one key, of which nothing is to be written down.

use std::sync::Arc;

use hsmux_token::{Blob, Error, Kind, Mechanism, ObjectId, ObjectRef, Operation, Result, Verb, ck};
use hsmux_wire::{Answerer, HandedOver};

use crate::rights::Rights;
use crate::talk::Session;

impl Session {
    /// Hands this connection over, if nothing speaks against it.
    pub fn hand_over(self: &Arc<Self>, key: ObjectId, answer: Answerer) {
        let pass = |handed: HandedOver| {
            self.may_go_direct(key)?;
            let service = &self.application.service;
            let owner = service.owner(self.who.uid);
            service.shared.pool.hand_over(key, handed.clone(), owner)?;
            self.application.note_direct(handed.clone());
            // Who has lost the right meanwhile may have been looked for before it was noted.
            self.may_go_direct(key).inspect_err(|_| handed.end())
        };
        answer.hand_over(pass, |answer| self.reply(answer));
    }

    fn may_go_direct(&self, key: ObjectId) -> Result<()> {
        let service = &self.application.service;
        let (shared, settings) = (&service.shared, service.settings.load());
        if !settings.listener.direct || settings.clients.is_pool() {
            return Err(refused("this listener does not hand over"));
        }
        if shared.audit.wants_uses() || shared.traces.are_made() {
            return Err(refused("each use is written down"));
        }
        settings.admit(self.who.uid)?;
        let catalogue = shared.pool.catalogue();
        // A worker does not know what may be done with it.
        if catalogue.get(&key).is_some_and(|entry| entry.broker_key) {
            return Err(refused("the broker's keys are not"));
        }
        let rights = Rights {
            settings: &settings,
            catalogue: &catalogue,
            logged_in: self.application.logged_in(),
        };
        // Any use stands for all: which of them the key allows is its token's to say.
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
