//! Objects with their replicas, as a table.

use hsmux_daemon::admin::KeyRow;
use hsmux_token::ck;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Prints objects.
pub fn show(context: &Context, rows: &[KeyRow]) -> anyhow::Result<Exit> {
    if context.json {
        output::json(&rows)?;
        return Ok(Exit::Done);
    }
    let header = ["label", "class", "type", "id", "served by", "trouble"];
    output::table(&header, rows.iter().map(cells));
    Ok(Exit::Done)
}

/// What is wrong with replicas, a sentence each.
pub fn faults(rows: &[KeyRow]) -> Vec<String> {
    let mut faults = Vec::new();
    for KeyRow {
        object, missing, ..
    } in rows
    {
        let about = format!("{} {:?}", object.class, object.label);
        for replica in &object.replicas {
            if replica.state != "serving" {
                let reason = replica.reason.as_deref().unwrap_or(&replica.state);
                faults.push(format!("{about} on {}: {reason}", replica.seat));
            }
        }
        faults.extend(
            missing
                .iter()
                .map(|member| format!("{about} is not on {member}")),
        );
    }
    faults
}

fn cells(row: &KeyRow) -> Vec<String> {
    let object = &row.object;
    let unproved = object
        .replicas
        .iter()
        .filter(|replica| replica.state == "unproved")
        .count();
    let trouble = match (unproved, row.missing.len()) {
        (0, 0) => String::new(),
        (0, missing) => format!("missing on {missing}"),
        (unproved, 0) => format!("{unproved} unproved"),
        (unproved, missing) => format!("{unproved} unproved, missing on {missing}"),
    };
    vec![
        object.label.clone(),
        object.class.clone(),
        object.key_type.map(key_type).unwrap_or_default(),
        shortened(&object.id),
        object.members.join(" "),
        trouble,
    ]
}

fn shortened(id: &str) -> String {
    match id.get(..12) {
        Some(start) if id.len() > 16 => format!("{start}..."),
        _ => id.to_owned(),
    }
}

fn key_type(number: u64) -> String {
    match number {
        ck::CKK_RSA => "RSA".into(),
        ck::CKK_EC => "EC".into(),
        ck::CKK_EC_EDWARDS => "Edwards".into(),
        ck::CKK_EC_MONTGOMERY => "Montgomery".into(),
        ck::CKK_AES => "AES".into(),
        ck::CKK_DES3 => "DES3".into(),
        ck::CKK_GENERIC_SECRET => "generic".into(),
        other => format!("0x{other:x}"),
    }
}
