use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use hsmux_wire::{FromService, ServiceLink, ToService};
use parking_lot::Mutex;

use super::*;

/// How long something that happens takes at most, and something that does not is waited for.
const SOON: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_millis(200);

/// Waits for its clients until the test lets it, or panics.
struct Slow;

/// Whether it leaves its clients, and whether it may.
static LEAVING: Mutex<Option<(Sender<()>, Receiver<bool>)>> = Mutex::new(None);

/// One test at a time.
static TURN: Mutex<()> = Mutex::new(());

impl ServiceProcess for Slow {
    fn start(_: &Arc<Daemon>) -> Result<Self> {
        Ok(Self)
    }

    fn stop_listening(self) -> Option<Self> {
        let (leaves, may) = LEAVING.lock().take().expect("a test");
        leaves.send(()).unwrap();
        // An error: the test has ended.
        let panics = may.recv().unwrap_or_default();
        assert!(!panics, "a bug");
        None
    }
}

/// A service that leaves its clients, its daemon, whether it may, and how it ends.
struct Left {
    link: ServiceLink,
    may: Sender<bool>,
    ended: Receiver<Result<()>>,
}

fn left() -> Left {
    let (link, end) = ServiceLink::pair().unwrap();
    let (leaves, left) = channel();
    let (may, let_go) = channel();
    *LEAVING.lock() = Some((leaves, let_go));
    let (tell, ended) = channel();
    thread::spawn(move || {
        let file = Path::new("/hsmux.toml").to_owned();
        let _ = tell.send(run::<Slow>(end, file, EndedBy::Daemon));
    });
    let text =
        "[pool]\nlabel = \"web\"\n[[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=a\"\n";
    link.tell(&ToService::Configuration(text.into())).unwrap();
    assert!(matches!(link.attend().unwrap(), FromService::Ready));
    link.tell(&ToService::StopListening).unwrap();
    left.recv_timeout(SOON).unwrap();
    Left { link, may, ended }
}

#[test]
fn a_service_ends_after_its_clients() {
    let _turn = TURN.lock();
    let left = left();
    let early = left.ended.recv_timeout(NEVER);
    assert_eq!(early.unwrap_err(), RecvTimeoutError::Timeout);
    left.may.send(false).unwrap();
    left.ended.recv_timeout(SOON).unwrap().unwrap();
}

#[test]
fn a_service_that_leaves_its_clients_ends_with_its_daemon() {
    let _turn = TURN.lock();
    let left = left();
    left.link.close();
    left.ended.recv_timeout(SOON).unwrap().unwrap();
}

#[test]
fn a_panic_of_a_service_ends_it() {
    let _turn = TURN.lock();
    let left = left();
    left.may.send(true).unwrap();
    let error = left.ended.recv_timeout(SOON).unwrap().unwrap_err();
    assert!(
        error.to_string().contains("hsmux-service has panicked"),
        "{error}"
    );
}

#[test]
fn a_message_that_nobody_understands_ends_a_service() {
    let _turn = TURN.lock();
    let left = left();
    left.link.report(FromService::Ready).unwrap();
    let error = left.ended.recv_timeout(SOON).unwrap().unwrap_err();
    assert!(error.to_string().contains("the daemon"), "{error}");
}
