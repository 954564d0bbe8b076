//! A daemon in a temporary folder, and an application of it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_daemon::Daemon;
use hsmux_daemon::admin::{AdminClient, AdminRequest, AdminResponse, DaemonStatus};
use hsmux_pool::Seat;
use hsmux_token::fake::{FakeToken, write_secret};
use hsmux_token::{
    Attributes, Class, Error, Made, Object, ObjectId, ObjectRef, Operation, Outcome, Result,
    Secret, SessionObject, Token, ck,
};
use hsmux_wire::{Answer, Call, Client, Endpoint, Item, View};
use parking_lot::Mutex;
use serde_json::Value;

/// Sockets, PIN and member are there; tests add to `[daemon]`.
const CONFIG: &str = "[pool]\nlabel = \"web\"\n\
    [[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=fake\"\n\
    [daemon]\nsocket = \"hsmux.sock\"\n";

/// The pool's PIN.
pub const PIN: &str = "pool-pin";

pub struct Rig {
    pub daemon: Option<Daemon>,
    /// Session objects that the token holds.
    pub held: Arc<Mutex<HashSet<u64>>>,
    /// The token as it was connected last.
    pub token: Arc<Mutex<Option<Arc<FakeToken>>>>,
    folder: tempfile::TempDir,
}

impl Rig {
    /// With further lines of `[daemon]` and sections after it.
    pub fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut rig = Self {
            daemon: None,
            held: Arc::default(),
            token: Arc::default(),
            folder,
        };
        write_secret(&rig.path("pool.pin"), PIN);
        rig.configure(more);
        let config =
            hsmux_config::load(&rig.path("hsmux.toml")).unwrap_or_else(|m| panic!("{m:#?}"));
        let (held, last) = (Arc::clone(&rig.held), Arc::clone(&rig.token));
        let seat = Seat {
            name: "fake".into(),
            member: "fake".into(),
            weight: 1,
            timeout: Duration::from_secs(60),
            connector: Arc::new(move || {
                let token = token(&held);
                *last.lock() = Some(Arc::clone(&token));
                Ok(token as Arc<dyn Token>)
            }),
        };
        rig.daemon = Some(Daemon::start_with(config, vec![seat]).unwrap());
        until("the member serves", || {
            rig.status().members[0].in_service == 1
        });
        rig
    }

    pub fn configure(&self, more: &str) {
        let pin = if more.contains("peer") {
            ""
        } else {
            "pin = { file = \"pool.pin\" }\n"
        };
        fs::write(self.path("hsmux.toml"), format!("{CONFIG}{pin}{more}\n")).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn application(&self) -> Application {
        Application::connect(&self.path("hsmux.sock")).unwrap()
    }

    pub fn ask(&self, request: &AdminRequest) -> AdminResponse {
        let admin = AdminClient::connect(&self.path("hsmux-admin.sock")).unwrap();
        admin.ask(request).unwrap()
    }

    /// The lines of the trail, without its checkpoints.
    pub fn trail(&self) -> Vec<Value> {
        events(&self.path("state/audit.log"))
    }

    pub fn status(&self) -> DaemonStatus {
        match self.ask(&AdminRequest::Status) {
            AdminResponse::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }
}

/// A program that speaks to the daemon.
pub struct Application(pub Client);

impl Application {
    pub fn connect(socket: &Path) -> Result<Self> {
        Client::connect(Endpoint::from(socket), "test").map(Self)
    }

    pub fn call(&self, call: Call) -> Result<Answer> {
        Ok(self.0.call(call, soon())?.answer)
    }

    pub fn login(&self, pin: &str) -> Result<()> {
        self.call(Call::Login(Secret::new(pin.into()))).map(|_| ())
    }

    pub fn run(&self, operation: &Operation) -> Result<Outcome> {
        self.0.execute(operation, soon())
    }

    /// Several at once.
    pub fn run_all(&self, operations: Vec<Operation>) -> Vec<Result<Outcome>> {
        let item = |operation| Item {
            behalf: None,
            operation,
            remaining_us: 5_000_000,
        };
        let items = operations.into_iter().map(item).collect();
        match self.call(Call::Execute(items)).unwrap() {
            Answer::Results(results) => results,
            other => panic!("{other:?}"),
        }
    }

    pub fn view(&self) -> View {
        match self.call(Call::Catalogue { known: 0 }).unwrap() {
            Answer::Catalogue(Some(view)) => view,
            other => panic!("{other:?}"),
        }
    }

    /// The labels of what it sees.
    pub fn sees(&self) -> Vec<String> {
        let objects = self.view().objects;
        let mut labels: Vec<_> = objects
            .iter()
            .filter_map(|object| object.attributes.text(ck::CKA_LABEL))
            .collect();
        labels.sort_unstable();
        labels
    }

    pub fn make_session_object(&self) -> Result<SessionObject> {
        let made = self.run(&create("mine", false))?.into_objects()?;
        Ok(made[0].session.unwrap())
    }
}

pub fn create(label: &str, token: bool) -> Operation {
    let template = data(label, false)
        .attributes
        .with_flag(ck::CKA_TOKEN, token);
    Operation::Create {
        template,
        near: None,
    }
}

pub fn read(object: SessionObject) -> Operation {
    let object = ObjectRef::Session(object);
    Operation::Read { object }
}

/// An object of the token; data objects need no proof.
pub fn data(label: &str, private: bool) -> Object {
    let attributes = Attributes::default()
        .with_number(ck::CKA_CLASS, ck::CKO_DATA)
        .with(ck::CKA_LABEL, label.as_bytes().to_vec())
        .with_flag(ck::CKA_PRIVATE, private);
    Object {
        id: ObjectId::of_data(b"", label.as_bytes(), b""),
        attributes,
    }
}

/// A public key, with which the token answers the data as it came.
pub fn public_key(label: &str) -> Object {
    let attributes = Attributes::default()
        .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
        .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
        .with(ck::CKA_LABEL, label.as_bytes().to_vec());
    Object {
        id: ObjectId::of_public_key(Class::PUBLIC_KEY, label.as_bytes()),
        attributes: attributes.with_flag(ck::CKA_PRIVATE, false),
    }
}

/// The same as one of the broker's keys.
fn of_broker(mut key: Object) -> Object {
    key.attributes.set(ck::CKA_ID, b"hsmb\x01rest".to_vec());
    key
}

/// Holds two open objects, a private one, two keys and one of the broker; makes and destroys session objects.
fn token(held: &Arc<Mutex<HashSet<u64>>>) -> Arc<FakeToken> {
    let held = Arc::clone(held);
    let next = AtomicU64::new(1);
    let objects = vec![
        data("open", false),
        data("private", true),
        public_key("web"),
        public_key("mail"),
        of_broker(public_key("managed")),
    ];
    let answer = move |operation: &Operation| match operation {
        Operation::Create { template, .. } => {
            let handle = next.fetch_add(1, Ordering::Relaxed);
            held.lock().insert(handle);
            let mut object = data("mine", false);
            object.attributes = template.clone();
            let session = Some(SessionObject { owner: 0, handle });
            Ok(Outcome::Objects(vec![Made { session, object }]))
        }
        // As tokens do that do not know a use.
        Operation::Generate { template, .. } if template.flag(ck::CKA_DERIVE).is_some() => Err(
            Error::vendor(operation.call(), ck::CKR_TEMPLATE_INCONSISTENT),
        ),
        Operation::Generate { .. } => Ok(Outcome::Objects(vec![Made {
            session: None,
            object: data("made", false),
        }])),
        Operation::Destroy {
            object: ObjectRef::Session(object),
        } => {
            held.lock().remove(&object.handle);
            Ok(Outcome::Done)
        }
        Operation::Use { data, .. } => Ok(Outcome::Bytes(data.clone())),
        Operation::Random { len } => Ok(Outcome::Bytes(vec![7; *len as usize].into())),
        Operation::Read { .. } => Ok(Outcome::Done),
        other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
    };
    FakeToken::builder("fake")
        .lanes(4)
        .objects(objects)
        .answer(answer)
        .build()
}

/// The lines of a trail's file, without its checkpoints.
pub fn events(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &Value| line["checkpoint"].is_null())
        .collect()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

pub fn until(what: &str, reached: impl Fn() -> bool) {
    let end = soon();
    while !reached() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
