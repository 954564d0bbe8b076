//! `hsmux card` over pcscd, crosswise with `sc-hsm-tool`.

use std::fs;

use hsmux_suite::{
    Cards, OPENSC, PATIENCE, Process, Program, Run, Terminal, built, until, write_secret,
};
use serde_json::Value;

const PASSWORD: &str = "password-of-the-share";

/// Blank cards, and the PINs in files.
fn blank(count: usize) -> Cards {
    let cards = Cards::blank(count);
    for (file, content) in [
        ("user.pin", Cards::PIN),
        ("so.pin", Cards::SO_PIN),
        ("wrong.pin", "999999"),
        ("password", PASSWORD),
    ] {
        write_secret(&cards.path(file), content);
    }
    cards
}

fn serial(card: usize) -> String {
    format!("SUITE{card:05}")
}

fn hsmux(cards: &Cards, line: &str) -> Run {
    cards
        .run(built(Program::Hsmux).to_str().unwrap())
        .args("card")
        .args(line)
}

fn init(cards: &Cards, card: usize, options: &str) {
    hsmux(
        cards,
        &format!("init --card {} --label card{card} {options}", serial(card)),
    )
    .args("--so-pin file:so.pin --pin file:user.pin --yes")
    .ok()
    .says(&serial(card));
}

fn list(cards: &Cards) -> Vec<Value> {
    let listed = hsmux(cards, "list --json").ok();
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    listed["cards"].as_array().unwrap().clone()
}

#[test]
fn the_label_of_a_card_is_typed_before_it_is_erased() {
    let cards = blank(1);
    init(&cards, 0, "");
    let label = || list(&cards)[0]["label"].as_str().map(str::to_owned);
    let erase = || {
        let line = format!("init --card {} --label new", serial(0));
        hsmux(&cards, &line).args("--so-pin file:so.pin --pin file:user.pin")
    };
    erase()
        .fails()
        .says(&format!("to be erased: card {} \"card0\" in ", serial(0)))
        .says("with its 0 keys")
        .says("needs --yes; nothing was erased");
    let mut wrong = Terminal::start(erase());
    wrong.answer("type its name: ", "y");
    assert!(wrong.fails().contains("nothing was erased"));
    assert_eq!(label().as_deref(), Some("card0"));
    let mut right = Terminal::start(erase());
    right.answer("type its name: ", "card0");
    right.ok();
    assert_eq!(label().as_deref(), Some("new"));
}

#[test]
fn what_sc_hsm_tool_makes_hsmux_takes() {
    let cards = blank(2);
    let share = format!("share.pbe --password {PASSWORD}");
    cards
        .sc_hsm_tool(0, &format!("--create-dkek-share {share}"))
        .ok();
    cards.initialise(0, "--dkek-shares 1");
    cards
        .sc_hsm_tool(0, &format!("--import-dkek-share {share}"))
        .ok();
    init(&cards, 1, "--dkek-shares 1");
    hsmux(
        &cards,
        &format!("dkek import-share share.pbe --card {}", serial(1)),
    )
    .args("--password file:password")
    .ok();
    let listed = list(&cards);
    assert_eq!(listed[0]["dkek"], listed[1]["dkek"]);

    for (number, kind) in [(1, "EC:prime256v1"), (2, "rsa:2048")] {
        let (id, label) = (format!("1{number}"), format!("key{number}"));
        cards.generate(0, kind, &id, &label);
        cards
            .sc_hsm_tool(
                0,
                &format!("--wrap-key {label}.wrapped --key-reference {number}"),
            )
            .args(&format!("--pin {}", Cards::PIN))
            .ok();
        hsmux(
            &cards,
            &format!("key unwrap {label}.wrapped --key {number}"),
        )
        .args(&format!("--card {} --pin file:user.pin", serial(1)))
        .ok()
        .says("proved")
        .never_says("not proved");
    }
    cards.sign_and_verify(1, "11", "key1", "ECDSA-SHA256");
    cards.sign_and_verify(1, "12", "key2", "SHA256-RSA-PKCS");
}

#[test]
fn what_hsmux_makes_sc_hsm_tool_takes() {
    let cards = blank(2);
    hsmux(
        &cards,
        "dkek create-share share.pbe --password file:password",
    )
    .ok();
    init(&cards, 0, "--dkek-shares 1");
    hsmux(
        &cards,
        &format!("dkek import-share share.pbe --card {}", serial(0)),
    )
    .args("--password file:password")
    .ok();
    cards.initialise(1, "--dkek-shares 1");
    cards
        .sc_hsm_tool(
            1,
            &format!("--import-dkek-share share.pbe --password {PASSWORD}"),
        )
        .ok();
    let listed = list(&cards);
    assert_eq!(listed[0]["dkek"], listed[1]["dkek"]);

    cards.generate(0, "EC:prime256v1", "10", "ec");
    hsmux(
        &cards,
        &format!("key wrap ec.wrapped --key 1 --card {}", serial(0)),
    )
    .args("--pin file:user.pin")
    .ok();
    cards
        .sc_hsm_tool(1, "--unwrap-key ec.wrapped --key-reference 1")
        .args(&format!("--pin {}", Cards::PIN))
        .finish();
    cards.sign_and_verify(1, "10", "ec", "ECDSA-SHA256");
}

/// Custodians of one program open the share of the other.
#[test]
fn custodians_go_crosswise() {
    let cards = blank(1);
    cards.initialise(0, "--dkek-shares 3");
    let created = cards
        .sc_hsm_tool(0, "--create-dkek-share theirs.pbe")
        .args("--pwd-shares-threshold 2 --pwd-shares-total 3")
        .input("\n".repeat(16))
        .ok();
    let noted = |name: &str| -> Vec<&str> {
        let lines = created.out.lines();
        lines.filter(|line| line.starts_with(name)).collect()
    };
    for (file, at) in [("one", 0), ("two", 2)] {
        let lines = [
            noted("Prime")[at],
            noted("Share ID")[at],
            noted("Share value")[at],
        ];
        write_secret(&cards.path(file), &lines.join("\n"));
    }
    hsmux(
        &cards,
        "dkek import-share theirs.pbe --custodian file:one --custodian file:two",
    )
    .ok()
    .says("2 more are missing");

    hsmux(&cards, "dkek create-share ours.pbe --threshold 2")
        .args("--custodian file:a --custodian file:b --custodian file:c")
        .ok();
    let value = |file: &str, name: &str| {
        let text = fs::read_to_string(cards.path(file)).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned();
        line.split_once(": ").unwrap().1.to_owned()
    };
    let mut answers = value("a", "Prime");
    for file in ["a", "c"] {
        let [id, value] = ["Share ID", "Share value"].map(|name| value(file, name));
        answers.extend(["\n\n", &id, "\n", &value]);
    }
    cards
        .sc_hsm_tool(0, "--import-dkek-share ours.pbe --pwd-shares-total 2")
        .input(answers + "\n")
        .ok();
    cards.status(0).says("1 share(s) still missing");
    // One custodian alone.
    hsmux(&cards, "dkek import-share ours.pbe --custodian file:a")
        .fails()
        .says("does not open");
    cards.status(0).says("1 share(s) still missing");
}

#[test]
fn one_card_becomes_three() {
    let cards = blank(3);
    hsmux(
        &cards,
        "dkek create-share share.pbe --password file:password",
    )
    .ok();
    (0..3).for_each(|card| init(&cards, card, "--dkek-shares 1"));
    hsmux(
        &cards,
        "dkek import-share share.pbe --all --password file:password",
    )
    .ok();
    cards.generate(0, "EC:prime256v1", "10", "ec");
    cards.generate(0, "rsa:2048", "11", "rsa");
    let clone = format!(
        "clone --from {} --all --pin file:user.pin --json",
        serial(0)
    );
    let copied = |run: Run| {
        let cloned: Value = serde_json::from_str(&run.ok().out).unwrap();
        cloned["cards"]
            .as_array()
            .unwrap()
            .iter()
            .map(|card| card["copied"].to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(copied(hsmux(&cards, &clone)), ["[1,2]", "[1,2]"]);
    for card in 1..3 {
        cards.sign_and_verify(card, "10", "ec", "ECDSA-SHA256");
        cards.sign_and_verify(card, "11", "rsa", "SHA256-RSA-PKCS");
    }
    assert_eq!(copied(hsmux(&cards, &clone)), ["[]", "[]"]);
}

#[test]
fn nothing_is_erased_without_a_yes() {
    let cards = blank(1);
    init(&cards, 0, "");
    cards.generate(0, "EC:prime256v1", "10", "ec");
    hsmux(
        &cards,
        "init --label other --so-pin file:so.pin --pin file:user.pin",
    )
    .fails()
    .says(&serial(0))
    .says("--yes");
    cards.sign_and_verify(0, "10", "ec", "ECDSA-SHA256");
}

#[test]
fn a_wrong_pin_costs_one_try_and_the_last_is_kept() {
    let cards = blank(2);
    (0..2).for_each(|card| init(&cards, card, "--dkek-shares 0"));
    let backup = || hsmux(&cards, &format!("backup file --card {}", serial(0)));
    let tries = || list(&cards)[0]["pin"].as_str().unwrap().to_owned();
    backup()
        .args("--pin file:wrong.pin")
        .fails()
        .says("tried once");
    assert_eq!(tries(), "2 tries left");
    backup().args("--pin file:wrong.pin").fails();
    assert_eq!(tries(), "1 try left");
    backup()
        .args("--pin file:wrong.pin")
        .fails()
        .says("--last-try");
    assert_eq!(tries(), "1 try left");
    backup()
        .args("--pin file:wrong.pin --last-try")
        .fails()
        .says("unblock");
    assert_eq!(tries(), "blocked");
    hsmux(
        &cards,
        &format!("pin unblock --card {} --so-pin file:so.pin", serial(0)),
    )
    .ok();
    backup().args("--pin file:user.pin").ok();
    // Each of these cards has a DKEK of its own.
    hsmux(
        &cards,
        &format!("restore file --card {} --pin file:user.pin", serial(1)),
    )
    .fails()
    .says("key check value");
    hsmux(
        &cards,
        &format!("clone --from {} --to {}", serial(0), serial(1)),
    )
    .args("--pin file:user.pin")
    .fails()
    .says("nothing was touched");
}

/// Every `sh` block of the guide, in one shell, with the virtual cards that it names.
#[test]
fn the_guide_works() {
    let text = fs::read_to_string(hsmux_suite::source().join("docs/cards.md")).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    let script: String = blocks
        .filter_map(|block| Some(block.split_once("```")?.0))
        .collect();
    assert!(script.contains("card clone"), "{script}");
    let folder = tempfile::tempdir().unwrap();
    let programs = built(Program::Hsmux)
        .parent()
        .unwrap()
        .display()
        .to_string();
    Run::new(built(Program::Hsmux))
        .args("vcard run --count 8 -- bash -euxo pipefail -s")
        .dir(folder.path())
        .env("HOME", folder.path())
        .env(
            "PATH",
            format!("{programs}:{}", std::env::var("PATH").unwrap()),
        )
        .input(script)
        .limit(600)
        .ok();
}

/// A card that the daemon uses: its member rests while a command has the card, and serves again.
#[test]
fn the_daemon_lends_its_card() {
    let cards = blank(2);
    (0..2).for_each(|card| init(&cards, card, "--dkek-shares 0"));
    cards.generate(0, "EC:prime256v1", "10", "ec");
    let folder = cards.path("");
    let config = format!(
        "[pool]\nlabel = \"web\"\n[daemon]\nsocket = \"run/hsmux.sock\"\nstate = \"state\"\n\
         [[token]]\nname = \"one\"\nmodule = \"{OPENSC}\"\nuri = \"pkcs11:serial={}\"\n\
         pin = {{ file = \"user.pin\" }}\n",
        serial(0)
    );
    fs::write(cards.path("hsmux.toml"), config).unwrap();
    let with_config = |run: Run| run.env("HSMUX_CONFIG", cards.path("hsmux.toml"));
    let program = built(Program::Hsmux);
    let serve = cards.run(program.to_str().unwrap()).args("serve");
    let _daemon = Process::start("daemon", &folder, with_config(serve));
    let status = || {
        let status = cards.run(program.to_str().unwrap()).args("status --json");
        let status = with_config(status).finish();
        serde_json::from_str::<Value>(&status.out).unwrap_or_default()
    };
    let serves = || status()["members"][0]["state"] == "serving";
    let wait = || until("the card serves", PATIENCE, || serves().then_some(()));
    wait();
    let before = status()["members"][0]["pid"].clone();

    with_config(hsmux(&cards, "list")).ok().says("in use");
    assert!(serves() && status()["members"][0]["pid"] == before);

    let backup = format!("backup file --card {} --pin file:user.pin", serial(0));
    with_config(hsmux(&cards, &backup)).ok().says("1 keys");
    wait();
    let wrong = format!("backup other --card {} --pin file:wrong.pin", serial(0));
    with_config(hsmux(&cards, &wrong))
        .fails()
        .says("tried once");
    wait();
    let audit = cards.run(program.to_str().unwrap()).args("audit");
    with_config(audit)
        .ok()
        .says("token-park")
        .says("token-resume");
}
