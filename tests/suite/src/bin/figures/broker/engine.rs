//! The engine below HTTP: the pool in this process, with callers like those of the broker.

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;

use hsmux_bench::churn::{ChurnOptions, LABEL, LoadedService};
use hsmux_bench::cipher::Cipher;
use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_bench::{RunControl, Until};
use hsmux_pool::Pool;
use hsmux_suite::{Program, built};
use hsmux_token::{Error, Kind, Result};

use super::{folder, store, usual, workers};
use crate::Effort;
use crate::progress::preparing;

/// Numbers of threads of a program that uses the module alone.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

/// One SoftHSM token: the pool with its workers against the bare module with different numbers of threads.
pub fn below_http(effort: Effort) -> Result<CompareReport> {
    preparing("a SoftHSM token and a pool of it");
    let folder = folder()?;
    let store = store(&folder, "token")?;
    // It has created the key.
    drop(store.keys()?);
    let configuration = hsmux_config::load(&store.configure(workers())?).map_err(|mistakes| {
        let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        Error::request(Kind::Environment, lines.join("\n"))
    })?;
    let seats = hsmux_worker::seats(&configuration, &built(Program::Hsmux));
    let pool = Pool::start(hsmux_pool::Options::from(&configuration), seats)?;
    let usual = usual();
    let cipher = Cipher::new(pool, LABEL, usual.callers, usual.payload)?;
    let engine = "pool, 16 callers";
    let measure = || {
        let control = RunControl {
            stop: &AtomicBool::new(false),
            progress: &|_| {},
        };
        Ok(cipher.measure_waiting(Until::Elapsed(effort.turn), control))
    };
    let mut variants = vec![Variant::new(engine, measure)];
    let mut goals = Vec::new();
    for threads in THREADS {
        let options = ChurnOptions {
            callers: threads,
            ..usual.clone()
        };
        let bare = RefCell::new(store.bare(&options)?);
        let name = format!("bare module, threads: {threads}");
        goals.push(Goal {
            of: engine.into(),
            against: name.clone(),
            bound: Bound::RateRatioAtLeast(1.5),
        });
        variants.push(Variant::new(name, move || {
            bare.borrow_mut().load(&mut || {
                std::thread::sleep(effort.turn);
                Ok(())
            })
        }));
    }
    let title = "One SoftHSM token, AES-256-CBC of 256 bytes, half and half: the engine below HTTP against the bare \
                 module with any number of threads";
    effort.compare(title, variants, &goals)
}
