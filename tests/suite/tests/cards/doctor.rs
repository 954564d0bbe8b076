//! What `hsmux doctor` says of OpenSC's settings.

use std::fs;

use hsmux_suite::{CardPool, Cards, Finished};
use hsmux_vcard::Timing;

const KEY: [(&str, &str, &str); 1] = [("EC:prime256v1", "10", "ec")];

fn doctor(pool: &CardPool) -> Finished {
    pool.rig.write_config();
    pool.seeing(pool.rig.hsmux("doctor")).finish()
}

/// With OpenSC's own settings it shows four cards, and each worker looks into all of them.
#[test]
fn workers_that_look_into_each_others_cards() {
    const CARDS: usize = 5;
    let mut pool = CardPool::prepare(CARDS, &Timing::None, &KEY);
    let said = doctor(&pool);
    said.never_says("OPENSC_CONF").says("(pcsc)");

    let conf = pool.rig.path("opensc.conf");
    fs::write(&conf, "app default { }\n").unwrap();
    for member in &mut pool.rig.config.members {
        member.more = format!("env = {{ OPENSC_CONF = '{}' }}", conf.display());
    }
    doctor(&pool)
        .says("looks into 4 cards")
        .says(&Cards::serial(CARDS - 1))
        .says("shows 4 cards, and its own is not among them")
        .says("OPENSC_CONF");
}
