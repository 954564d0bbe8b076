//! The broker's keys on the tokens, as another program reads them.

use hsmux_suite::{PATIENCE, until};

use crate::rig::Broker;

/// A secret or private key of a managed key: its name, role and version.
pub type Half = (String, u8, u32);

/// All of them on a token, as another program reads them.
pub fn on_token(broker: &Broker, label: &str) -> Vec<Half> {
    let half = |(name, id): (String, String)| {
        let mark = &id[MARK.len()..];
        let number = |from, to| u32::from_str_radix(&mark[from..to], 16).expect("hex");
        (
            name,
            u8::try_from(number(2, 4)).expect("a role"),
            number(4, 12),
        )
    };
    let mut halves: Vec<_> = ids_on_token(broker, label).into_iter().map(half).collect();
    halves.sort();
    halves
}

/// What the CKA_ID of a managed key begins with.
pub const MARK: &str = "68736d6201";

/// Names and CKA_IDs.
pub fn ids_on_token(broker: &Broker, label: &str) -> Vec<(String, String)> {
    let listed = broker.rig.softhsm.tool(label).arg("--list-objects").ok();
    let (mut found, mut usable, mut name) = (Vec::new(), false, String::new());
    for line in listed.out.lines() {
        let (word, rest) = line.trim().split_once(':').unwrap_or((line, ""));
        match word {
            "label" => rest.trim().clone_into(&mut name),
            "ID" if usable && rest.trim().starts_with(MARK) => {
                found.push((name.clone(), rest.trim().to_owned()));
            }
            _ if line.contains("Object;") => usable = !line.contains("Public"),
            _ => {}
        }
    }
    found
}

/// All that the broker's keys are made of.
pub fn of_broker(broker: &Broker) -> Vec<Half> {
    let (_, listed) = broker.ask("LIST", "keys", "");
    let mut halves = Vec::new();
    for name in listed["data"]["keys"].as_array().into_iter().flatten() {
        let name = name.as_str().expect("a name");
        let (status, shown) = broker.ask("GET", &format!("keys/{name}"), "");
        if status != 200 {
            continue;
        }
        let roles = if shown["data"]["type"] == "aes256-cbc" {
            2
        } else {
            1
        };
        for number in shown["data"]["keys"].as_object().expect("versions").keys() {
            let number: u32 = number.parse().expect("a number");
            halves.extend((0..roles).map(|role| (name.to_owned(), role, number)));
        }
    }
    halves.sort();
    halves
}

/// Waits until these tokens hold what the broker's keys are made of, and nothing else of its making.
pub fn until_whole(broker: &Broker, members: &[&str]) {
    until("the tokens hold what the broker has", PATIENCE, || {
        let expected = of_broker(broker);
        let there = |label: &&str| on_token(broker, label) == expected;
        members.iter().all(there).then_some(())
    });
}
