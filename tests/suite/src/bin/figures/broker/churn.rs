//! Key changes by other processes.

use std::cell::RefCell;
use std::time::Duration;

use hsmux_bench::Measurement;
use hsmux_bench::churn::{
    ChurnOptions, KeyChangeProcess, LoadedService, RunResults, SoftHsmStore, TURN, run, runs, ways,
};
use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_suite::{Program, SOFTHSM, built};
use hsmux_token::{Error, Kind, Result};

use super::{folder, programs, store, usual, workers};
use crate::Effort;
use crate::progress::{Turns, preparing};

/// Additional runs, by their keys.
const MORE: [usize; 2] = [1000, 5000];

/// The published table: the bare module and a broker, over SoftHSM and over a stand-in for an old one.
pub fn over_the_stand_in(effort: Effort) -> Result<CompareReport> {
    preparing("tokens for the published key churn");
    let options = ChurnOptions {
        runs: runs(10, &MORE),
        time: 2 * effort.turn.max(Duration::from_secs(2)),
        ..usual()
    };
    let folder = folder()?;
    let mut ways = ways(
        folder.path(),
        &programs(),
        SOFTHSM.as_ref(),
        Some(&built(Program::StandIn)),
        workers(),
        &options,
    )?;
    let broker = "broker";
    let step = options.settle + 2 * options.time;
    let mut turns = Turns::new(vec![step; options.runs.len() * ways.len()]);
    let found = run(&options, &mut ways, &mut |what| {
        turns.next(what);
        true
    })?;
    println!("{found}");
    let (mut series, mut goals) = (Vec::new(), Vec::new());
    for row in &found.rows {
        let [bare, broker] = ["bare old", broker].map(|way| name(row, way));
        let fresh = format!("{broker}, fresh");
        goals.push(Goal {
            of: broker.clone(),
            against: fresh.clone(),
            bound: Bound::RateRatioAtLeast(0.95),
        });
        for (at, way) in found.ways.iter().enumerate() {
            let [own, twin] = measured(row, at);
            if *way == "bare old" {
                series.push((bare.clone(), own));
            } else if *way == "broker, old" {
                series.extend([(broker.clone(), own), (fresh.clone(), twin)]);
            }
        }
    }
    // Goals apply only to the published runs.
    goals.truncate(10);
    let title = "Published key churn over the stand-in for an old module: the broker within 2 s of each change, \
                 beside the bare stand-in";
    Ok(CompareReport::new(title, series, &goals))
}

fn name(row: &RunResults, way: &str) -> String {
    format!("run {} ({} keys), {way}", row.run.number, row.run.keys)
}

/// The turns of a way in a run, and those of its twin.
#[allow(clippy::cast_sign_loss)] // No rate is negative.
fn measured(row: &RunResults, way: usize) -> [Vec<Measurement>; 2] {
    let found = &row.found[way];
    let seconds = TURN.as_secs_f64();
    let of = |rate: f64, failed| Measurement {
        failed,
        ..Measurement::elsewhere((rate * seconds) as u64, seconds, rate)
    };
    let turns = || found.turns.iter().enumerate();
    let failed = |at| if at == 0 { found.failed } else { 0 };
    [
        turns().map(|(at, turn)| of(turn.0, failed(at))).collect(),
        turns().map(|(_, turn)| of(turn.1, 0)).collect(),
    ]
}

/// Keys of each token.
const KEYS: usize = 5000;

/// The pause after each change, for about ten changes a second.
const PAUSE: Duration = Duration::from_millis(100);

/// A store, and the process that changes its keys.
type Changed = (SoftHsmStore, RefCell<KeyChangeProcess>);

/// Another process that changes keys all the time, on the token in use or on another.
pub fn foreign_churn(effort: Effort) -> Result<CompareReport> {
    preparing(&format!("two tokens of {KEYS} keys"));
    let folder = folder()?;
    let filled = |name: &str| -> Result<Changed> {
        let store = store(&folder, name)?;
        let mut keys = store.keys()?;
        keys.bring_to(KEYS - 1)?;
        Ok((store, RefCell::new(keys)))
    };
    let ((own, own_keys), (_, other_keys)) = (filled("own")?, filled("other")?);
    let options = usual();
    let way = "broker";
    let bare = RefCell::new(own.bare(&options)?);
    let broker = RefCell::new(own.broker(workers(), &options)?);
    let mut variants = Vec::new();
    let ways: [(&str, &RefCell<dyn LoadedService>); 2] = [("bare", &bare), (way, &broker)];
    for (way, service) in ways {
        for (on, keys) in [("another token", &other_keys), ("its token", &own_keys)] {
            let run = move || {
                let mut keys = keys.borrow_mut();
                let changing = keys.change(PAUSE)?;
                let measured = service.borrow_mut().load(&mut || {
                    std::thread::sleep(effort.turn);
                    Ok(())
                });
                if changing.stop()? == 0 {
                    let message = format!(
                        "{way}: nothing was changed on {on} within {:?}",
                        effort.turn
                    );
                    return Err(Error::pool(Kind::Environment, message));
                }
                measured
            };
            variants.push(Variant::new(format!("{way}, changes on {on}"), run));
        }
    }
    let goal = Goal {
        of: format!("{way}, changes on its token"),
        against: format!("{way}, changes on another token"),
        bound: Bound::RateRatioAtLeast(0.9),
    };
    let title = format!(
        "SoftHSM, {KEYS} keys, AES-256-CBC, 16 callers, while another process adds and removes keys all the time"
    );
    effort.compare(&title, variants, &[goal])
}
