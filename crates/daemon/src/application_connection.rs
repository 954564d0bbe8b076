//! One connection of an application: takes calls and sends answers. Nothing here blocks.

use std::sync::Arc;

use hsmux_config::Login;
use hsmux_pool::{Catalogue, ClientConnection};
use hsmux_token::{
    Error, Kind, Made, ObjectChanges, ObjectRef, Operation, Outcome, Result, Scope, Secret,
    Snapshot,
};
use hsmux_wire::{Answer, Answerer, Call, Conversation, ESTIMATED, Reply, WITHDRAWN};
use hsmux_worker::DEPTH_OF_LINKS;

use crate::application::Application;
use crate::audit::{self, Who};
use crate::execute::execute;
use crate::readings::readings;
use crate::settings::Clients;
use crate::view;

/// The most operations in one call: the reactor's thread serves no other connection while it takes them. Modules send
/// one, another host [`DEPTH_OF_LINKS`].
const MOST: u64 = 64;

/// A connection of an application.
pub struct ApplicationConnection {
    context: Arc<ConnectionContext>,
    name: (u32, [u8; 16]),
}

/// The data of a connection that its answers need.
pub struct ConnectionContext {
    /// The application.
    pub application: Arc<Application>,
    /// The user and program, for the audit trail.
    pub who: Who,
    /// The connection to the pool. Its requests are cancelled when this one closes.
    pub connection: ClientConnection,
}

impl ApplicationConnection {
    /// A connection of an application.
    pub fn new(application: Arc<Application>, name: (u32, [u8; 16]), who: Who) -> Self {
        let connection = application.pool_session.connect();
        let context = Arc::new(ConnectionContext {
            application,
            who,
            connection,
        });
        Self { context, name }
    }
}

impl Conversation for ApplicationConnection {
    fn most_operations(&self) -> u64 {
        if self
            .context
            .application
            .service
            .settings
            .load()
            .clients
            .is_pool()
        {
            DEPTH_OF_LINKS as u64
        } else {
            MOST
        }
    }

    fn call(&self, call: Call, answer: Answerer) {
        let context = &self.context;
        // The configuration may have changed since the connection was admitted.
        let settings = context.application.service.settings.load();
        if let Err(error) = settings.admit(context.who.uid) {
            let shared = &context.application.service.shared;
            let _ = shared.keep_out(&context.who, &error);
            // A host that is refused from now on should use its other members.
            let error = if settings.clients.is_pool() {
                Error::lost(error.to_string())
            } else {
                error
            };
            return answer.send(&context.reply(Answer::Failed(error)));
        }
        match call {
            Call::Execute(items) => execute(context, items, answer),
            Call::Catalogue { known } => context.catalogue(known, answer),
            Call::Info => {
                let info = context.view().info.clone();
                answer.send(&context.reply(Answer::Info(info)));
            }
            Call::Login(pin) => context.login(pin, answer),
            Call::Logout => {
                context.application.log_out();
                answer.send(&context.reply(Answer::Done));
            }
            Call::HandOver(key) => context.hand_over(key, answer),
            Call::Admin(_) => context.refuse("administration has a socket of its own", answer),
            Call::Objects if settings.clients.is_pool() => context.objects(answer),
            Call::Look if settings.clients.is_pool() => {
                let (view, is_partial) = context.pool_view();
                let seen = ObjectChanges {
                    is_partial,
                    ..context.application.tell(&view)
                };
                answer.send(&context.reply(Answer::Seen(seen)));
            }
            Call::Pace if settings.clients.is_pool() => {
                answer.send(&context.reply(Answer::Pace(Vec::new())));
            }
            Call::Estimates(keys) if settings.clients.is_service() && keys.len() <= ESTIMATED => {
                let pool = &context.application.service.shared.pool;
                let estimates = keys.iter().map(|key| pool.estimate(key)).collect();
                answer.send(&context.reply(Answer::Estimates(estimates)));
            }
            Call::Withdraw(requests)
                if settings.clients.is_service() && requests.len() <= WITHDRAWN =>
            {
                context.application.withdraw(&requests);
                answer.send(&context.reply(Answer::Done));
            }
            Call::Readings if settings.clients.is_service() => {
                let readings = readings(&context.application.service.shared);
                answer.send(&context.reply(readings.map_or_else(Answer::Failed, Answer::Readings)));
            }
            Call::Estimates(_) | Call::Withdraw(_) | Call::Readings => {
                context.refuse("that is for services, and for so many keys at once", answer);
            }
            Call::Objects | Call::Start(_) | Call::Look | Call::Pace => {
                context.refuse("that is for workers", answer);
            }
        }
    }

    fn logged_in(&self) -> bool {
        self.context.application.logged_in()
    }

    fn answer_bytes(&self, call: &Call) -> usize {
        let context = &self.context;
        let objects = match call {
            Call::Catalogue { known } => {
                let (view, bytes) = context.sized_view();
                if view.epoch == *known { 0 } else { bytes }
            }
            Call::Objects | Call::Look => context.sized_view().1,
            Call::Execute(items) => {
                let copied = items.iter().map(|item| context.copied(&item.operation));
                copied.fold(0, usize::saturating_add)
            }
            _ => 0,
        };
        call.answer_bytes().saturating_add(objects)
    }

    fn closed(&self) {
        self.context.connection.end();
        self.context.application.service.leave(self.name);
    }
}

impl ConnectionContext {
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

    /// The size in bytes of the object that is read or copied.
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
        self.view_of(&self.application.service.shared.pool.catalogue())
    }

    fn view_of(&self, catalogue: &Catalogue) -> (Arc<hsmux_wire::View>, usize) {
        let service = &self.application.service;
        let logged_in = self.application.logged_in();
        service
            .views
            .get(catalogue, &service.settings.load(), logged_in)
    }

    /// The view for another pool, and whether members that are away may have more objects.
    fn pool_view(&self) -> (Arc<hsmux_wire::View>, bool) {
        let catalogue = self.application.service.shared.pool.catalogue();
        (self.view_of(&catalogue).0, !catalogue.is_complete())
    }

    fn objects(&self, answer: Answerer) {
        let (view, is_partial) = self.pool_view();
        self.application.tell(&view);
        let snapshot = Snapshot {
            is_partial,
            epoch: view.epoch,
            objects: view.objects.clone(),
        };
        answer.send(&self.reply(Answer::Objects(snapshot)));
    }

    /// The result as the application may see it.
    pub fn result(&self, result: Result<Outcome>) -> Result<Outcome> {
        if self.application.service.settings.load().clients != Clients::Host {
            return result;
        }
        match result {
            Ok(Outcome::Objects(made)) => Ok(Outcome::Objects(
                made.into_iter().map(shown_to_hosts).collect(),
            )),
            // Another member of that host may be able to do it, so the error is the pool's.
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
        let context = Arc::clone(self);
        service
            .shared
            .gate
            .judge(self.who.account, pin, against, move |result| {
                let is_worth_a_line = context.record_login(&result);
                let said = match result {
                    Ok(()) => {
                        context.application.log_in();
                        Answer::Done
                    }
                    Err(error) => {
                        let Who { uid, pid, .. } = context.who;
                        let program = context.who.program();
                        if is_worth_a_line {
                            tracing::warn!(uid, pid, program, %error, "login refused");
                        }
                        Answer::Failed(error)
                    }
                };
                answer.send(&context.reply(said));
            });
    }

    /// Records a login. Each PIN that was checked has a line; logins without a check are counted. True if there is a
    /// line.
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

/// Removes secret attributes from a token's key, even those that the token would show.
fn shown_to_hosts(made: Made) -> Made {
    match made.session {
        Some(_) => made,
        None => Made {
            object: made.object.without_secrets(),
            ..made
        },
    }
}
