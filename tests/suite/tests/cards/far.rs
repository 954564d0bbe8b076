//! How many commands a pool sends to a card, by which the latency of a far reader becomes a time.

use hsmux_suite::{Caller, CardPool, source};
use hsmux_vcard::Timing;
use serde_json::json;

const KEY: [(&str, &str, &str); 1] = [("EC:prime256v1", "10", "ec")];
const SIGNATURES: u64 = 20;

fn commands(pool: &CardPool) -> u64 {
    pool.cards.readers.worked()[0].commands
}

#[test]
fn the_guide_counts_what_opensc_sends() {
    let mut pool = CardPool::prepare(2, &Timing::None, &KEY);
    pool.rig.config.members.truncate(1);
    pool.start();
    let mut program = Caller::open(&pool.rig);
    let mut sign = || program.ok("sign", json!({}));
    sign();
    let before = commands(&pool);
    (0..SIGNATURES).for_each(|_| drop(sign()));
    let signature = (commands(&pool) - before) / SIGNATURES;
    let guide = std::fs::read_to_string(source().join("docs/cards.md")).unwrap();
    let row = format!("| a signature of a pool, through OpenSC | {signature} |");
    assert!(guide.contains(&row), "docs/cards.md lacks: {row}");
}
