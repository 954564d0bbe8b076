//! A card in memory against a card behind pcscd, to measure the cost of the connection.
//! libpcsclite reads pcscd's address from the environment once, so a child process drives the card in a reader.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hsmux_bench::burn_in::NamedToken;
use hsmux_bench::cards::{Timing, card_in_reader, key_kind, virtual_cards};
use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_bench::{BenchKey, Measurement, RunControl, Until, sign};
use hsmux_suite::Cards;
use hsmux_token::{Error, Kind, Result, Secret};

use crate::Effort;
use crate::progress::preparing;

/// The first argument for the child process; the second is a duration in milliseconds.
pub const IN_READER: &str = "in-reader";

/// The published time of a signature, in seconds.
const SERVICE: f64 = 0.241;

/// Cards with the published time of a signature: the same rate.
pub fn with_the_times_of_a_card(mut effort: Effort) -> Result<CompareReport> {
    effort.turn = Duration::from_secs_f64(SERVICE * f64::from(effort.signatures));
    let goal = Goal {
        of: "pcscd".into(),
        against: "memory".into(),
        bound: Bound::RateRatioAtLeast(0.99),
    };
    compare(
        effort,
        &Timing::SmartCardHsm,
        "A virtual card that takes 241 ms for a brainpoolP256r1 signature, in memory and behind pcscd",
        &[goal],
    )
}

/// Cards without delay: the overhead of pcscd per command.
pub fn without_delay(effort: Effort) -> Result<CompareReport> {
    compare(
        effort,
        &Timing::None,
        "A virtual card as fast as this machine computes a brainpoolP256r1 signature, in memory and behind pcscd",
        &[],
    )
}

fn compare(effort: Effort, timing: &Timing, title: &str, goals: &[Goal]) -> Result<CompareReport> {
    preparing("a card in memory and one in a reader");
    let behind = Cards::paced(1, timing);
    behind.initialise(0, "");
    behind.generate(0, "EC:brainpoolP256r1", "10", "ec");
    let kind = key_kind("ec:brainpoolP256r1")?;
    let in_memory = virtual_cards(1, kind, timing, &behind.path("memory"))?;
    let variants = vec![
        Variant::new("memory", || signed(&in_memory[0].named_token, effort.turn)),
        Variant::new("pcscd", || in_a_reader_of(&behind, effort.turn)),
    ];
    effort.compare(title, variants, goals)
}

/// Signs with this card, sequentially.
fn signed(card: &NamedToken, time: Duration) -> Result<Measurement> {
    let private = "pkcs11:type=private".parse().expect("a URI");
    let key = BenchKey::find(&*card.token, Some(&private))?;
    let mechanism = key.mechanism.clone();
    let options = sign::SignOptions {
        until: Until::Elapsed(time),
        ..sign::SignOptions::new(card.token.clone(), &card.name, key, 1, 0)
    };
    let control = RunControl {
        stop: &AtomicBool::new(false),
        progress: &|_| {},
    };
    sign::measure(&options, &mechanism, control)
}

fn in_a_reader_of(cards: &Cards, time: Duration) -> Result<Measurement> {
    let program = std::env::current_exe().expect("the path of this program");
    let finished = cards
        .run(program.to_str().expect("UTF-8"))
        .arg(IN_READER)
        .arg(time.as_millis().to_string())
        .env("PIN", Cards::PIN)
        .limit(120 + 2 * time.as_secs())
        .finish();
    serde_json::from_str(&finished.out).map_err(|error| {
        let message = format!("what was measured in the reader: {error}\n{finished}");
        Error::request(Kind::Protocol, message)
    })
}

/// Drives the card in the first reader for this number of milliseconds, and prints the measurement.
/// The PIN is in the environment.
pub fn in_reader(millis: &str) -> Result<()> {
    let invalid = |what| Error::request(Kind::Invalid, what);
    let millis = millis
        .parse()
        .map_err(|_| invalid("how many milliseconds?"))?;
    let pin = std::env::var("PIN").map_err(|_| invalid("PIN is not set"))?;
    let card = card_in_reader(&Secret::new(pin.into_bytes()))?;
    let measured = signed(&card, Duration::from_millis(millis))?;
    println!(
        "{}",
        serde_json::to_string(&measured).expect("JSON of plain data")
    );
    Ok(())
}
