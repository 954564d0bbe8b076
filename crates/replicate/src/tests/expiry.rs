//! When a new key leaves the journal that a member does not fetch: by the daemon's thread, or with an embedded pool's
//! next change.

use super::bench::{open, secret};
use super::envelopes::{has_key_for, transport_keys_of};
use super::in_own_process;
use super::pool_writer::{THREE, make, seat, soon};
use crate::{Hold, Writer, start};
use hsmux_pool::{Options, Pool};
use hsmux_token::ck::CKM_AES_KEY_GEN;
use hsmux_token::{Object, Operation, Token};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Longer than the change takes that makes the key.
const LIFE: Duration = Duration::from_secs(5);

/// A pool in which a member is away that does not get what is made meanwhile.
struct Waiting {
    pool: Arc<Pool>,
    _writer: Arc<Writer>,
    /// The key that opens the envelope for that member.
    opener: Object,
}

fn started(folder: &Path, (hold, life): (Hold, Duration), there: bool) -> (Arc<Pool>, Arc<Writer>) {
    let options = Options {
        state: folder.join("state"),
        replicas: 2,
        envelope_life: life,
        ..Options::default()
    };
    let seats = THREE.iter().map(|name| {
        let there = Arc::new(AtomicBool::new(there || *name != "hsm3"));
        seat(folder, name, &there)
    });
    start(options, seats.collect(), hold, None).unwrap()
}

impl Waiting {
    fn of(folder: &Path, kind: (Hold, Duration)) -> Self {
        let (pool, writer) = started(folder, kind, true);
        make(&pool, &secret(CKM_AES_KEY_GEN, 32, "enrols"));
        drop((pool, writer));
        let opener = {
            let token = open(folder, "hsm3").token.unwrap();
            transport_keys_of(&*token).remove(0)
        };
        let (pool, writer) = started(folder, kind, false);
        assert!(!has_key_for(folder, &opener));
        make(&pool, &secret(CKM_AES_KEY_GEN, 32, "kept"));
        assert!(has_key_for(folder, &opener));
        Self {
            pool,
            _writer: writer,
            opener,
        }
    }
}

/// Meanwhile nothing changes, and no member returns.
#[test]
fn a_thread_takes_out_what_is_kept_for_too_long() {
    let name = "expiry::a_thread_takes_out_what_is_kept_for_too_long";
    in_own_process(name, THREE, |folder| {
        let waiting = Waiting::of(folder, (Hold::Always, LIFE));
        let end = Instant::now() + Duration::from_secs(60);
        while has_key_for(folder, &waiting.opener) {
            assert!(Instant::now() < end, "it is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn an_embedded_pool_takes_it_out_with_its_next_change() {
    let name = "expiry::an_embedded_pool_takes_it_out_with_its_next_change";
    in_own_process(name, THREE, |folder| {
        let waiting = Waiting::of(folder, (Hold::WhileChanging, Duration::ZERO));
        let shown = waiting.pool.objects().unwrap();
        let kept = shown.objects.iter().find(|object| {
            let label = object.attributes.text(hsmux_token::ck::CKA_LABEL);
            label.as_deref() == Some("enrols")
        });
        let destroy = Operation::Destroy {
            object: kept.expect("the first key").id.into(),
        };
        waiting.pool.execute(&destroy, soon()).unwrap();
        assert!(!has_key_for(folder, &waiting.opener));
    });
}
