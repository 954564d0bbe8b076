//! Virtual SmartCard-HSMs under OpenSC's module: one process that uses all of them, beside the pool,
//! which has a worker process for each.
//!
//! OpenSC holds a lock while a card works, so that one process gets one card's rate from any number.
//! All variants are driven by one program, `every_token.py`.

use std::time::Duration;

use hsmux_bench::Measurement;
use hsmux_bench::compare::{self, Bound, Goal, Report, Variant};
use hsmux_suite::{CardPool, Cards, OPENSC, Run, source};
use hsmux_token::{Error, Kind, Result};
use hsmux_vcard::Timing;

use crate::{Effort, turn};

/// A turn is long against one signature.
const SHORTEST: Duration = Duration::from_secs(3);

/// Eight cards that take 50 ms for a signature, against one of them.
pub fn eight(effort: Effort) -> Result<Report> {
    many(effort, 8, 7.6)
}

/// Sixteen: as many as one pcscd takes.
pub fn sixteen(effort: Effort) -> Result<Report> {
    many(effort, 16, 14.8)
}

fn many(effort: Effort, cards: usize, goal: f64) -> Result<Report> {
    let timing = Timing::from_toml("[[time]]\noperation = \"sign\"\nmean_ms = 50");
    let timing = timing.expect("a timing");
    // Two sets of cards: a program that looks at a card logs every other one out.
    let key = [("EC:prime256v1", "10", "ec")];
    let bare = CardPool::prepare(cards, &timing, &key);
    let mut pool = CardPool::prepare(cards, &timing, &key);
    pool.start();
    // For each card a caller whose signature is made, and one that waits.
    let callers = 2 * cards;
    let seconds = effort.turn.max(SHORTEST);
    let past = |tokens: usize| {
        let run = bare.cards.run("/usr/bin/python3");
        let line = format!("PIN {} ec 1 {tokens}", seconds.as_secs());
        measured(run, OPENSC.as_ref(), &line, Cards::PIN)
    };
    let through = || {
        let run = pool.rig.run("/usr/bin/python3");
        let line = format!("PIN {} ec {callers}", seconds.as_secs());
        measured(run, &pool.rig.module(), &line, &pool.rig.pin())
    };
    let one_process = format!("{cards} cards, one process");
    let in_the_pool = format!("{cards} cards, the pool");
    compare::run(
        "Virtual cards that take 50 ms for each signature, under OpenSC's module",
        vec![
            Variant::new("1 card", || past(1)),
            Variant::new(one_process, || past(cards)),
            Variant::new(in_the_pool.clone(), through),
        ],
        &[Goal {
            of: in_the_pool,
            against: "1 card".into(),
            bound: Bound::RateRatioAtLeast(goal),
        }],
        effort.rounds,
        turn,
    )
}

fn measured(run: Run, module: &std::path::Path, line: &str, pin: &str) -> Result<Measurement> {
    let finished = run
        .arg(source().join("tests/suite/programs/every_token.py"))
        .arg(module)
        .args(line)
        .env("PIN", pin)
        .limit(120)
        .finish();
    serde_json::from_str(&finished.out).map_err(|error| {
        let message = format!("what the program measured: {error}\n{finished}");
        Error::request(Kind::Protocol, message)
    })
}
