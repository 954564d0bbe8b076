//! Objects with their replicas, as a table.

use hsmux_daemon::admin::KeyRow;
use hsmux_token::key_type_name;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Prints objects.
pub fn show(context: &Context, rows: &[KeyRow]) -> anyhow::Result<Exit> {
    if context.json {
        output::json(&rows)?;
        return Ok(Exit::Done);
    }
    let columns = [
        output::Column::whole("LABEL"),
        output::Column::prose("CLASS"),
        output::Column::whole("TYPE"),
        output::Column::whole("ID"),
        output::Column::prose("SERVED BY"),
        output::Column::prose("TROUBLE"),
    ];
    output::table(&columns, rows.iter().map(cells));
    for reason in rows.iter().flat_map(unproved) {
        println!("\n{reason}");
    }
    for note in rows.iter().flat_map(|row| &row.notes) {
        eprintln!("note: {note}");
    }
    Ok(Exit::Done)
}

/// Whether every member in service has a serving replica of each.
pub fn complete(rows: &[KeyRow]) -> bool {
    let mut replicas = rows.iter().flat_map(|row| &row.object.replicas);
    replicas.all(|replica| replica.serves) && rows.iter().all(|row| row.missing.is_empty())
}

/// A sentence for each missing or unavailable replica.
pub fn absent(rows: &[KeyRow]) -> Vec<String> {
    let mut faults = Vec::new();
    for KeyRow {
        object, missing, ..
    } in rows
    {
        let about = format!("{} {:?}", object.class, object.label);
        faults.extend(object.replicas.iter().filter_map(|replica| {
            let state = &replica.state;
            let away = state != "serving" && replica.reason.is_none();
            away.then(|| format!("{about} on {}: {state}", replica.seat))
        }));
        faults.extend(
            missing
                .iter()
                .map(|member| format!("{about} is not on {member}")),
        );
    }
    faults
}

/// The reasons and commands for replicas that do not serve; one line for all workers of a member.
fn unproved(row: &KeyRow) -> Vec<String> {
    let object = &row.object;
    let reasons = object.replicas.iter().filter_map(|replica| {
        let (member, reason) = (&replica.member, replica.reason.as_ref()?);
        Some(format!(
            "{} {:?} on {member}: {reason}",
            object.class, object.label
        ))
    });
    let mut reasons: Vec<_> = reasons.collect();
    reasons.dedup();
    reasons
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
        object
            .key_type
            .map(|number| key_type_name(number).into_owned())
            .unwrap_or_default(),
        object.id.clone(),
        object.members.join(" "),
        trouble,
    ]
}
