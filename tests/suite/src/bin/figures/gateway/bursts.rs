//! The published burst of 60 users, on virtual cards with the published times.

use std::time::Duration;

use hsmux_bench::compare::{Bound, CompareReport, Goal};
use hsmux_bench::{Measurement, TlsRow, siege_table};
use hsmux_suite::gateway::{Gateway, certify_public, configure};
use hsmux_suite::{CardPool, Cards, PATIENCE, until};
use hsmux_token::Result;
use hsmux_vcard::{KeyKind, Operation, Timing};
use serde_json::Value;

use super::{PAGE, PATH, burst, measure};
use crate::Effort;
use crate::fact::Fact;
use crate::progress::{Turns, preparing};

const USERS: usize = 60;
/// Descending: a parked card is not needed again.
const STEPS: [usize; 3] = [3, 2, 1];

/// A kind of key with published bursts.
struct PublishedBurst {
    /// Its name in the table.
    name: &'static str,
    label: &'static str,
    card: KeyKind,
    signatures: &'static str,
}

const KEYS: [PublishedBurst; 2] = [
    PublishedBurst {
        name: "rsa-2048",
        label: "rsa",
        card: KeyKind::Rsa(2048),
        signatures: "rsa_pss_rsae_sha256:rsa_pkcs1_sha256",
    },
    PublishedBurst {
        name: "ec-prime256v1",
        label: "ec",
        card: KeyKind::Ec(256),
        signatures: "ecdsa_secp256r1_sha256",
    },
];

impl PublishedBurst {
    /// The maximum rate of one card, per second.
    fn per_second(&self) -> f64 {
        let service = Timing::SmartCardHsm.service(Operation::Sign, self.card);
        1e3 / service.expect("a published time").mean_ms
    }
}

/// RSA-2048 and P-256 on 1, 2 and 3 cards of one gateway, against the cards' maximum and the published rows.
pub fn bursts(effort: Effort) -> Result<(CompareReport, Vec<Fact>)> {
    let most = STEPS[0];
    preparing(&format!(
        "a gateway over {most} cards with the published times"
    ));
    let gateway_on_cards = CardGateway::start(most);
    let mut turns = Turns::new(STEPS.iter().flat_map(|_| KEYS.map(|_| effort.burst)));
    let (mut rows, mut goals, mut facts) = (Vec::new(), Vec::new(), Vec::new());
    let mut serving = most;
    for cards in STEPS {
        gateway_on_cards.park(cards..serving);
        serving = cards;
        for key in &KEYS {
            let name = of(key.name, cards);
            turns.next(&name);
            gateway_on_cards.rest();
            let mut options = burst(&gateway_on_cards.gateway.address, USERS, effort.burst);
            options.offer.signatures = Some(key.signatures.to_owned());
            // Three times the longest wait in a queue of all users, so that a forgotten one fails within the burst.
            options.timeout = (effort.burst * 3 / 4).min(Duration::from_secs(120));
            let report = measure(&options)?;
            let able = key.per_second() * cards as f64;
            let against = format!("{cards} x what a card can sign, {}", key.name);
            goals.push(Goal {
                of: name.clone(),
                against: against.clone(),
                bound: Bound::RateRatioWithin(0.03),
            });
            let available = format!("{name}, burst of {USERS} for {} s", effort.burst.as_secs());
            facts.push(Fact::new(available, report.figures.availability_pct, "%").at_least(100.0));
            rows.push((name, vec![report.measurement]));
            rows.push((against, vec![rate(effort.burst, able)]));
            rows.extend(published(key.name, cards));
        }
    }
    let title = format!(
        "A burst of {USERS} users on virtual cards with the published times, beside the published rows"
    );
    Ok((CompareReport::new(&title, rows, &goals), facts))
}

fn of(key: &str, cards: usize) -> String {
    match cards {
        1 => format!("{key}, 1 card"),
        _ => format!("{key}, {cards} cards"),
    }
}

/// An upper bound without a measurement.
fn rate(time: Duration, per_second: f64) -> Measurement {
    Measurement::elsewhere(0, time.as_secs_f64(), per_second)
}

/// The published bursts with this number of cards.
fn published(key: &str, cards: usize) -> impl Iterator<Item = (String, Vec<Measurement>)> {
    let fits = move |row: &TlsRow, key: &str| {
        let burst = row.think_s == 0.0 && row.users as usize == USERS && row.page == "static";
        burst && row.key == key && row.hsms as usize == cards
    };
    let mut table = siege_table();
    table.retain(|row| fits(row, key));
    table.into_iter().map(|row| {
        let figures = row.figures;
        let name = format!(
            "published {}, {}, {}, {:.0} % available",
            of(&row.key, row.hsms as usize),
            row.module,
            row.setup,
            figures.availability_pct
        );
        let elsewhere = Measurement {
            failed: figures.failed,
            ..Measurement::elsewhere(figures.transactions, figures.elapsed_s, figures.rate_per_s)
        };
        (name, vec![elsewhere])
    })
}

/// A gateway whose daemon has cards as members.
struct CardGateway {
    // Its daemon ends before the cards do.
    gateway: Gateway,
    _cards: Cards,
}

impl CardGateway {
    fn start(count: usize) -> Self {
        let keys = [("EC:prime256v1", "10", "ec"), ("rsa:2048", "11", "rsa")];
        let mut pool = CardPool::prepare(count, &Timing::SmartCardHsm, &keys);
        std::fs::create_dir(pool.rig.path("www")).expect("a folder");
        std::fs::write(pool.rig.path("www").join(PATH), PAGE).expect("a page");
        pool.start();
        for key in KEYS {
            certify_public(&pool.rig, key.label);
        }
        pool.rig.stop();
        let CardPool { mut rig, cards } = pool;
        // 60 clients at 0.658 s: the last one waits for 40 s.
        rig.config.pool = "deadline = \"120s\"".into();
        let site = "[[site]]\ncertificates = [\"rsa.pem\", \"ec.pem\"]\nroot = \"www\"";
        configure(&mut rig, "sign_timeout = \"120s\"", site);
        let gateway = Gateway::start_by(rig, |rig| {
            rig.write_config();
            let serve = rig.hsmux("serve");
            let environment = cards.readers.environment();
            rig.start_by(
                environment
                    .iter()
                    .fold(serve, |run, (name, value)| run.env(name, value)),
            );
            rig.wait_for_members(count);
        });
        Self {
            gateway,
            _cards: cards,
        }
    }

    /// Waits until no card signs, because remaining work would count in the next burst.
    fn rest(&self) {
        let signs = |member: &Value| member["in_flight"].as_u64() != Some(0);
        until("the cards rest", PATIENCE, || {
            let status = self.gateway.rig.status();
            let members = status["members"].as_array()?;
            (!members.iter().any(signs)).then_some(())
        });
    }

    /// Parks these cards.
    fn park(&self, cards: std::ops::Range<usize>) {
        let left = cards.start;
        for card in cards {
            let park = format!("token park {}", Cards::serial(card));
            self.gateway.rig.hsmux(&park).ok();
        }
        self.gateway.rig.wait_for_members(left);
    }
}
