//! Keys: made, deleted, proved.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_pool::{BROKER_MARK, Catalogue, Entry, ObjectStatus, Pool, ReplicaState, SeatState};
use hsmux_software::{refuses_template, unchecked_kind, with_default_uses};
use hsmux_token::{Class, Error, Kind, ObjectId, Operation, Outcome, Result, Token, Uri, ck};

use super::status::why;
use super::{KeyRow, KeySpec, find};

/// All objects with their replicas, hsmux's own keys left out.
pub fn rows(pool: &Pool) -> Vec<KeyRow> {
    let status = pool.status();
    let catalogue = pool.catalogue();
    let serving: BTreeSet<&String> = status
        .seats
        .iter()
        .filter(|seat| seat.state == SeatState::InService && !seat.remote)
        .map(|seat| &seat.member)
        .collect();
    let shown = |row: &&ObjectStatus| !row.label.starts_with(hsmux_pool::HIDDEN_LABEL);
    status
        .objects
        .iter()
        .filter(shown)
        .map(|object| row(object, &catalogue, &serving))
        .collect()
}

fn row(object: &ObjectStatus, catalogue: &Catalogue, serving: &BTreeSet<&String>) -> KeyRow {
    let mut name = [0; 32];
    let named = hex::decode_to_slice(&object.name, &mut name).is_ok();
    let of_name = |class: Class| catalogue.entries.get(&ObjectId { class, name });
    let class = CLASSES
        .into_iter()
        .find(|class| class.name() == object.class);
    let entry = class.filter(|_| named).and_then(of_name);
    let uri = Uri {
        object: Some(object.label.clone()).filter(|label| !label.is_empty()),
        id: hex::decode(&object.id).ok().filter(|id| !id.is_empty()),
        class,
        ..Uri::default()
    };
    // A key that only its own token can name cannot be on another.
    let may_be_elsewhere =
        entry.is_none_or(|entry| unchecked_kind(&entry.object.attributes).is_none());
    let holds = |member: &str| {
        object
            .replicas
            .iter()
            .any(|replica| replica.member == member)
    };
    KeyRow {
        uri: uri.to_string(),
        extractable: entry.and_then(|e| e.object.attributes.flag(ck::CKA_EXTRACTABLE)),
        missing: serving
            .iter()
            .filter(|m| may_be_elsewhere && !holds(m))
            .map(ToString::to_string)
            .collect(),
        notes: Vec::new(),
        object: object.clone(),
    }
}

/// Labels of private and secret keys that no other member serves.
pub fn served_by_it_alone(pool: &Pool, member: &str) -> Vec<String> {
    let catalogue = pool.catalogue();
    let secret = |class| matches!(class, Class::PRIVATE_KEY | Class::SECRET_KEY);
    let entries = catalogue.entries.values().filter(|entry| {
        !entry.hidden && secret(entry.object.id.class) && entry.members() == [member]
    });
    let label = |entry: &Arc<Entry>| entry.object.attributes.text(ck::CKA_LABEL);
    let mut labels: Vec<_> = entries
        .map(|entry| label(entry).unwrap_or_else(|| format!("{:?}", entry.object.id)))
        .collect();
    labels.sort();
    labels
}

/// Some names in a sentence: the first ten, and how many more there are.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|n| format!("{n:?}")).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

const CLASSES: [Class; 5] = [
    Class::PRIVATE_KEY,
    Class::PUBLIC_KEY,
    Class::SECRET_KEY,
    Class::CERTIFICATE,
    Class::DATA,
];

/// The rows of some objects.
fn rows_of(pool: &Pool, ids: &[ObjectId]) -> Vec<KeyRow> {
    let wanted: Vec<_> = ids
        .iter()
        .map(|id| (hex::encode(id.name), id.class.name()))
        .collect();
    let mut rows = rows(pool);
    rows.retain(|row| {
        wanted
            .iter()
            .any(|(name, class)| row.object.name == *name && row.object.class == *class)
    });
    rows
}

/// Makes a key or a pair on the members.
pub fn generate(
    pool: &Pool,
    spec: KeySpec,
    label: &str,
    id: Option<Vec<u8>>,
    deadline: Instant,
) -> Result<Vec<KeyRow>> {
    let random = || -> Result<Vec<u8>> {
        let mut id = vec![0; 16];
        getrandom::fill(&mut id)
            .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
        Ok(id)
    };
    let id = id.map_or_else(random, Ok)?;
    if id.starts_with(BROKER_MARK) {
        let why = "such a CKA_ID is the broker's own: leave it out for a random one";
        return Err(Error::request(Kind::Forbidden, why));
    }
    if let Some(entry) = key_with_id(pool, &id) {
        let label = entry.object.attributes.text(ck::CKA_LABEL);
        let (label, id) = (label.unwrap_or_default(), hex::encode(&id));
        let why = format!(
            "the key {label:?} has the id {id} already: give another one, or hsmux key delete --id {id}"
        );
        return Err(Error::request(Kind::Invalid, why));
    }
    let namesakes = find::keys_with_label(&pool.catalogue(), label);
    let operation = spec.operation(label, &id);
    let mut rows = match make(pool, &operation, deadline) {
        Err(error) if refuses_template(&error) => {
            let mut rows = make(pool, &with_default_uses(operation), deadline)?;
            let note = format!("the token decides what else this key may be used for: {error}");
            for row in &mut rows {
                row.notes.push(note.clone());
            }
            rows
        }
        made => made?,
    };
    if let (Some(row), Some(other)) = (rows.first_mut(), namesakes.first()) {
        let others = match namesakes.len() {
            1 => format!(
                "another key has the label {label:?}: {}",
                find::named(&other.object)
            ),
            count => format!("{count} other keys have the label {label:?}"),
        };
        let own = hex::encode(&id);
        row.notes
            .push(format!("{others}. To name the new one alone: --id {own}"));
    }
    Ok(rows)
}

/// A private or secret key of this pool's own members with this CKA_ID. Two of them could not be told apart by it, and
/// OpenSC makes none. Another host may use the same ids.
fn key_with_id(pool: &Pool, id: &[u8]) -> Option<Arc<Entry>> {
    let catalogue = pool.catalogue();
    let mut entries = catalogue.entries.values();
    let found = entries.find(|entry| {
        let object = &entry.object;
        let is_key = [Class::PRIVATE_KEY, Class::SECRET_KEY].contains(&object.id.class);
        is_key
            && !entry.hidden
            && catalogue.is_own(entry)
            && object.attributes.get(ck::CKA_ID) == Some(id)
    });
    found.cloned()
}

/// How long new replicas may take to prove themselves: on a card each takes a second, after those of other keys.
const PROVED_WITHIN: Duration = Duration::from_secs(60);

/// Makes what the operation says, and shows it once every replica has proved itself, or has not.
pub fn make(pool: &Pool, operation: &Operation, deadline: Instant) -> Result<Vec<KeyRow>> {
    let made = pool.execute(operation, deadline)?.into_objects()?;
    let ids: Vec<_> = made.iter().map(|made| made.object.id).collect();
    let end = deadline.min(Instant::now() + PROVED_WITHIN);
    while Instant::now() < end && ids.iter().any(|id| is_proving(pool, id)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(rows_of(pool, &ids))
}

/// True if one of its replicas is proving itself for the first time.
fn is_proving(pool: &Pool, id: &ObjectId) -> bool {
    let catalogue = pool.catalogue();
    let entry = catalogue.entries.get(id);
    entry.is_some_and(|entry| {
        let mut replicas = entry.replicas.iter();
        replicas.any(|replica| replica.state == ReplicaState::Proving)
    })
}

/// The objects that match, with their replicas.
pub fn find(pool: &Pool, uri: &Uri) -> Result<Vec<KeyRow>> {
    let entries = find::entries(&pool.catalogue(), uri)?;
    let ids: Vec<_> = entries.iter().map(|entry| entry.object.id).collect();
    Ok(rows_of(pool, &ids))
}

/// All objects that match, if they are the ones that the administrator was shown.
pub fn shown(
    pool: &Pool,
    uri: &Uri,
    shown: &BTreeSet<(String, String)>,
) -> Result<Vec<Arc<Entry>>> {
    let entries = find::entries(&pool.catalogue(), uri)?;
    let matching = entries.iter().map(|entry| {
        let id = entry.object.id;
        (id.class.name().to_owned(), hex::encode(id.name))
    });
    if matching.collect::<BTreeSet<_>>() != *shown {
        let message = format!(
            "{uri}: other objects match now than those that were listed; nothing was deleted, list them again"
        );
        return Err(Error::request(Kind::Invalid, message));
    }
    Ok(entries)
}

/// Refuses keys of the broker, unless they may be deleted.
pub fn spare_broker_keys(entries: &[Arc<Entry>], allowed: bool) -> Result<()> {
    let Some(entry) = entries.iter().find(|entry| entry.broker_key && !allowed) else {
        return Ok(());
    };
    let name = entry.object.attributes.text(ck::CKA_LABEL);
    let name = name.unwrap_or_default();
    let why = format!(
        "nothing was deleted: {} is a version of the broker's key {name:?}, and what it has enciphered is lost with \
         it. Delete the key through the broker (DELETE /v1/transit/keys/{name}), or repeat this with --broker-keys",
        find::named(&entry.object),
    );
    Err(Error::request(Kind::Forbidden, why))
}

/// Deletes objects from all members.
pub fn delete(pool: &Pool, entries: Vec<Arc<Entry>>, deadline: Instant) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for entry in entries {
        let id = entry.object.id;
        // A private key's other half may have gone with it.
        if pool.catalogue().get(&id).is_none() {
            continue;
        }
        let outcome = pool.execute(&Operation::Destroy { object: id.into() }, deadline)?;
        debug_assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
        lines.push(format!("deleted {}", find::named(&entry.object)));
    }
    Ok(lines)
}

/// Reads every member again and proves its replicas.
pub fn verify(pool: &Pool, which: Option<&Uri>) -> Result<Vec<KeyRow>> {
    let mut members: Vec<String> = pool
        .status()
        .seats
        .into_iter()
        .map(|seat| seat.member)
        .collect();
    members.dedup();
    for member in &members {
        // A member that is away is seen in the rows.
        if let Err(error) = pool.prove(member) {
            tracing::warn!(member, %error, "not proved");
        }
    }
    let Some(uri) = which else {
        return Ok(rows(pool));
    };
    let entries = find::entries(&pool.catalogue(), uri)?;
    let ids: Vec<_> = entries.iter().map(|entry| entry.object.id).collect();
    for member in &members {
        if let Err(error) = pool.prove_counted(member, &ids) {
            tracing::warn!(member, %error, "not proved");
        }
    }
    Ok(rows_of(pool, &ids))
}

/// Waits for a member that was told to connect; says how it is then.
pub fn until_settled(pool: &Pool, member: &str) -> Result<String> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let status = pool.status();
        let mut seats = status
            .seats
            .iter()
            .filter(|s| s.member == member || s.name == member);
        let seat = seats
            .next()
            .ok_or_else(|| Error::request(Kind::Invalid, format!("there is no member {member}")))?;
        match seat.state {
            SeatState::InService => return Ok(format!("{member} serves")),
            SeatState::Connecting if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            SeatState::Connecting => return Ok(format!("{member} is still connecting")),
            _ => {
                let why = why(seat).unwrap_or_default();
                let last = pool.last_error(&seat.name).map(|error| error.kind());
                let kind = last.filter(|kind| *kind == Kind::PinHeld);
                let kind = kind.unwrap_or(Kind::NoReplica);
                return Err(Error::token(kind, format!("{member}: {why}")));
            }
        }
    }
}
