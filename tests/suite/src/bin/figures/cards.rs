//! Virtual SmartCard-HSMs under OpenSC's module: one process for all against the pool, which has a worker for each.
//! OpenSC holds a lock while a card works, so one process gets one card's rate. `every_token.py` drives all variants.

use std::path::Path;
use std::time::Duration;

use hsmux_bench::Measurement;
use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_suite::{CardPool, Cards, OPENSC, Run, source};
use hsmux_token::{Error, Kind, Result};
use hsmux_vcard::Timing;

use crate::Effort;
use crate::progress::preparing;

/// Long compared with one signature.
const SHORTEST: Duration = Duration::from_secs(3);

/// Eight cards with 50 ms per signature, against one of them.
pub fn eight(effort: Effort) -> Result<CompareReport> {
    many(effort, 8, 7.6)
}

/// Sixteen, the maximum of one pcscd.
pub fn sixteen(effort: Effort) -> Result<CompareReport> {
    many(effort, 16, 14.8)
}

fn many(mut effort: Effort, cards: usize, goal: f64) -> Result<CompareReport> {
    effort.turn = effort.turn.max(SHORTEST);
    let timing = Timing::from_toml("[[time]]\noperation = \"sign\"\nmean_ms = 50");
    let timing = timing.expect("a timing");
    // Two sets of cards: a program that accesses a card logs out all other programs.
    let key = [("EC:prime256v1", "10", "ec")];
    preparing(&format!("{cards} cards, twice"));
    let bare = CardPool::prepare(cards, &timing, &key);
    let mut pool = CardPool::prepare(cards, &timing, &key);
    pool.start();
    let past = |tokens: usize| {
        let run = bare.cards.run("/usr/bin/python3");
        let last = format!("1 {tokens}");
        signed(run, OPENSC.as_ref(), Cards::PIN, effort.turn, "ec", &last)
    };
    let one_process = format!("{cards} cards, one process");
    let in_the_pool = format!("{cards} cards, the pool");
    effort.compare(
        "Virtual cards that take 50 ms for each signature, under OpenSC's module",
        vec![
            Variant::new("1 card", || past(1)),
            Variant::new(one_process, || past(cards)),
            Variant::new(in_the_pool.clone(), || {
                through(&pool, cards, effort.turn, "ec")
            }),
        ],
        &[Goal {
            of: in_the_pool,
            against: "1 card".into(),
            bound: Bound::RateRatioAtLeast(goal),
        }],
    )
}

/// Signs through the pool with this number of members in service.
pub fn through(pool: &CardPool, cards: usize, time: Duration, key: &str) -> Result<Measurement> {
    // For each card one running signature and one that waits.
    let callers = (2 * cards).to_string();
    let run = pool.rig.run("/usr/bin/python3");
    let (module, pin) = (pool.rig.module(), pool.rig.pin());
    signed(run, &module, &pin, time, key, &callers)
}

/// Runs the program; `last` are its last arguments.
fn signed(
    run: Run,
    module: &Path,
    pin: &str,
    time: Duration,
    key: &str,
    last: &str,
) -> Result<Measurement> {
    let seconds = time.as_secs_f64();
    let finished = run
        .arg(source().join("tests/suite/programs/every_token.py"))
        .arg(module)
        .args(&format!("PIN {seconds} {key} {last}"))
        .env("PIN", pin)
        .limit(120 + 2 * time.as_secs())
        .finish();
    serde_json::from_str(&finished.out).map_err(|error| {
        let message = format!("what the program measured: {error}\n{finished}");
        Error::request(Kind::Protocol, message)
    })
}
