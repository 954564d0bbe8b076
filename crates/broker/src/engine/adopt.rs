//! Names and versions read from the tokens: what the store does not know, for it was lost, or is older
//! than the tokens, or a crash came between the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use hsmux_token::{Class, ObjectId, Result, ck};

use super::{Engine, keyring};
use crate::key::{Key, KeyName, KeyType, Mark, Role, Settings};
use crate::store::{LIMIT, Trust, VersionRow, now};

/// A version as the tokens show it.
struct Found {
    kind: KeyType,
    main: Option<(ObjectId, Vec<u8>)>,
    mac: Option<ObjectId>,
}

impl Engine {
    /// Takes over what has appeared on the tokens since.
    pub async fn adopt(self: &Arc<Self>) {
        let _writer = self.writer.lock().await;
        let engine = Arc::clone(self);
        // A panic in there is on the log by itself.
        let _ = tokio::task::spawn_blocking(move || engine.adopt_blocking()).await;
    }

    pub(super) fn adopt_blocking(&self) {
        for ((name, number), found) in self.unknown_versions() {
            match self.adopt_one(&name, number, found) {
                Ok(true) => tracing::warn!(%name, number, "taken over from the tokens"),
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%name, number, %error, "not taken over from the tokens");
                }
            }
        }
    }

    /// By name and number, so that a key's versions come in their order.
    fn unknown_versions(&self) -> BTreeMap<(KeyName, u32), Found> {
        let catalogue = self.pool.catalogue();
        let mut unknown: BTreeMap<(KeyName, u32), Found> = BTreeMap::new();
        let visible = catalogue.entries.values().filter(|entry| entry.visible());
        for object in visible.map(|entry| &entry.object) {
            if !matches!(object.id.class, Class::SECRET_KEY | Class::PRIVATE_KEY) {
                continue;
            }
            let Some((name, mark)) = Mark::of(object) else {
                continue;
            };
            let known = self.keyring.get(name.as_str());
            let known = known.is_some_and(|key| {
                key.versions.contains_key(&mark.version)
                    || mark.version < key.settings.min_available
            });
            if known {
                continue;
            }
            let found = unknown.entry((name, mark.version)).or_insert(Found {
                kind: mark.kind,
                main: None,
                mac: None,
            });
            match mark.role {
                Role::Main => {
                    let id = object.attributes.get(ck::CKA_ID).unwrap_or_default();
                    found.main = Some((object.id, id.to_vec()));
                }
                Role::Mac => found.mac = Some(object.id),
            }
        }
        unknown
    }

    /// `false`: half of it is missing, or it does not fit the key of that name.
    fn adopt_one(&self, name: &KeyName, number: u32, found: Found) -> Result<bool> {
        let (_, second) = found.kind.shape().specs();
        let Some((object, id)) = found
            .main
            .filter(|_| second.is_some() == found.mac.is_some())
        else {
            return Ok(false);
        };
        let there = self.keyring.get(name.as_str());
        let key = there.map_or_else(
            || Key {
                name: name.clone(),
                kind: found.kind,
                settings: Settings::default(),
                versions: BTreeMap::new(),
            },
            |key| Key::clone(&key),
        );
        if key.kind != found.kind {
            return Ok(false);
        }
        // Nobody has been told of one that was just being made here; of any other the uses are unknown.
        let fresh = self.store.trust() == Trust::Own && self.store.intends(&id)?;
        if found.kind.shape().has_budget() && !fresh {
            self.store.reserve(&object, LIMIT)?;
        }
        let row = VersionRow {
            number,
            created: now(),
            object,
            mac: found.mac,
            certificates: None,
        };
        self.store
            .put_version(name, key.kind, &key.settings, &row)?;
        let version = keyring::load(&self.store, key.kind, &row)?;
        self.keyring.put(key.with(version));
        Ok(true)
    }
}
