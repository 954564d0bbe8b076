//! One connection of an application: calls in, answers out. Nothing here waits.

use std::sync::Arc;

use hsmux_config::Login;
use hsmux_pool::ClientConnection;
use hsmux_token::{
    Error, Kind, Made, ObjectRef, Operation, Outcome, Result, Scope, Secret, Snapshot,
};
use hsmux_wire::{Answer, Answerer, Call, Conversation, Reply};
use hsmux_worker::DEPTH_OF_LINKS;

use crate::application::Application;
use crate::audit::{self, Who};
use crate::execute::execute;
use crate::view;

/// Operations of one call: the reactor's thread hears nobody else while it takes them. Modules send one, another host
/// [`DEPTH_OF_LINKS`].
const MOST: u64 = 64;

/// A connection.
pub struct Talk {
    session: Arc<Session>,
    name: (u32, [u8; 16]),
}

/// What the answers need to know of a connection.
pub struct Session {
    /// Whose it is.
    pub application: Arc<Application>,
    /// For the audit trail.
    pub who: Who,
    /// The pool, as long as somebody waits for what is asked of it.
    pub connection: ClientConnection,
}

impl Talk {
    /// A connection of an application.
    pub fn new(application: Arc<Application>, name: (u32, [u8; 16]), who: Who) -> Self {
        let connection = application.pool_session.connect();
        let session = Arc::new(Session {
            application,
            who,
            connection,
        });
        Self { session, name }
    }
}

impl Conversation for Talk {
    fn most_operations(&self) -> u64 {
        if self.session.application.service.settings.load().of_host {
            DEPTH_OF_LINKS as u64
        } else {
            MOST
        }
    }

    fn call(&self, call: Call, answer: Answerer) {
        let session = &self.session;
        // Who was let in may have been taken out of the configuration since.
        let settings = session.application.service.settings.load();
        if let Err(error) = settings.admit(session.who.uid) {
            let shared = &session.application.service.shared;
            let _ = shared.keep_out(&session.who, &error);
            // A host that is let in no longer goes on with its other members.
            let error = if settings.of_host {
                Error::lost(error.to_string())
            } else {
                error
            };
            return answer.send(&session.reply(Answer::Failed(error)));
        }
        match call {
            Call::Execute(items) => execute(session, items, answer),
            Call::Catalogue { known } => session.catalogue(known, answer),
            Call::Info => {
                let info = session.view().info.clone();
                answer.send(&session.reply(Answer::Info(info)));
            }
            Call::Login(pin) => session.login(pin, answer),
            Call::Logout => {
                session.application.log_out();
                answer.send(&session.reply(Answer::Done));
            }
            Call::HandOver(key) => session.hand_over(key, answer),
            Call::Admin(_) => session.refuse("administration has a socket of its own", answer),
            Call::Objects if settings.of_host => session.objects(answer),
            Call::Look if settings.of_host => {
                let seen = session.application.tell(&session.view());
                answer.send(&session.reply(Answer::Seen(seen)));
            }
            Call::Pace if settings.of_host => {
                answer.send(&session.reply(Answer::Pace(Vec::new())));
            }
            Call::Objects | Call::Start(_) | Call::Look | Call::Pace => {
                session.refuse("that is for workers", answer);
            }
        }
    }

    fn logged_in(&self) -> bool {
        self.session.application.logged_in()
    }

    fn answer_bytes(&self, call: &Call) -> usize {
        let session = &self.session;
        let objects = match call {
            Call::Catalogue { known } => {
                let (view, bytes) = session.sized_view();
                if view.epoch == *known { 0 } else { bytes }
            }
            Call::Objects | Call::Look => session.sized_view().1,
            Call::Execute(items) => {
                let copied = items.iter().map(|item| session.copied(&item.operation));
                copied.fold(0, usize::saturating_add)
            }
            _ => 0,
        };
        call.answer_bytes().saturating_add(objects)
    }

    fn closed(&self) {
        self.session.connection.end();
        self.session.application.service.leave(self.name);
    }
}

impl Session {
    /// An answer, with the epoch as the application sees it.
    pub fn reply(&self, answer: Answer) -> Reply {
        let service = &self.application.service;
        let catalogue = service.shared.pool.catalogue();
        let logged_in = self.application.logged_in();
        let epoch = view::epoch(&catalogue, &service.settings.load(), logged_in);
        Reply::new(epoch, answer)
    }

    fn view(&self) -> Arc<hsmux_wire::View> {
        self.sized_view().0
    }

    /// How many bytes the object has that is read or copied.
    fn copied(&self, operation: &Operation) -> usize {
        let (Operation::Read { object } | Operation::Copy { object, .. }) = operation else {
            return 0;
        };
        match object {
            ObjectRef::Session(object) => self.application.bytes_of(object),
            ObjectRef::Token(id) => {
                let catalogue = self.application.service.shared.pool.catalogue();
                catalogue.get(id).map_or(0, |entry| entry.object.bytes())
            }
        }
    }

    fn sized_view(&self) -> (Arc<hsmux_wire::View>, usize) {
        let service = &self.application.service;
        let catalogue = service.shared.pool.catalogue();
        let logged_in = self.application.logged_in();
        service
            .views
            .get(&catalogue, &service.settings.load(), logged_in)
    }

    fn objects(&self, answer: Answerer) {
        let view = self.view();
        self.application.tell(&view);
        let snapshot = Snapshot {
            epoch: view.epoch,
            objects: view.objects.clone(),
        };
        answer.send(&self.reply(Answer::Objects(snapshot)));
    }

    /// An answer as whoever asked may have it.
    pub fn result(&self, result: Result<Outcome>) -> Result<Outcome> {
        if !self.application.service.settings.load().of_host {
            return result;
        }
        match result {
            Ok(Outcome::Objects(made)) => Ok(Outcome::Objects(
                made.into_iter().map(shown_to_hosts).collect(),
            )),
            // What another host may not do here, or cannot, one of its other members perhaps can.
            Err(error) if matches!(error.kind(), Kind::Forbidden | Kind::NoMechanism) => {
                Err(error.with_scope(Scope::Pool))
            }
            result => result,
        }
    }

    fn catalogue(&self, known: u64, answer: Answerer) {
        let view = self.view();
        let news = (view.epoch != known).then(|| hsmux_wire::View::clone(&view));
        answer.send(&Reply::new(view.epoch, Answer::Catalogue(news)));
    }

    fn login(self: &Arc<Self>, pin: Secret, answer: Answerer) {
        let service = &self.application.service;
        let settings = service.settings.load();
        if settings.listener.login == Login::Peer {
            self.application.log_in();
            service.end_free_logins(&self.application);
            return answer.send(&self.reply(Answer::Done));
        }
        let against = match &settings.pin {
            Ok(against) => Arc::clone(against),
            Err(error) => return answer.send(&self.reply(Answer::Failed(error.clone()))),
        };
        let session = Arc::clone(self);
        service
            .shared
            .gate
            .judge(self.who.uid, pin, against, move |result| {
                let is_worth_a_line = session.record_login(&result);
                let said = match result {
                    Ok(()) => {
                        session.application.log_in();
                        Answer::Done
                    }
                    Err(error) => {
                        let Who { uid, pid, .. } = session.who;
                        let program = session.who.program();
                        if is_worth_a_line {
                            tracing::warn!(uid, pid, program, %error, "login refused");
                        }
                        Answer::Failed(error)
                    }
                };
                answer.send(&session.reply(said));
            });
    }

    /// A PIN that was looked at has a line; how often none was is counted. Whether there is one.
    fn record_login(&self, result: &Result<()>) -> bool {
        let shared = &self.application.service.shared;
        match result {
            Err(error) if error.kind() != Kind::PinIncorrect => {
                let why = error.to_string();
                shared.refusals.record(&self.who, audit::LOGIN, &why)
            }
            _ => {
                shared.audit.record(audit::login(&self.who, result));
                true
            }
        }
    }

    fn refuse(&self, why: &str, answer: Answerer) {
        let error = Error::request(Kind::Forbidden, why);
        answer.send(&self.reply(Answer::Failed(error)));
    }
}

/// A token's key, without what is secret of it, whatever the token would show.
fn shown_to_hosts(made: Made) -> Made {
    match made.session {
        Some(_) => made,
        None => Made {
            object: made.object.without_secrets(),
            ..made
        },
    }
}
