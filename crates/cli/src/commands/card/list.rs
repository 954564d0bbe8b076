//! `hsmux card list`.

use hsmux_smartcard::PinStatus;
use hsmux_smartcard::pkcs15::KeyFamily;
use hsmux_smartcard::provision::report::{CardReport, DkekState, KeyReport, report};
use serde_json::{Value, json};

use super::{find, parked};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

pub fn run(context: &Context) -> anyhow::Result<Exit> {
    let used = parked::in_use(context)?;
    let (cards, others) = find::all()?;
    let mut reports = Vec::new();
    for mut found in cards {
        // A member of the pool stays logged in.
        let quietly = used.contains(&found.serial);
        reports.push(report(&mut found.card, quietly)?);
    }
    if context.json {
        let cards: Vec<_> = reports.iter().map(card_json).collect();
        output::json(&json!({ "cards": cards, "others": others }))?;
        return Ok(Exit::Done);
    }
    let header = [
        "serial", "label", "version", "PIN", "SO-PIN", "DKEK", "keys",
    ];
    output::table(&header, reports.iter().map(cells));
    for report in &reports {
        println!("\n{} in {}", report.serial, report.reader);
        let header = ["key", "kind", "label", "id", "certificate"];
        output::table(&header, report.keys.iter().map(key_cells));
    }
    for other in others {
        println!("\n{other}");
    }
    Ok(Exit::Done)
}

fn cells(card: &CardReport) -> Vec<String> {
    vec![
        card.serial.clone(),
        card.label.clone(),
        version(card).unwrap_or_else(|| "in use".into()),
        pin(card.pin),
        pin(card.so_pin),
        dkek(card.dkek),
        card.keys.len().to_string(),
    ]
}

fn key_cells(key: &KeyReport) -> Vec<String> {
    vec![
        key.reference.0.to_string(),
        kind(key).unwrap_or_else(|| "not described".into()),
        key.label.clone(),
        hex::encode(&key.id),
        if key.certificate { "yes" } else { "no" }.to_owned(),
    ]
}

fn version(card: &CardReport) -> Option<String> {
    card.version
        .map(|(major, minor)| format!("{major}.{minor}"))
}

fn pin(pin: PinStatus) -> String {
    match pin {
        PinStatus::LoggedIn => "logged in".into(),
        PinStatus::TriesLeft(1) => "1 try left".into(),
        PinStatus::TriesLeft(tries) => format!("{tries} tries left"),
        PinStatus::Blocked => "blocked".into(),
        PinStatus::Transport => "transport PIN".into(),
        PinStatus::NotSet => "not set".into(),
    }
}

fn dkek(dkek: DkekState) -> String {
    match dkek {
        DkekState::None => "none".into(),
        DkekState::Missing(missing, of) => format!("{missing} of {of} shares missing"),
        DkekState::Complete(value) => value.to_string(),
    }
}

fn kind(key: &KeyReport) -> Option<String> {
    let family = match key.family? {
        KeyFamily::Rsa => "RSA",
        KeyFamily::Ec => "EC",
        KeyFamily::Aes => "AES",
    };
    Some(match key.bits {
        Some(bits) => format!("{family} {bits}"),
        None => family.to_owned(),
    })
}

fn card_json(card: &CardReport) -> Value {
    let key = |key: &KeyReport| {
        json!({
            "key": key.reference.0,
            "kind": kind(key),
            "label": key.label,
            "id": hex::encode(&key.id),
            "certificate": key.certificate,
        })
    };
    json!({
        "serial": card.serial,
        "reader": card.reader,
        "label": card.label,
        "version": version(card),
        "pin": pin(card.pin),
        "so_pin": pin(card.so_pin),
        "dkek": dkek(card.dkek),
        "keys": card.keys.iter().map(key).collect::<Vec<_>>(),
    })
}
