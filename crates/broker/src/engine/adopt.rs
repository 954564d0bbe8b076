//! Reconciliation of the store with the tokens. Versions that the store lacks are read from the tokens: the store was
//! lost or is older, or a crash came between the two. Keys that are marked for deletion are destroyed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use hsmux_audit::Event;
use hsmux_token::{Class, ObjectId, Result, ck};
use serde_json::Value;

use super::{Engine, keyring};
use crate::audited_change;
use crate::key::{KeyMark, KeyName, KeySettings, KeyType, ManagedKey, Role, halves};
use crate::refusal::Refusal;
use crate::store::{Store, VersionRow, now};

/// A version as found on the tokens.
struct FoundVersion {
    kind: KeyType,
    main: Option<FoundKey>,
    mac: Option<FoundKey>,
}

/// One of its keys, with the CKA_ID.
struct FoundKey {
    object: ObjectId,
    id: Vec<u8>,
}

/// The outcome for one version.
enum Adoption {
    Taken,
    /// Half of it is missing, or it does not fit the key of that name.
    Left,
    /// Half of it was made by us when a crash came.
    Doomed,
}

impl Engine {
    /// Adopts new versions from the tokens, and destroys keys that are marked for deletion. It waits while keys are
    /// made or changed.
    pub async fn adopt(self: &Arc<Self>) {
        let _writer = self.writer.lock().await;
        let engine = Arc::clone(self);
        // The panic itself is in the log.
        let _ = tokio::task::spawn_blocking(move || engine.adopt_blocking()).await;
        let gone = match self.store.run(Store::doomed).await {
            Ok(doomed) => self.destroy_doomed(doomed).await,
            Err(error) => Err(error.into()),
        };
        if let Err(refusal) = gone {
            tracing::warn!(
                "keys that are deleted stay on the tokens: {}",
                refusal.text()
            );
        }
    }

    pub(super) fn adopt_blocking(&self) {
        let doomed: HashSet<ObjectId> = match self.store.doomed() {
            Ok(doomed) => doomed.into_iter().collect(),
            Err(error) => {
                return tracing::error!(%error, "nothing is taken over from the tokens");
            }
        };
        let (unknown, strays) = self.unknown_versions(&doomed);
        for stray in strays {
            if let Err(error) = self.half(&[&stray]) {
                tracing::error!(%error, "a key that nobody uses stays on the tokens");
            }
        }
        let latest = latest(&unknown);
        for ((name, number), found) in unknown {
            match self.adopt_one(&name, (number, latest.get(&name)), &found) {
                Ok(Adoption::Taken) => {
                    let key = self.keyring.get(name.as_str());
                    let is_denied = |key: Arc<ManagedKey>| number < key.settings.min_decryption;
                    let until = if key.is_some_and(is_denied) {
                        ", and not used until config (min_decryption_version) allows it"
                    } else {
                        ""
                    };
                    tracing::warn!(%name, number, "taken over from the tokens{until}");
                    self.audit
                        .record(self.own_act("broker-key-adopt", &name, number));
                }
                Ok(Adoption::Doomed) => tracing::warn!(%name, number, "was half made, and goes"),
                Ok(Adoption::Left) => {}
                Err(error) => {
                    tracing::error!(%name, number, %error, "not taken over from the tokens");
                }
            }
        }
    }

    /// Unknown versions, by name and number so that a key's versions come in order; and objects that a known version
    /// does not use.
    fn unknown_versions(
        &self,
        doomed: &HashSet<ObjectId>,
    ) -> (BTreeMap<(KeyName, u32), FoundVersion>, Vec<FoundKey>) {
        let catalogue = self.pool.catalogue();
        let (mut unknown, mut strays) = (BTreeMap::new(), Vec::new());
        let visible = catalogue.entries.values().filter(|entry| entry.visible());
        for object in visible.map(|entry| &entry.object) {
            let of_ours = matches!(object.id.class, Class::SECRET_KEY | Class::PRIVATE_KEY);
            if !of_ours || doomed.contains(&object.id) {
                continue;
            }
            let Some((name, mark)) = KeyMark::of(object) else {
                continue;
            };
            let id = object.attributes.get(ck::CKA_ID).unwrap_or_default();
            let part = FoundKey {
                object: object.id,
                id: id.to_vec(),
            };
            let key = self.keyring.get(name.as_str());
            match key.as_ref().and_then(|key| key.versions.get(&mark.version)) {
                Some(version) if version.objects().any(|known| known == object.id) => continue,
                Some(_) => {
                    strays.push(part);
                    continue;
                }
                None => {}
            }
            if key.is_some_and(|key| mark.version < key.settings.min_available) {
                continue;
            }
            let found = unknown.entry((name, mark.version)).or_insert(FoundVersion {
                kind: mark.kind,
                main: None,
                mac: None,
            });
            match mark.role {
                Role::Main => found.main = Some(part),
                Role::Mac => found.mac = Some(part),
            }
        }
        (unknown, strays)
    }

    /// `latest` is the newest version of it that was found.
    fn adopt_one(
        &self,
        name: &KeyName,
        (number, latest): (u32, Option<&u32>),
        found: &FoundVersion,
    ) -> Result<Adoption> {
        let Some(main) = found.whole() else {
            let parts: Vec<_> = found.parts().collect();
            return self.half(&parts);
        };
        let there = self.keyring.get(name.as_str());
        // The key was deleted while it was unknown whether this version had been made.
        if there.is_none() && number > 1 && self.store.intends(&main.id)? {
            let parts: Vec<_> = found.parts().collect();
            return self.half(&parts);
        }
        let key = there.map_or_else(
            || ManagedKey {
                name: name.clone(),
                kind: found.kind,
                // The forbidden versions are unknown: all older ones are denied until the owner allows them.
                settings: KeySettings {
                    min_decryption: latest.copied().unwrap_or(number),
                    ..KeySettings::default()
                },
                versions: BTreeMap::new(),
            },
            |key| ManagedKey::clone(&key),
        );
        if key.kind != found.kind {
            return Ok(Adoption::Left);
        }
        // A version that was just being made here has never been used; of any other the number of uses is unknown.
        if found.kind.shape().has_budget() && !self.store.intends(&main.id)? {
            self.store.exhaust(&main.object)?;
        }
        let row = VersionRow {
            number,
            created: now(),
            object: main.object,
            mac: found.mac.as_ref().map(|mac| mac.object),
            certificates: None,
        };
        let ids: Vec<_> = found.parts().map(|part| part.id.clone()).collect();
        let version = keyring::load(&self.store, key.kind, &row)?;
        self.store
            .put_version(name, key.kind, &key.settings, &row, &ids)?;
        self.keyring.put(key.with(version));
        Ok(Adoption::Taken)
    }

    /// Destroys an unusable half if the broker was about to make it when a crash came.
    fn half(&self, parts: &[&FoundKey]) -> Result<Adoption> {
        for part in parts {
            if !self.store.intends(&part.id)? {
                return Ok(Adoption::Left);
            }
        }
        let objects = parts.iter().flat_map(|part| halves(part.object));
        self.store.doom(&objects.collect::<Vec<_>>())?;
        Ok(Adoption::Doomed)
    }

    /// Destroys those of these objects that are on a token, with a line each on the trail. A token that is away may
    /// bring back the rest.
    pub(super) async fn destroy_doomed(&self, doomed: Vec<ObjectId>) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        for object in doomed {
            let Some(entry) = self.pool.catalogue().get(&object).cloned() else {
                continue;
            };
            let (name, version) = match KeyMark::of(&entry.object) {
                Some((name, mark)) => (name.to_string(), mark.version),
                None => (String::new(), 0),
            };
            let event = self.own_act("broker-key-destroy", &name, version);
            let destroying = async { Ok(self.destroy(object).await?) };
            match audited_change::carry_out(&self.audit, event, destroying).await {
                Ok(()) => self.store.run(move |store| store.gone(&object)).await?,
                Err(refusal) => {
                    let there = self.store.run(move |store| store.still_there(&object));
                    there.await?;
                    outcome = Err(refusal);
                }
            }
        }
        outcome
    }

    /// An event that no client has asked for now: it follows from a crash, or from an earlier request.
    fn own_act(&self, act: &str, key: &impl ToString, version: u32) -> Event {
        let about = [
            ("key".to_owned(), Value::from(key.to_string())),
            ("version".to_owned(), version.into()),
        ];
        Event::act(&self.own, act, about.into_iter().collect())
    }
}

/// The newest complete version of each name.
fn latest(found: &BTreeMap<(KeyName, u32), FoundVersion>) -> BTreeMap<KeyName, u32> {
    let whole = found.iter().filter(|(_, found)| found.whole().is_some());
    whole
        .map(|((name, number), _)| (name.clone(), *number))
        .collect()
}

impl FoundVersion {
    /// Its main key, if all its keys are there.
    fn whole(&self) -> Option<&FoundKey> {
        let (_, second) = self.kind.shape().specs();
        let main = self.main.as_ref();
        main.filter(|_| second.is_some() == self.mac.is_some())
    }

    fn parts(&self) -> impl Iterator<Item = &FoundKey> {
        [&self.main, &self.mac].into_iter().flatten()
    }
}
