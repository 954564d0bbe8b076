//! docs/cards-in-a-pool.md: its commands work as they are written, again and again.

use std::fs;

use hsmux_suite::{CardPool, Cards, OPENSC, PATIENCE, Program, Run, built, source, until};
use hsmux_vcard::{Order, Timing};

const CARDS: usize = 3;
const KEYS: [(&str, &str, &str); 1] = [("EC:prime256v1", "10", "ec")];

/// The page's `sh` blocks: the first one writes the configuration.
fn blocks() -> Vec<String> {
    let text = fs::read_to_string(source().join("docs/cards-in-a-pool.md")).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    let blocks: Vec<_> = blocks
        .filter_map(|block| Some(block.split_once("```")?.0.to_owned()))
        .collect();
    assert!(blocks[0].contains("hsmux config check"), "{blocks:?}");
    assert!(blocks[1].contains("hsmux serve"), "{blocks:?}");
    blocks
}

/// A shell in the folder of the cards that runs this script.
fn shell(pool: &CardPool, options: &str, script: &str) -> Run {
    let programs = built(Program::Hsmux);
    let programs = programs.parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    pool.cards
        .run("bash")
        .args(options)
        .args("-s")
        .env("PATH", format!("{programs}:{path}"))
        .input(script)
        .limit(600)
}

fn page() -> CardPool {
    CardPool::prepare(CARDS, &Timing::None, &KEYS)
}

/// With its own configuration a worker's OpenSC sees one card and looks into no other.
fn each_worker_has_its_own_card(pool: &CardPool) {
    for card in 0..CARDS {
        let own = Cards::serial(card);
        let conf = pool.cards.path(&format!("opensc-{own}.conf"));
        let tokens = pool
            .cards
            .run("pkcs11-tool")
            .args(&format!("--module {OPENSC} --list-token-slots"))
            .env("OPENSC_CONF", conf)
            .ok();
        for other in (0..CARDS).map(Cards::serial) {
            assert_eq!(tokens.all().contains(&other), other == own, "{tokens}");
        }
    }
}

/// The second time the state folder, the configuration and the key of the first time are there.
#[test]
fn the_commands_work_as_written_twice() {
    let pool = page();
    let script = blocks().concat() + "kill $!\nwait $!\n";
    let written = [1, 2].map(|_| {
        shell(&pool, "-euxo pipefail", &script).ok();
        each_worker_has_its_own_card(&pool);
        fs::read_to_string(pool.cards.path("hsmux.toml")).unwrap()
    });
    assert_eq!(written[0].matches("[[token]]").count(), CARDS);
    assert_eq!(written[0], written[1]);
}

/// As a shell goes on that somebody types into.
#[test]
fn a_listing_that_fails_leaves_the_configuration_whole() {
    let pool = page();
    let first = &blocks()[0];
    shell(&pool, "-euxo pipefail", first).ok();
    let file = pool.cards.path("hsmux.toml");
    let whole = fs::read_to_string(&file).unwrap();
    assert_eq!(whole.matches("[[token]]").count(), CARDS);

    pool.cards.readers.stop_pcscd();
    let run = shell(&pool, "-ux", first).finish();
    run.says("CalledProcessError");
    assert_eq!(fs::read_to_string(&file).unwrap(), whole, "{run}");
    pool.cards.readers.start_pcscd().unwrap();

    for card in 0..CARDS {
        pool.cards.readers.obey(card, Order::Unplug);
    }
    until("pcscd sees no card", PATIENCE, || {
        let hsmux = built(Program::Hsmux);
        let list = pool.cards.run(hsmux.to_str().unwrap());
        let list = list.args("card list --json").finish();
        (list.code == Some(0) && list.out.contains("\"cards\": []")).then_some(())
    });
    let run = shell(&pool, "-ux", first).finish();
    run.says("no card is plugged in");
    assert_eq!(fs::read_to_string(&file).unwrap(), whole, "{run}");

    // Nothing is left over that hinders the next one.
    for card in 0..CARDS {
        pool.cards.readers.obey(card, Order::Plug);
    }
    pool.cards.readers.wait().unwrap();
    shell(&pool, "-euxo pipefail", first).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), whole);
}
