//! `hsmux card list`.

use hsmux_smartcard::PinStatus;
use hsmux_smartcard::pkcs15::KeyFamily;
use hsmux_smartcard::provision::ProvisionError;
use hsmux_smartcard::provision::report::{CardReport, DkekState, KeyReport, report};
use serde_json::{Value, json};

use super::{find, parked};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// A card, or its error.
struct CardRow {
    serial: String,
    reader: String,
    report: Result<CardReport, ProvisionError>,
}

/// A failing card does not hide others: its row has the error, and the exit code reports it.
pub fn run(context: &Context) -> anyhow::Result<Exit> {
    let used = parked::in_use(context)?;
    let (cards, others) = find::all()?;
    let rows: Vec<_> = cards
        .into_iter()
        .map(|mut found| CardRow {
            reader: found.card.name().to_owned(),
            // A member of the pool remains logged in.
            report: report(&mut found.card, used.contains(&found.serial)),
            serial: found.serial,
        })
        .collect();
    show(context, &rows, &others)?;
    let whole = rows.iter().all(|row| row.report.is_ok());
    let silent = others.iter().any(find::Other::is_silent);
    Ok(if whole && !silent {
        Exit::Done
    } else {
        Exit::Degraded
    })
}

fn show(context: &Context, rows: &[CardRow], others: &[find::Other]) -> anyhow::Result<()> {
    if context.json {
        let cards: Vec<_> = rows.iter().map(json).collect();
        let others: Vec<_> = others.iter().map(ToString::to_string).collect();
        return output::json(&json!({ "cards": cards, "others": others }));
    }
    let columns = [
        output::Column::whole("SERIAL"),
        output::Column::whole("LABEL"),
        output::Column::whole("VERSION"),
        output::Column::prose("PIN"),
        output::Column::prose("SO-PIN"),
        output::Column::prose("DKEK"),
        output::Column::whole("KEYS"),
    ];
    output::table(&columns, rows.iter().map(cells));
    for row in rows {
        println!("\n{} in {}", row.serial, row.reader);
        match &row.report {
            Ok(report) => {
                let columns = [
                    output::Column::whole("KEY"),
                    output::Column::prose("KIND"),
                    output::Column::whole("LABEL"),
                    output::Column::whole("ID"),
                    output::Column::prose("CERTIFICATE"),
                ];
                output::table(&columns, report.keys.iter().map(key_cells));
            }
            Err(error) => println!("{error}"),
        }
    }
    for other in others {
        println!("\n{other}");
    }
    Ok(())
}

fn cells(row: &CardRow) -> Vec<String> {
    let Ok(card) = &row.report else {
        return vec![row.serial.clone(), "fails, see below".into()];
    };
    vec![
        row.serial.clone(),
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

fn json(row: &CardRow) -> Value {
    let card = match &row.report {
        Ok(card) => card,
        Err(error) => {
            return json!({
                "serial": row.serial,
                "reader": row.reader,
                "error": error.to_string(),
            });
        }
    };
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
