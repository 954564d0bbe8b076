//! The published scaling of a SmartCard-HSM cluster: cards with the published times, through pcscd, OpenSC and one pool
//! of eight, with parked members in smaller steps. Only signatures while all cards work count (`every_token.py`).

use std::time::Duration;

use hsmux_bench::compare::{Bound, CompareReport, Goal};
use hsmux_bench::{Measurement, ScalingRow, scaling};
use hsmux_suite::{CardPool, Cards};
use hsmux_token::Result;
use hsmux_vcard::{KeyKind, Operation, Timing};

use crate::Effort;
use crate::cards::through;
use crate::progress::{Turns, preparing};

/// Descending: a parked card is not needed again.
const STEPS: [usize; 4] = [8, 4, 2, 1];

/// A kind of key with published figures.
struct Published {
    /// Its name in the table.
    name: &'static str,
    /// Its name in `pkcs11-tool`.
    kind: &'static str,
    id: &'static str,
    label: &'static str,
    card: KeyKind,
}

const KEYS: [Published; 2] = [
    Published {
        name: "rsa-2048",
        kind: "rsa:2048",
        id: "11",
        label: "rsa",
        card: KeyKind::Rsa(2048),
    },
    Published {
        name: "ec-brainpoolP256r1",
        kind: "EC:brainpoolP256r1",
        id: "10",
        label: "ec",
        card: KeyKind::Ec(256),
    },
];

/// Both kinds of key at 1, 2, 4 and 8 cards.
pub fn scaling_of_cards(effort: Effort) -> Result<Vec<CompareReport>> {
    let most = STEPS[0];
    preparing(&format!("{most} cards with the published times"));
    let keys = KEYS.each_ref().map(|key| (key.kind, key.id, key.label));
    let mut pool = CardPool::prepare(most, &Timing::SmartCardHsm, &keys);
    pool.start();
    let times = KEYS.each_ref().map(|key| key.time(effort.signatures));
    let mut turns = Turns::new(STEPS.iter().flat_map(|_| times));
    let mut measured = KEYS.each_ref().map(|_| Vec::new());
    let mut serving = most;
    for cards in STEPS {
        for card in cards..serving {
            pool.rig
                .hsmux(&format!("token park {}", Cards::serial(card)))
                .ok();
        }
        serving = cards;
        pool.rig.wait_for_members(cards);
        for ((key, time), measured) in KEYS.iter().zip(times).zip(&mut measured) {
            turns.next(&of(key.name, cards));
            let step = through(&pool, cards, time, key.label)?;
            measured.push((cards, step));
        }
    }
    let reports = KEYS.iter().zip(measured);
    Ok(reports.map(|(key, steps)| report(key, steps)).collect())
}

impl Published {
    /// The time for this number of signatures at the published rate.
    fn time(&self, signatures: u32) -> Duration {
        let service = Timing::SmartCardHsm.service(Operation::Sign, self.card);
        let mean_ms = service.expect("a published time").mean_ms;
        Duration::from_secs_f64(mean_ms / 1e3).mul_f64(f64::from(signatures) * 1.05)
    }
}

fn of(key: &str, cards: usize) -> String {
    match cards {
        1 => format!("{key}, 1 card"),
        _ => format!("{key}, {cards} cards"),
    }
}

/// The steps beside the published rows of this kind of key.
fn report(key: &Published, mut steps: Vec<(usize, Measurement)>) -> CompareReport {
    let mut goals = Vec::new();
    let mut rows = Vec::new();
    steps.reverse();
    for (cards, step) in steps {
        let name = of(key.name, cards);
        let goal = |against: &str, bound| Goal {
            of: name.clone(),
            against: against.to_owned(),
            bound,
        };
        let published = format!("published {name}");
        goals.push(goal(&published, Bound::RateRatioWithin(0.03)));
        if cards > 1 {
            let linear = 0.99 * cards as f64;
            goals.push(goal(&of(key.name, 1), Bound::RateRatioAtLeast(linear)));
        }
        rows.push((name, vec![step]));
    }
    let mut table = scaling();
    table.retain(|row| row.key == key.name);
    table.sort_by_key(|row| (row.hsms, row.signatures));
    rows.extend(
        table
            .into_iter()
            .map(|row| (published(&row), vec![elsewhere(&row)])),
    );
    let title = format!(
        "{}: virtual cards with the published times (--timing smartcard-hsm) through pcscd, OpenSC's module \
         and the pool, beside the published rates",
        key.name
    );
    CompareReport::new(&title, rows, &goals)
}

/// The name of a published row. Goals refer to the short runs, which have exactly this name.
fn published(row: &ScalingRow) -> String {
    let name = of(&row.key, row.hsms as usize);
    match (&row.remark, row.signatures) {
        (Some(remark), _) => format!("published {name}: {remark}"),
        (None, many @ 100_000..) => format!("published {name}, {many} signatures"),
        _ => format!("published {name}"),
    }
}

fn elsewhere(row: &ScalingRow) -> Measurement {
    Measurement::elsewhere(row.signatures.into(), row.duration_s, row.per_second)
}
