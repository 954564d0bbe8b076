//! Connections that are handed over to a worker: who gets one, what it is good for, and what ends it.

use std::sync::atomic::{AtomicU8, Ordering};

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use hsmux_token::ck::{CKM_ECDSA, CKM_SHA256_RSA_PKCS};
use hsmux_token::{Class, Error, Kind, Mechanism, ObjectId, Operation, Outcome, Secret, Verb};
use hsmux_wire::{Answer, Call, Client, Connection, Greeting, Hello, Item, Reply, SPOKEN, decode};
use rustix::process::{Pid, Signal, kill_process};

use crate::raw::{client, log_in, named, sign, soon};

/// A connection whose frames a test writes by itself.
pub struct Line {
    pub connection: Connection,
    program: u8,
}

impl Line {
    /// Of another program than all before it.
    fn connect(rig: &Rig) -> Self {
        static PROGRAMS: AtomicU8 = AtomicU8::new(1);
        Self::of(rig, PROGRAMS.fetch_add(1, Ordering::Relaxed))
    }

    fn of(rig: &Rig, program: u8) -> Self {
        let stream = std::os::unix::net::UnixStream::connect(rig.path("hsmux.sock")).unwrap();
        let mut connection = Connection::new(stream);
        let hello = Hello {
            oldest: *SPOKEN.start(),
            newest: *SPOKEN.end(),
            client: [program; 16],
            program: "raw".into(),
        };
        let greeting = connection.exchange(&hello, Some(soon())).unwrap();
        let Greeting::Welcome(welcome) = decode(greeting).unwrap() else {
            panic!("not welcome");
        };
        assert_eq!(welcome.version, *SPOKEN.end());
        Self {
            connection,
            program,
        }
    }

    /// The same, logged in.
    pub fn open(rig: &Rig) -> Self {
        let mut line = Self::connect(rig);
        let pin = Secret::new(rig.pin().into_bytes());
        assert!(matches!(line.ask(&Call::Login(pin)), Some(Answer::Done)));
        line
    }

    /// `None`: the connection has ended.
    fn ask(&mut self, call: &Call) -> Option<Answer> {
        let answer = self.connection.exchange(call, Some(soon())).ok()?;
        Some(decode::<Reply>(answer).unwrap().answer)
    }

    pub fn run(&mut self, operations: &[Operation]) -> Option<Result<Outcome, Error>> {
        match self.ask(&execute(operations))? {
            Answer::Results(mut results) => results.pop(),
            other => panic!("{other:?}"),
        }
    }

    pub fn signs(&mut self, key: ObjectId) -> bool {
        let signed = self.run(&[sign(key)]).and_then(Result::ok);
        signed.is_some_and(|outcome| outcome.into_bytes().unwrap().len() == 64)
    }

    /// Why it is not handed over; it goes on as before.
    fn refused(&mut self, key: ObjectId) -> Option<String> {
        match self.ask(&Call::HandOver(key)).unwrap() {
            Answer::Failed(error) => Some(error.to_string()),
            Answer::Done => None,
            other => panic!("{other:?}"),
        }
    }

    /// One that is handed over: when the pool has seen that its tokens are fast.
    pub fn direct(rig: &Rig, key: ObjectId) -> Self {
        until("a connection is handed over", PATIENCE, || {
            let mut line = Self::open(rig);
            assert!((0..20).all(|_| line.signs(key)));
            line.refused(key).is_none().then_some(line)
        })
    }
}

fn execute(operations: &[Operation]) -> Call {
    let item = |operation: &Operation| Item {
        behalf: None,
        operation: operation.clone(),
        remaining_us: PATIENCE.as_micros() as u64,
    };
    Call::Execute(operations.iter().map(item).collect())
}

/// The key of this label, as a program sees it.
pub fn key(rig: &Rig, label: &str) -> ObjectId {
    let client = client(rig, SPOKEN);
    log_in(rig, &client);
    named(&client, Class::PRIVATE_KEY, label).expect("the key")
}

/// A program that is served directly from here on.
pub fn served_directly(rig: &Rig, key: ObjectId) -> Client {
    let client = client(rig, SPOKEN);
    log_in(rig, &client);
    until("a worker serves it", PATIENCE, || {
        // One after the other: a token that is asked now and then is slower.
        let mut replies = (0..20).map(|_| client.call(execute(&[sign(key)]), soon()).unwrap());
        // What workers answer says where they are, and nothing of the catalogue.
        let direct = |reply: Reply| reply.epoch == 0 && reply.cpu.is_some();
        replies.all(direct).then_some(())
    });
    client
}

fn served(rig: &Rig) -> u64 {
    let status = rig.status();
    let members = status["members"].as_array().unwrap();
    members
        .iter()
        .filter_map(|member| member["served"].as_u64())
        .sum()
}

/// The same when nobody asks: workers write down what they serve a moment later.
fn all_served(rig: &Rig) -> u64 {
    until("nothing more is counted", PATIENCE, || {
        let counted = served(rig);
        (counted == served(rig)).then_some(counted)
    })
}

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(process.cast_signed()).unwrap();
    kill_process(process, signal).unwrap();
}

#[test]
fn a_worker_serves_while_the_daemon_stands_still() {
    let rig = Rig::new(Setup::Daemon);
    let key = key(&rig, "ec");
    let client = served_directly(&rig, key);
    let before = all_served(&rig);
    let daemon = rig.daemon.as_ref().unwrap().id();
    signal(daemon, Signal::STOP);
    let signed = (0..100).map(|_| client.execute(&sign(key), soon()));
    let signed: Result<Vec<_>, _> = signed.collect();
    signal(daemon, Signal::CONT);
    signed.unwrap();
    until("each of them is counted", PATIENCE, || {
        let counted = served(&rig) - before;
        assert!(counted <= 100, "{counted}");
        (counted == 100).then_some(())
    });
}

#[test]
fn a_program_goes_on_when_its_worker_dies() {
    let mut rig = Rig::new(Setup::Daemon);
    let key = key(&rig, "ec");
    let client = served_directly(&rig, key);
    let before = served(&rig);
    for worker in rig.workers() {
        signal(worker, Signal::KILL);
        for _ in 0..50 {
            client.execute(&sign(key), soon()).unwrap();
        }
        rig.wait_for_members(3);
    }
    assert!(
        served(&rig) >= before,
        "what the dead have served is counted"
    );
    assert!(rig.daemon.as_mut().unwrap().running());
}

#[test]
fn a_program_stays_logged_in_when_the_connection_ends() {
    let rig = Rig::new(Setup::Daemon);
    let key = key(&rig, "ec");
    for _ in 0..3 {
        let client = served_directly(&rig, key);
        rig.hsmux("reload").ok();
        client.execute(&sign(key), soon()).unwrap();
    }
}

#[test]
fn what_ends_it() {
    let mut rig = Rig::new(Setup::Daemon);
    let ec = key(&rig, "ec");
    let ends = |rig: &Rig, why: &str, act: &dyn Fn(&Rig, u8)| {
        let mut line = Line::direct(rig, ec);
        assert!(line.signs(ec), "{why}");
        act(rig, line.program);
        // A signal is heard a moment later.
        until(why, PATIENCE, || {
            line.run(&[sign(ec)]).is_none().then_some(())
        });
    };
    ends(&rig, "C_Logout", &|rig, program| {
        let mut other = Line::of(rig, program);
        assert!(matches!(other.ask(&Call::Logout), Some(Answer::Done)));
    });
    ends(&rig, "members are parked", &|rig, _| {
        for member in ["hsm1", "hsm2", "hsm3"] {
            rig.hsmux(&format!("token park {member} --force")).ok();
        }
    });
    for member in ["hsm1", "hsm2", "hsm3"] {
        rig.hsmux(&format!("token resume {member}")).ok();
    }
    rig.wait_for_members(3);
    ends(&rig, "the configuration is read again", &|rig, _| {
        rig.reload();
    });
    ends(&rig, "the key is deleted", &|rig, _| {
        rig.hsmux("key delete --label ec --all --yes --confirm ec")
            .ok();
    });
    assert!(rig.daemon.as_mut().unwrap().running());
}

#[test]
fn it_is_good_for_uses_of_its_key_alone() {
    let mut rig = Rig::new(Setup::Daemon);
    let (ec, rsa) = (key(&rig, "ec"), key(&rig, "rsa"));
    let mut line = Line::direct(&rig, ec);
    let with_rsa = Operation::Use {
        verb: Verb::Sign,
        key: rsa.into(),
        mechanism: Mechanism::plain(CKM_SHA256_RSA_PKCS),
        data: vec![7; 32].into(),
    };
    for forbidden in [
        with_rsa,
        Operation::Random { len: 16 },
        Operation::Destroy { object: ec.into() },
    ] {
        let error = line
            .run(std::slice::from_ref(&forbidden))
            .unwrap()
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Forbidden, "{forbidden:?}");
        assert!(line.signs(ec), "it goes on");
    }
    let two = Call::Execute(Vec::new());
    let pin = Secret::new(rig.pin().into_bytes());
    for unheard in [
        Call::Catalogue { known: 0 },
        Call::Objects,
        Call::Login(pin),
        two,
    ] {
        let mut line = Line::direct(&rig, ec);
        assert!(line.ask(&unheard).is_none(), "{unheard:?}");
    }
    let mut line = Line::direct(&rig, ec);
    let many = [(); 17].map(|()| sign(ec));
    assert!(line.run(&many).is_none(), "16 in a frame at most");
    let mut line = Line::direct(&rig, ec);
    let long = Operation::Use {
        verb: Verb::Sign,
        key: ec.into(),
        mechanism: Mechanism::plain(CKM_ECDSA),
        data: vec![7; 64 << 10].into(),
    };
    assert!(
        line.run(&[long]).is_none(),
        "what is long goes through the daemon"
    );
    assert!(rig.daemon.as_mut().unwrap().running());
    assert!(Line::direct(&rig, ec).signs(ec));
}

#[test]
fn who_gets_none() {
    let mut rig = Rig::new(Setup::Daemon);
    let (ec, rsa) = (key(&rig, "ec"), key(&rig, "rsa"));
    drop(Line::direct(&rig, ec));
    let refused = |line: &mut Line, key, why: &str| {
        let said = line.refused(key).expect("refused");
        assert!(said.contains(why), "{said}");
    };
    refused(&mut Line::connect(&rig), ec, "C_Login first");
    refused(&mut Line::open(&rig), rsa, "not short");
    let unknown = ObjectId::of_certificate(b"nothing");
    refused(&mut Line::open(&rig), unknown, "there is no");
    let before = rig.config.daemon.clone();
    for (more, why) in [("direct = false", "this listener"), ("", "written down")] {
        rig.stop();
        rig.config.daemon = format!("{before}{more}\n");
        if more.is_empty() {
            rig.config.module += "\n[audit]\nkeys = true\n";
        }
        rig.start();
        let mut line = Line::open(&rig);
        assert!((0..20).all(|_| line.signs(ec)));
        refused(&mut line, ec, why);
        assert!(line.signs(ec), "it goes on as before");
    }
}

#[test]
fn a_slow_token_hands_nothing_over() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut cards = rig.stand_in("card", &["card"]);
    cards.set("card", "service_time_us = 5000");
    rig.start();
    let ec = key(&rig, "ec");
    let mut line = Line::open(&rig);
    assert!((0..20).all(|_| line.signs(ec)));
    let said = line.refused(ec).expect("refused");
    assert!(said.contains("takes longer"), "{said}");
}
