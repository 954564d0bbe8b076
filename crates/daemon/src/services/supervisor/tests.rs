use std::fs;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;

use hsmux_audit::{Actor, Event};
use hsmux_config::User;
use hsmux_pool::Seat;
use hsmux_token::{Class, ObjectId, Token};
use hsmux_wire::{
    Answer, Call, Connection, FromService, Greeting, Hello, ListeningSocket, RecordKind, Reply,
    SPOKEN, ServiceLink, decode,
};
use rustix::net::{SocketType, sockopt};
use serde_json::Map;

use super::super::NODE;
use super::attend::LOOK;
use super::state::ServiceInstance;
use super::*;
use crate::Daemon;
use crate::settings::Clients;

fn act(name: &str) -> Vec<u8> {
    Event::act(&Arc::new(Actor::default()), name, Map::new()).to_bytes()
}

/// The service of the test below, in a process of its own; elsewhere the standard input is no link.
#[test]
fn service_process() {
    let stdin = io::stdin();
    if sockopt::socket_type(&stdin) != Ok(SocketType::SEQPACKET) {
        return;
    }
    let link = ServiceLink::of_service(stdin.as_fd().try_clone_to_owned().unwrap());
    if std::env::args().next_back().as_deref() == Some(GATEWAY) {
        let refused = FromService::Refused {
            from: "192.0.2.1:7".into(),
            problem: "none".into(),
            advice: "none".into(),
        };
        link.report(refused).unwrap();
        while link.hear().is_ok() {}
        return;
    }
    if std::env::args().next_back().as_deref() == Some(NODE) {
        // With sockets of the one before it hangs. Without any it serves, and ends.
        if matches!(link.hear(), Ok(ToService::Socket(_))) {
            while link.hear().is_ok() {}
            return;
        }
        let listens = FromService::Listens(ListeningSocket {
            name: "listen".into(),
            socket: TcpListener::bind("127.0.0.1:0").unwrap().into(),
        });
        link.report(listens).unwrap();
        return link.report(FromService::Ready).unwrap();
    }
    link.record(&act("one"), RecordKind::Event).unwrap();
    link.record(&act("two"), RecordKind::Announce(7)).unwrap();
    loop {
        match link.hear() {
            Ok(ToService::Recorded {
                number: 7,
                result: Ok(()),
            }) => link.report(FromService::Ready).unwrap(),
            Ok(ToService::Trouble(Some(why))) => {
                let error = Error::pool(Kind::Environment, why);
                return link.report(FromService::Failed(error)).unwrap();
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fn daemon(folder: &std::path::Path) -> Daemon {
    let file = folder.join("hsmux.toml");
    let text = "[pool]\nlabel = \"web\"\n[daemon]\nsocket = \"hsmux.sock\"\nlogin = \"peer\"\n\
        [audit]\nkeys = true\n[[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=a\"\n";
    fs::write(&file, text).unwrap();
    let config = hsmux_config::load(&file).unwrap_or_else(|m| panic!("{m:#?}"));
    let seat = Seat {
        name: "a".into(),
        member: "a".into(),
        weight: 1,
        timeout: Duration::from_secs(60),
        connector: Arc::new(|| Err::<Arc<dyn Token>, _>(Error::lost("no token"))),
    };
    Daemon::start_with(config, vec![seat]).unwrap()
}

fn program() -> ServiceProgram {
    let own = concat!(module_path!(), "::service_process");
    let (_, own) = own.split_once("::").unwrap();
    ServiceProgram {
        file: std::env::current_exe().unwrap(),
        arguments: ["--exact", own, "--nocapture"].map(str::to_owned).to_vec(),
    }
}

#[test]
fn the_node_alone_speaks_for_other_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let started = ServiceSupervisor::start(GATEWAY, daemon.running(), &program());
    let error = started.err().expect("an end").to_string();
    assert!(error.contains("as the node alone may"), "{error}");
}

#[test]
fn one_that_hangs_in_its_start_is_ended_and_its_sockets_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let supervisor = ServiceSupervisor::start(NODE, daemon.running(), &program()).unwrap();
    let begun = Instant::now();
    // The second process hangs. The third gets no sockets, and serves.
    while supervisor.status().restarts < 3 {
        assert!(begun.elapsed() < LOOK * 3, "{:?}", supervisor.status());
        thread::sleep(Duration::from_millis(5));
    }
    assert!(begun.elapsed() >= START_WITHIN);
}

/// A service that was taken over asks for as much as it likes.
#[test]
fn a_service_names_256_keys_or_requests_in_one_call_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let running = daemon.running();
    let entrance = running.listeners.of_service(running, Clients::Gateway);
    let (near, far) = UnixStream::pair().unwrap();
    let _admitted = entrance.take(far).unwrap();
    let mut connection = Connection::new(near);
    let soon = || Some(Instant::now() + LOOK);
    let hello = Hello {
        oldest: *SPOKEN.start(),
        newest: *SPOKEN.end(),
        client: [1; 16],
        program: GATEWAY.into(),
    };
    let greeting = connection.exchange(&hello, soon()).unwrap();
    assert!(matches!(decode(greeting), Ok(Greeting::Welcome(_))));
    let mut ask = |call: &Call| {
        let answer = connection.exchange(call, soon()).unwrap();
        decode::<Reply>(answer).unwrap().answer
    };
    let key = ObjectId {
        class: Class::PRIVATE_KEY,
        name: [7; 32],
    };
    for (count, is_refused) in [(256, false), (257, true)] {
        for call in [
            Call::Estimates(vec![key; count]),
            Call::Withdraw(vec![7; count]),
        ] {
            let answer = ask(&call);
            assert_eq!(
                matches!(answer, Answer::Failed(_)),
                is_refused,
                "{answer:?}"
            );
        }
    }
}

#[test]
fn beside_four_replaced_processes_no_further_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let supervisor = ServiceSupervisor::start(BROKER, daemon.running(), &program()).unwrap();
    let service = &supervisor.service;
    let mut now = service.now.lock();
    let replaced = ServiceInstance {
        number: u64::MAX,
        ends_by: Some(Instant::now() + LOOK),
        ..now.processes[0].clone()
    };
    now.processes.extend([(); 3].map(|()| replaced.clone()));
    service.check_restart(&now).unwrap();
    now.processes.push(replaced);
    let refused = service.check_restart(&now).unwrap_err().to_string();
    drop(now);
    assert!(refused.contains("still serve their clients"), "{refused}");
}

/// A supervised service whose current process listens on a socket, and a process that has ended already.
fn with_a_socket(daemon: &Daemon) -> (ServiceSupervisor, ServiceInstance) {
    let supervisor = ServiceSupervisor::start(BROKER, daemon.running(), &program()).unwrap();
    let mut now = supervisor.service.now.lock();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let kept = ListeningSocket {
        name: "listen".into(),
        socket: listener.into(),
    };
    now.kept.add(kept).unwrap();
    let (link, ended) = ServiceLink::pair().unwrap();
    drop(ended);
    let process = ServiceInstance {
        number: u64::MAX,
        link: Arc::new(link),
        ..now.processes[0].clone()
    };
    drop(now);
    (supervisor, process)
}

/// The sockets that the next process would get.
fn sockets(now: &SupervisedState) -> usize {
    let (link, next) = ServiceLink::pair().unwrap();
    now.kept.give(&link).unwrap();
    drop(link);
    let next = ServiceLink::of_service(next);
    std::iter::from_fn(|| next.hear().ok()).count()
}

/// Of a program that ends at once, for example.
#[test]
fn a_replacement_that_takes_no_sockets_leaves_them_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let (supervisor, ended) = with_a_socket(&daemon);
    let replacement = ServiceInstance {
        user: Some(User::Id(65534)),
        ..ended
    };
    let service = &supervisor.service;
    let mut now = service.now.lock();
    let config = daemon.running().config();
    service.equip(&mut now, &replacement, true, &config);
    assert_eq!((sockets(&now), &now.kept_of), (1, &None));
}

#[test]
fn a_next_process_that_takes_no_sockets_closes_them() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let (supervisor, ended) = with_a_socket(&daemon);
    let mut now = supervisor.service.now.lock();
    let config = daemon.running().config();
    supervisor.service.equip(&mut now, &ended, false, &config);
    assert_eq!(sockets(&now), 0);
}

#[test]
fn a_next_process_of_another_user_gets_no_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let (supervisor, process) = with_a_socket(&daemon);
    let service = &supervisor.service;
    let mut now = service.now.lock();
    let config = daemon.running().config();
    let kept = [None, Some(User::Id(65534))].map(|user| {
        let (link, _service) = ServiceLink::pair().unwrap();
        let next = ServiceInstance {
            user,
            link: Arc::new(link),
            ..process.clone()
        };
        service.equip(&mut now, &next, false, &config);
        sockets(&now)
    });
    assert_eq!(kept, [1, 0]);
    assert_eq!(now.kept_of, Some(User::Id(65534)));
}

#[test]
fn the_broker_records_on_the_trail_and_hears_at_once_that_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let running = daemon.running();
    // It serves when its act has been recorded.
    let supervisor = ServiceSupervisor::start(BROKER, running, &program()).unwrap();
    let file = &running.config().audit.file;
    let older = file.with_extension("1");
    fs::rename(file, &older).unwrap();
    symlink("/dev/full", file).unwrap();
    running.shared.audit.reopen().unwrap_err();
    let begun = Instant::now();
    let is_told = || {
        let problem = supervisor.status().problem;
        problem.is_some_and(|why| why.contains("No space left"))
    };
    while !is_told() {
        assert!(begun.elapsed() < LOOK / 2, "{:?}", supervisor.status());
        thread::sleep(Duration::from_millis(5));
    }
    drop(supervisor);
    fs::remove_file(file).unwrap();
    let text = fs::read_to_string(older).unwrap();
    let has = |act: &str| {
        let is_marked = |line: &str| line.contains(r#""service":"broker""#);
        text.lines()
            .any(|line| line.contains(&format!(r#""act":"{act}""#)) && is_marked(line))
    };
    assert!(has("one") && has("two"), "{text}");
}
