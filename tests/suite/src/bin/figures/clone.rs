//! `hsmux card clone`: 20 keys to 7 cards, compared with the cards' own work, which the virtual cards count
//! from each command's arrival to its answer. No clone can be faster than the busiest card.

use std::time::Duration;

use hsmux_bench::Measurement;
use hsmux_bench::compare::{Bound, CompareReport, Goal};
use hsmux_suite::Cards;
use hsmux_vcard::Timing;

use crate::Effort;
use crate::progress::{Turns, preparing};

const TARGETS: usize = 7;
/// Keys of each kind.
const KEYS: usize = 10;
const KINDS: [&str; 2] = ["rsa:2048", "EC:brainpoolP256r1"];

/// Approximate duration of a round, with new cards.
const ROUND: Duration = Duration::from_secs(30);

/// Cards with the published times of signatures, which prove each copy.
pub fn twenty_keys(effort: Effort) -> CompareReport {
    preparing("8 cards, one with 20 keys");
    let cards = Cards::paced(1 + TARGETS, &Timing::SmartCardHsm);
    cards.set_up(0..1 + TARGETS);
    let keys = KINDS.iter().flat_map(|kind| [*kind; KEYS]).enumerate();
    for (number, kind) in keys {
        cards.generate(
            0,
            kind,
            &format!("{:02x}", 16 + number),
            &format!("key{number}"),
        );
    }
    let mut turns = Turns::new(vec![ROUND; effort.clones]);
    let mut clones = Vec::new();
    let mut shares = Vec::new();
    for round in 0..effort.clones {
        turns.next(&format!("round {}: clone", round + 1));
        if round > 0 {
            cards.set_up(1..1 + TARGETS);
        }
        let before = cards.readers.worked();
        let took = cards.clone_first().took;
        let after = cards.readers.worked();
        let worked = after.iter().zip(before);
        let share = worked.map(|(after, before)| after.since(before).time).max();
        clones.push(copied_in(took));
        shares.push(copied_in(share.expect("cards")));
    }
    let (clone, share) = ("hsmux card clone", "the slowest card's own share");
    CompareReport::new(
        "10 RSA-2048 and 10 brainpoolP256r1 keys to 7 virtual cards that take the published time for each \
         signature, copies for each second",
        [(clone.to_owned(), clones), (share.to_owned(), shares)],
        &[Goal {
            of: clone.to_owned(),
            against: share.to_owned(),
            bound: Bound::TimeRatioAtMost(1.1),
        }],
    )
}

/// The time of all copies.
fn copied_in(time: Duration) -> Measurement {
    let (copies, seconds) = (KINDS.len() * KEYS * TARGETS, time.as_secs_f64());
    Measurement::elsewhere(copies as u64, seconds, copies as f64 / seconds)
}
