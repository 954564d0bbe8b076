//! The administration's listener: admits users, and runs each request on a thread of its own.

use std::sync::{Arc, Weak};

use hsmux_token::{Blob, Error, Kind, Result};
use hsmux_wire::{Answer, Answerer, Call, Conversation, Hello, Peer, Reply, Service};

use super::{AdminFailure, AdminRequest, AdminResponse, act};
use crate::audit::{self, Who};
use crate::daemon::{ControlEvent, Running};
use crate::settings::is_own;

/// The listener. Refers to the daemon weakly, because the daemon owns it.
pub struct AdminService(pub Weak<Running>);

/// One connection of an administrator.
struct AdminConnection {
    running: Weak<Running>,
    who: Who,
}

impl Service for AdminService {
    fn boot(&self) -> u64 {
        self.0.upgrade().map_or(0, |running| running.shared.boot)
    }

    fn open(&self, peer: Peer, hello: &Hello) -> Result<Arc<dyn Conversation>> {
        let running = self.0.upgrade().ok_or_else(stopping)?;
        let who = Who::new(peer.uid, peer.pid, &hello.program);
        if !is_own(peer.uid) && !running.administrators().contains(&peer.uid) {
            let message = "administration is for root and the daemon's own user; \
                           [admin] allow_users may name others";
            let refusals = &running.shared.refusals;
            if refusals.record(&who, "administration", message) {
                tracing::warn!(%peer, program = who.program(), "administration refused");
            }
            return Err(Error::request(Kind::Forbidden, message));
        }
        let running = Weak::clone(&self.0);
        Ok(Arc::new(AdminConnection { running, who }))
    }
}

impl Conversation for AdminConnection {
    fn call(&self, call: Call, answer: Answerer) {
        let Call::Admin(json) = call else {
            let message = "this socket is for administration; applications have another";
            let error = Error::request(Kind::Forbidden, message);
            return answer.send(&Reply::new(0, Answer::Failed(error)));
        };
        let request = match serde_json::from_slice(&json) {
            Ok(request) => request,
            Err(e) => {
                let message = format!("not a request of administration: {e}");
                let error = Error::request(Kind::Protocol, message);
                return send(answer, &AdminResponse::Failed(error.into()));
            }
        };
        let (running, who) = (Weak::clone(&self.running), self.who.clone());
        // A request may take minutes. Without a thread the answer is dropped, which tells the client so.
        let spawned = std::thread::Builder::new()
            .name("hsmux-admin".into())
            .spawn(move || {
                send(answer, &carry_out(&running, &who, &request));
                if let (AdminRequest::Stop, Some(running)) = (request, running.upgrade()) {
                    running.tell(ControlEvent::Stop);
                }
            });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for an administrative act");
        }
    }
}

fn carry_out(running: &Weak<Running>, who: &Who, request: &AdminRequest) -> AdminResponse {
    let Some(running) = running.upgrade() else {
        return AdminResponse::Failed(stopping().into());
    };
    let trail = &running.shared.audit;
    let act = audit::summary(request);
    if let Err(error) = audit::announce(trail, who, request) {
        tracing::warn!(uid = who.uid, pid = who.pid, act, why = %error, "administration");
        return AdminResponse::Failed(error.into());
    }
    let result = act::carry_out(&running, request);
    if request.acts() {
        let outcome = result.as_ref().map(|_| ()).map_err(ToString::to_string);
        match &outcome {
            Ok(()) => tracing::info!(uid = who.uid, pid = who.pid, act, "administration"),
            Err(why) => tracing::warn!(uid = who.uid, pid = who.pid, act, why, "administration"),
        }
        if let Err(error) = trail.commit(audit::ended(who, request, &outcome)) {
            tracing::error!(%error, act, "an administrative act is not on the audit trail");
        }
    }
    result.unwrap_or_else(AdminResponse::Failed)
}

fn send(answer: Answerer, response: &AdminResponse) {
    let json = serde_json::to_vec(response).unwrap_or_default();
    answer.send(&Reply::new(0, Answer::Admin(Blob::from(json))));
}

fn stopping() -> Error {
    Error::pool(Kind::NoReplica, "the daemon is stopping")
}

impl From<AdminFailure> for AdminResponse {
    fn from(failure: AdminFailure) -> Self {
        Self::Failed(failure)
    }
}
