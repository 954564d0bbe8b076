//! The order of an operation with a line on the trail: it is admitted, a token works, the line is given to the trail,
//! and then the answer is sent.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use hsmux_audit::{Actor, Event, Trail};
use hsmux_pool::Seat;
use hsmux_token::fake::FakeToken;
use hsmux_token::{Attributes, Blob, Class, Mechanism, Object, Secret, Token, Verb, ck};
use hsmux_wire::{Call, Client, Endpoint};

use super::*;
use crate::Daemon;

/// The lines that may wait for the disk, by `docs/audit.md`.
const WAITING: usize = 65_536;

const LONG: Duration = Duration::from_secs(60);

struct Rig {
    daemon: Daemon,
    token: Arc<FakeToken>,
    client: Arc<Client>,
    folder: tempfile::TempDir,
}

impl Rig {
    /// A daemon with one key, whose uses are recorded.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hsmux.toml");
        let text = "[pool]\nlabel = \"web\"\n[daemon]\nsocket = \"hsmux.sock\"\nlogin = \"peer\"\n\
            [audit]\nkeys = true\n[[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=a\"\n";
        fs::write(&file, text).unwrap();
        let config = hsmux_config::load(&file).unwrap_or_else(|m| panic!("{m:#?}"));
        let answer = |operation: &Operation| match operation {
            Operation::Use { data, .. } => Ok(Outcome::Bytes(data.clone())),
            Operation::Random { len } => Ok(Outcome::Bytes(vec![7; *len as usize].into())),
            other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
        };
        let builder = FakeToken::builder("a").objects(vec![key()]);
        let token = builder.answer(answer).build();
        let connected = Arc::clone(&token);
        let seat = Seat {
            name: "a".into(),
            member: "a".into(),
            weight: 1,
            timeout: LONG,
            connector: Arc::new(move || Ok(Arc::clone(&connected) as Arc<dyn Token>)),
        };
        let daemon = Daemon::start_with(config, vec![seat]).unwrap();
        let socket = folder.path().join("hsmux.sock");
        let client = Client::connect(Endpoint::from(&*socket), "test").unwrap();
        let login = Call::Login(Secret::new("".into()));
        client.call(login, Instant::now() + LONG).unwrap();
        let rig = Self {
            daemon,
            token,
            client: Arc::new(client),
            folder,
        };
        until(|| rig.send(vec![usage()]).recv().unwrap()[0].is_ok());
        rig
    }

    fn trail(&self) -> &Arc<Trail> {
        &self.daemon.running().shared.audit
    }

    /// Sends these operations in one call.
    fn send(&self, operations: Vec<Operation>) -> Receiver<Vec<Result<Outcome>>> {
        let item = |operation| Item {
            behalf: None,
            operation,
            remaining_us: LONG.as_micros() as u64,
        };
        let call = Call::Execute(operations.into_iter().map(item).collect());
        let client = Arc::clone(&self.client);
        let (tell, told) = channel();
        thread::spawn(move || {
            let reply = client.call(call, Instant::now() + LONG).unwrap();
            let Answer::Results(results) = reply.answer else {
                panic!("{:?}", reply.answer);
            };
            tell.send(results)
        });
        told
    }

    fn fill_the_disk(&self) {
        let file = &self.daemon.running().config().audit.file;
        fs::rename(file, self.folder.path().join("audit.log.1")).unwrap();
        symlink("/dev/full", file).unwrap();
        self.trail().reopen().unwrap_err();
    }

    fn make_room(&self) {
        fs::remove_file(&self.daemon.running().config().audit.file).unwrap();
    }

    /// Stops the trail's writer until the answer is dropped, and fills its queue: after so many more lines,
    /// [`Trail::record`] waits.
    fn stop_writer(&self, more: usize) -> Sender<()> {
        let (release, released) = channel();
        let (tell, told) = channel();
        let released = Mutex::new(released);
        let (trail, has_stopped) = (Arc::downgrade(self.trail()), AtomicBool::new(false));
        self.fill_the_disk();
        // The writer calls it when it can write again. While it waits, nobody else can call it.
        self.trail().observe(Box::new(move || {
            let admits = trail.upgrade().is_some_and(|trail| trail.admits());
            if admits && !has_stopped.swap(true, Ordering::Relaxed) {
                tell.send(()).unwrap();
                let _: std::result::Result<(), _> = released.lock().recv();
            }
        }));
        self.make_room();
        told.recv_timeout(LONG).unwrap();
        let event = Event::key_use(&Arc::new(Actor::default()), "C_Sign", "00ff");
        while self.trail().waiting() <= WAITING - more {
            self.trail().record(event.clone());
        }
        assert!(self.trail().admits());
        release
    }

    /// The answer comes after the line of the last operation was given to the trail.
    fn answers_after_its_lines(&self, operations: Vec<Operation>) -> Vec<Result<Outcome>> {
        let release = self.stop_writer(operations.len());
        let answer = self.send(operations);
        // The queue is full: the last line is in it.
        until(|| !self.trail().admits());
        let early = answer.recv_timeout(Duration::from_millis(300));
        assert!(
            matches!(early, Err(RecvTimeoutError::Timeout)),
            "answered before its line was given to the trail: {early:?}"
        );
        drop(release);
        answer.recv_timeout(LONG).unwrap()
    }
}

fn key() -> Object {
    let attributes = Attributes::default()
        .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
        .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
        .with(ck::CKA_LABEL, b"web".to_vec())
        .with_flag(ck::CKA_PRIVATE, false);
    Object {
        id: ObjectId::of_public_key(Class::PUBLIC_KEY, b"web"),
        attributes,
    }
}

fn usage() -> Operation {
    Operation::Use {
        verb: Verb::Encrypt,
        key: key().id.into(),
        mechanism: Mechanism::plain(ck::CKM_RSA_PKCS),
        data: Blob::from(b"data".to_vec()),
    }
}

fn until(reached: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !reached() {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_operation_is_answered_after_its_line_is_given_to_the_trail() {
    let rig = Rig::start();
    let results = rig.answers_after_its_lines(vec![usage()]);
    assert!(results[0].is_ok(), "{results:?}");
}

#[test]
fn a_failed_operation_is_answered_after_its_line_is_given_to_the_trail() {
    let rig = Rig::start();
    let error = Error::vendor("C_Encrypt", ck::CKR_DATA_LEN_RANGE);
    rig.token.fail(error, 1);
    let results = rig.answers_after_its_lines(vec![usage()]);
    let code = results[0].as_ref().map_err(Error::to_rv);
    assert_eq!(code.err(), Some(ck::CKR_DATA_LEN_RANGE), "{results:?}");
}

#[test]
fn a_batch_is_answered_after_all_its_lines_are_given_to_the_trail() {
    let rig = Rig::start();
    let results = rig.answers_after_its_lines(vec![usage(), usage(), usage()]);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[test]
fn an_operation_that_is_not_admitted_reaches_no_token() {
    let rig = Rig::start();
    rig.fill_the_disk();
    let calls = rig.token.calls();
    let batch = vec![usage(), Operation::Random { len: 8 }, usage()];
    let results = rig.send(batch).recv_timeout(LONG).unwrap();
    let codes = results.iter().map(|result| result.as_ref().err());
    let codes: Vec<_> = codes.map(|error| error.map(Error::to_rv)).collect();
    let refused = Some(ck::CKR_DEVICE_MEMORY);
    assert_eq!(codes, [refused, None, refused]);
    assert_eq!(rig.token.calls(), calls + 1, "random bytes need no line");
    rig.make_room();
    until(|| rig.send(vec![usage()]).recv().unwrap()[0].is_ok());
}
