//! Logins of several threads under random orders ([shuttle](https://docs.rs/shuttle)).

use std::mem;
use std::sync::Arc;

use hsmux_token::sync::Mutex;
use hsmux_token::sync::shuttle::thread;
use hsmux_token::sync::{Deadlines, in_many_orders};
use hsmux_token::{
    Attributes, Class, Error, Mechanism, MechanismInfo, Object, ObjectId, Operation, Outcome,
    Params, TokenInfo,
};
use hsmux_wire::View;

use super::*;
use crate::backend::Backend;
use crate::crypt::{ActiveOperation, Function};

/// Orders of threads that each test tries, of each kind.
const ORDERS: usize = 10_000;

/// The daemon, and what it shows.
#[derive(Clone, Default)]
struct ModelBackend(Arc<Mutex<Model>>);

#[derive(Default)]
struct Model {
    is_user: bool,
    /// A login or logout is under way.
    is_asked: bool,
    /// Public objects.
    certificates: usize,
}

impl ModelBackend {
    fn is_user(&self) -> bool {
        self.0.lock().is_user
    }

    /// Others run before the daemon knows.
    fn set_user(&self, is_user: bool) {
        let was_asked = mem::replace(&mut self.0.lock().is_asked, true);
        assert!(!was_asked, "one thread at a time asks");
        thread::yield_now();
        let mut model = self.0.lock();
        model.is_user = is_user;
        model.is_asked = false;
    }

    /// Another program adds a certificate. Returns how many there are.
    fn add(&self) -> usize {
        let mut model = self.0.lock();
        model.certificates += 1;
        model.certificates
    }
}

impl Model {
    fn objects(&self) -> Vec<Object> {
        let object = |name: String, class: Class, private: bool| {
            let mut attributes = Attributes::default();
            attributes.set_number(CKA_CLASS, class.0);
            attributes.set_flag(CKA_TOKEN, true);
            attributes.set_flag(CKA_PRIVATE, private);
            attributes.set_number(CKA_KEY_TYPE, CKK_EC);
            let id = ObjectId::of_certificate(name.as_bytes());
            Object { id, attributes }
        };
        let public = (0..self.certificates)
            .map(|number| object(format!("public {number}"), Class::CERTIFICATE, false));
        let private = || object("private".to_owned(), Class::PRIVATE_KEY, true);
        public.chain(self.is_user.then(private)).collect()
    }
}

impl Backend for ModelBackend {
    fn deadline(&self) -> Instant {
        Instant::now()
    }

    fn execute(&self, operation: &Operation) -> hsmux_token::Result<Outcome> {
        match operation {
            Operation::Begin { .. } => Ok(Outcome::Done),
            other => Err(Error::lost(other.call().to_owned())),
        }
    }

    fn view(&self, known: u64) -> hsmux_token::Result<Option<View>> {
        let model = self.0.lock();
        let epoch = 1 + 2 * model.certificates as u64 + u64::from(model.is_user);
        let signs = MechanismInfo {
            kind: CKM_ECDSA,
            min_key: 256,
            max_key: 256,
            flags: CKF_SIGN,
        };
        let info = TokenInfo {
            mechanisms: vec![signs],
            ..TokenInfo::default()
        };
        let view = View {
            epoch,
            info,
            logged_in: model.is_user,
            objects: model.objects(),
        };
        Ok((epoch != known).then_some(view))
    }

    fn login(&self, _: Secret) -> hsmux_token::Result<()> {
        self.set_user(true);
        Ok(())
    }

    fn confirm(&self, _: &Secret) -> hsmux_token::Result<()> {
        Ok(())
    }

    fn logout(&self) -> hsmux_token::Result<()> {
        self.set_user(false);
        Ok(())
    }
}

/// Opens a session, logs in and closes it, as a program's threads do that know nothing of each other.
fn visit(app: &App, _: &ModelBackend) {
    let session = log_in(app);
    app.close(session).expect("an open session");
}

/// As [`visit`], and sees for a while that the login lasts.
fn stay(app: &App, backend: &ModelBackend) {
    let session = log_in(app);
    for _ in 0..40 {
        thread::yield_now();
        assert!(
            app.is_user() && backend.is_user(),
            "the login lasts while a session is open"
        );
    }
    app.close(session).expect("an open session");
}

fn log_in(app: &App) -> u64 {
    let session = app.sessions.open(true);
    let pin = || Secret::new(b"1234".to_vec());
    // Deadlines pass at random times.
    while let Err(Rv(code)) = app.login(session, CKU_USER, pin()) {
        if code == CKR_USER_ALREADY_LOGGED_IN {
            break;
        }
        assert_eq!(code, CKR_FUNCTION_FAILED, "C_Login");
    }
    session
}

fn log_out(app: &App, session: u64) {
    while let Err(Rv(code)) = app.logout(session) {
        assert_eq!(code, CKR_FUNCTION_FAILED, "C_Logout");
    }
}

fn find(app: &App, session: u64, class: Class) -> Vec<u64> {
    let mut template = Attributes::default();
    template.set_number(CKA_CLASS, class.0);
    app.search(session, &template).expect("a search");
    let found = app.next_found(session, 9).expect("its result");
    app.end_search(session).expect("its end");
    found
}

fn check(work: [fn(&App, &ModelBackend); 3]) {
    let run = move || {
        let backend = ModelBackend::default();
        let app = Arc::new(App::new(Box::new(backend.clone())));
        let threads = work.map(|work| {
            let (app, backend) = (Arc::clone(&app), backend.clone());
            thread::spawn(move || work(&app, &backend))
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(
            !app.is_user() && !backend.is_user(),
            "the login ends with the last session"
        );
        let shown = app.objects.catalogue();
        let is_private = |entry: &Arc<ObjectEntry>| entry.is_private();
        assert!(
            !shown.logged_in && !shown.iter().any(is_private),
            "nothing private is shown after it"
        );
        let sessions = (0..9).filter_map(|session| app.sessions.get(session).ok());
        for session in sessions {
            let state = session.state();
            let is_private = |active: &ActiveOperation| active.is_private();
            assert!(!state.active.iter().any(is_private), "nor is it used");
        }
    };
    in_many_orders(ORDERS, Deadlines::Pass, run);
}

#[test]
fn a_login_by_a_session_that_another_thread_closes_ends_with_it() {
    let log_in: fn(&App, &ModelBackend) = |app, _| {
        let session = app.sessions.open(true);
        let pin = Secret::new(b"1234".to_vec());
        let _ = app.login(session, CKU_USER, pin);
        // Whoever comes second finds it closed.
        let _ = app.close(session);
    };
    let close_all: fn(&App, &ModelBackend) = |app, _| app.close_all();
    check([log_in, close_all, close_all]);
}

#[test]
fn a_login_lasts_until_the_last_session_is_closed() {
    check([visit, stay, visit]);
}

#[test]
fn a_catalogue_that_was_asked_for_before_a_logout_is_not_shown_after_it() {
    let read: fn(&App, &ModelBackend) = |app, _| app.refresh().expect("the backend answers");
    check([read, visit, read]);
}

#[test]
fn public_objects_stay_visible_while_another_thread_logs_out() {
    let search: fn(&App, &ModelBackend) = |app, backend| {
        let session = app.sessions.open(true);
        for _ in 0..2 {
            let there = backend.add();
            let found = find(app, session, Class::CERTIFICATE);
            assert!(found.len() >= there, "{} of {there} are found", found.len());
            thread::yield_now();
            assert!(found.iter().all(|handle| app.objects.get(*handle).is_ok()));
        }
        app.close(session).expect("an open session");
    };
    check([search, come_and_go, search]);
}

/// Logs in and out by C_Logout.
fn come_and_go(app: &App, _: &ModelBackend) {
    let session = log_in(app);
    log_out(app, session);
    app.close(session).expect("an open session");
}

#[test]
fn no_operation_with_a_private_key_outlives_a_logout() {
    let sign: fn(&App, &ModelBackend) = |app, _| {
        let session = app.sessions.open(true);
        for _ in 0..3 {
            for key in find(app, session, Class::PRIVATE_KEY) {
                let ecdsa = Mechanism {
                    kind: CKM_ECDSA,
                    params: Params::None,
                };
                let _ = app.begin(session, Function::Sign, Some(ecdsa), key);
            }
        }
        // It stays open.
    };
    check([sign, come_and_go, sign]);
}
