//! A fork's child: not initialised, whatever the parent was doing, and free to initialise anew.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hsmux_pkcs11::entry::*;
use hsmux_token::ck::*;
use hsmux_token::fork::Unshared;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use tempfile::TempDir;

use crate::calls::*;
use crate::every;
use crate::server::{self, Server};
use crate::soft::EC;

/// Runs the child's part, in which every line has to be good.
pub fn in_child(child: impl FnOnce() -> Result<(), u32>) {
    assert_eq!(end_of_child(child), 0);
}

/// The child's exit status: 0 is good, else the line that failed.
fn end_of_child(child: impl FnOnce() -> Result<(), u32>) -> i32 {
    // SAFETY: the child calls nothing but the module, and leaves without running what the parent
    // has registered for its end.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let status = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)) {
                Ok(Ok(())) => 0,
                Ok(Err(line)) => line.min(254).cast_signed(),
                Err(_) => 255,
            };
            unsafe { libc::_exit(status) }
        }
        ForkResult::Parent { child } => match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, status)) => status,
            other => panic!("the child: {other:?}"),
        },
    }
}

pub fn check(good: bool, line: u32) -> Result<(), u32> {
    if good { Ok(()) } else { Err(line) }
}

/// A process that is logged in, before it forks; alone, for a process has one module.
struct Parent {
    server: Server,
    socket: PathBuf,
    _folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Parent {
    fn start() -> (Self, Session) {
        let turn = alone();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let server = Server::start(&socket);
        server::initialise(&socket).unwrap();
        let parent = Self {
            server,
            socket,
            _folder: folder,
            _turn: turn,
        };
        (parent, user())
    }
}

#[test]
fn a_child_is_not_initialised_and_may_initialise() {
    let (parent, s) = Parent::start();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
    in_child(|| {
        let none = Err(CKR_CRYPTOKI_NOT_INITIALIZED);
        check(
            given(64, s.whole(C_Sign, &[1; 32])).0 == CKR_CRYPTOKI_NOT_INITIALIZED,
            line!(),
        )?;
        check(s.state() == none.map(|()| 0), line!())?;
        check(ok(unsafe { C_Finalize(null_mut()) }) == none, line!())?;
        server::initialise(&parent.socket).map_err(|_| line!())?;
        check(s.state() == Err(CKR_SESSION_HANDLE_INVALID), line!())?;
        let s = open(0).map_err(|_| line!())?;
        check(s.state() == Ok(CKS_RO_PUBLIC_SESSION), line!())?;
        s.login(PIN).map_err(|_| line!())?;
        let key = s.one(CKO_PRIVATE_KEY, EC);
        s.init(C_SignInit, plain(CKM_ECDSA), key)
            .map_err(|_| line!())?;
        check(given(64, s.whole(C_Sign, &[1; 32])).0 == CKR_OK, line!())?;
        check(unsafe { C_Finalize(null_mut()) } == CKR_OK, line!())
    });
    // The parent's operation and connections are as they were.
    assert_eq!(given(64, s.whole(C_Sign, &[1; 32])).0, CKR_OK);
    assert_eq!(unsafe { C_Finalize(null_mut()) }, CKR_OK);
    drop(parent);
}

/// The functions that PKCS#11 lets work without C_Initialize (3.0, section 5.4).
const BEFORE_INITIALIZE: &[&str] = &[
    "C_Initialize",
    "C_GetFunctionList",
    "C_GetInterfaceList",
    "C_GetInterface",
];

#[test]
fn every_function_tells_a_child_that_it_is_not_initialised() {
    let (parent, s) = Parent::start();
    let mut functions = every::of_2_40();
    functions.extend(every::of_3_0());
    functions.retain(|function| !BEFORE_INITIALIZE.contains(&function.name));
    assert_eq!(functions.len(), (68 - 2) + (92 - 4));
    // A new child for each: the first call of a child finds the inherited state.
    for function in &functions {
        let name = function.name;
        let told = || function.on(s.0) == CKR_CRYPTOKI_NOT_INITIALIZED;
        let status = end_of_child(|| check(told() && told(), 1));
        assert_eq!(status, 0, "{name}");
    }
    in_child(|| {
        every::of_3_0();
        for function in &functions {
            check(function.on(s.0) == CKR_CRYPTOKI_NOT_INITIALIZED, line!())?;
        }
        server::initialise(&parent.socket).map_err(|_| line!())?;
        open(0).map(|_| ()).map_err(|_| line!())
    });
    assert_eq!(unsafe { C_Finalize(null_mut()) }, CKR_OK);
}

#[test]
fn a_child_of_a_parent_at_work_does_not_hang() {
    let (parent, s) = Parent::start();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let s = open(0).unwrap();
                while !stop.load(Ordering::Acquire) {
                    s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
                    assert_eq!(given(64, s.whole(C_Sign, &[1; 32])).0, CKR_OK);
                    assert_eq!(s.one(CKO_PRIVATE_KEY, EC), key);
                }
            });
        }
        for _ in 0..20 {
            in_child(|| {
                check(
                    open(0).map(|_| ()) == Err(CKR_CRYPTOKI_NOT_INITIALIZED),
                    line!(),
                )?;
                server::initialise(&parent.socket).map_err(|_| line!())?;
                let s = open(0).map_err(|_| line!())?;
                s.login(PIN).map_err(|_| line!())
            });
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!(unsafe { C_Finalize(null_mut()) }, CKR_OK);
}

#[test]
fn a_child_that_does_nothing_leaves_the_parents_connection_alone() {
    let (parent, s) = Parent::start();
    let opened = parent.server.served.opened.load(Ordering::SeqCst);
    in_child(|| check(s.state().is_err(), line!()));
    in_child(|| Ok(()));
    assert!(s.one(CKO_PRIVATE_KEY, EC) > 0);
    assert_eq!(parent.server.served.opened.load(Ordering::SeqCst), opened);
    assert_eq!(unsafe { C_Finalize(null_mut()) }, CKR_OK);
}

#[test]
fn a_fork_waits_for_a_descriptor_that_is_being_made() {
    let (_parent, _session) = Parent::start();
    let (begun, made) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // It takes its time: a fork that does not wait is over long before.
            Unshared::make(|| {
                begun.store(true, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(100));
                made.store(true, Ordering::SeqCst);
                UnixStream::pair().map(|(one, _)| one)
            })
        });
        while !begun.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        in_child(|| check(made.load(Ordering::SeqCst), line!()));
    });
    assert_eq!(unsafe { C_Finalize(null_mut()) }, CKR_OK);
}
