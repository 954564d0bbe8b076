//! Making, rotating, trimming and deleting keys: on every member or on none, and then in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use hsmux_software::{refuses_template, with_default_uses};
use hsmux_token::{Class, Error, Kind, ObjectId, Operation, Result, Scope, ck};

use super::{Engine, keyring};
use crate::key::{KeyMark, KeyName, KeySettings, KeyType, KeyVersion, ManagedKey, Role};
use crate::refusal::Refusal;
use crate::store::{VersionRow, now};

impl Engine {
    /// Makes a key with one version. An existing key stays unchanged. A key whose versions have all gone from the
    /// tokens gets a new version, since numbers are never used again.
    pub async fn create(&self, name: &KeyName, kind: KeyType) -> Result<Arc<ManagedKey>, Refusal> {
        let _writer = self.writer.lock().await;
        if let Some(there) = self.keyring.get(name.as_str()) {
            let (left, same) = (self.is_left(&there), there.kind == kind);
            return match (left, same) {
                (true, true) => Ok(there),
                (false, true) => self.add_version(&there).await,
                (true, false) => Err(Refusal::bad(format!(
                    "the key {name} is there already, and its type is {}",
                    there.kind
                ))),
                (false, false) => Err(Refusal::bad(format!(
                    "the key {name} was made as {}, and is gone from the tokens: delete it first",
                    there.kind
                ))),
            };
        }
        let key = ManagedKey {
            name: name.clone(),
            kind,
            settings: KeySettings::default(),
            versions: BTreeMap::new(),
        };
        self.add_version(&key).await
    }

    /// Makes the next version.
    pub async fn rotate(&self, name: &str) -> Result<Arc<ManagedKey>, Refusal> {
        let _writer = self.writer.lock().await;
        let key = self.keyring.find(name)?;
        self.add_version(&key).await
    }

    /// Changes a key's settings.
    pub async fn configure(
        &self,
        name: &str,
        change: impl FnOnce(&ManagedKey) -> Result<KeySettings, Refusal> + Send,
    ) -> Result<Arc<ManagedKey>, Refusal> {
        let _writer = self.writer.lock().await;
        let key = self.keyring.find(name)?;
        let settings = change(&key)?;
        self.save(&key, settings).await
    }

    /// Destroys all versions below this one.
    pub async fn trim(&self, name: &str, min_available: u32) -> Result<Arc<ManagedKey>, Refusal> {
        let _writer = self.writer.lock().await;
        let key = self.keyring.find(name)?;
        let KeySettings {
            min_decryption,
            min_encryption,
            min_available: before,
            ..
        } = key.settings;
        let wrong = if min_available == 0 {
            Some("minimum available version should be positive")
        } else if min_available < before {
            Some("minimum available version cannot be decremented")
        } else if min_encryption == 0 {
            Some(
                "minimum available version cannot be set when minimum encryption version is not set",
            )
        } else if min_available > min_encryption {
            Some("minimum available version cannot be greater than minimum encryption version")
        } else if min_available > min_decryption {
            Some("minimum available version cannot be greater than minimum decryption version")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(Refusal::bad(wrong));
        }
        let settings = KeySettings {
            min_available,
            ..key.settings
        };
        let mut trimmed = ManagedKey {
            settings,
            ..ManagedKey::clone(&key)
        };
        let kept = trimmed.versions.split_off(&min_available);
        let objects = objects(&trimmed.versions);
        trimmed.versions = kept;
        let (name, kind, doomed) = (key.name.clone(), key.kind, objects.clone());
        self.store
            .run(move |store| store.trim(&name, kind, &settings, &doomed))
            .await?;
        self.keyring.put(trimmed);
        self.destroy_doomed(objects).await?;
        self.keyring.find(key.name.as_str())
    }

    /// Deletes a key that may be deleted. The store's entry goes first. The tokens follow now, after a crash, or when
    /// they return.
    pub async fn delete(&self, name: &str) -> Result<(), Refusal> {
        let _writer = self.writer.lock().await;
        let key = self.keyring.find(name)?;
        if !key.settings.deletion_allowed {
            return Err(Refusal::bad(format!(
                "error deleting policy {name}: deletion is not allowed for this policy"
            )));
        }
        let objects = objects(&key.versions);
        let (gone, doomed) = (key.name.clone(), objects.clone());
        self.store
            .run(move |store| store.remove_key(&gone, &doomed))
            .await?;
        self.keyring.remove(&key.name);
        self.destroy_doomed(objects).await
    }

    /// Stores a chain of certificates with a version.
    pub async fn set_certificates(
        &self,
        name: &str,
        number: Option<u32>,
        chain: String,
    ) -> Result<(), Refusal> {
        let _writer = self.writer.lock().await;
        let key = self.keyring.find(name)?;
        let version = key.to_make(number)?;
        let row = VersionRow {
            number: version.number,
            created: version.created,
            object: version.object,
            mac: version.mac,
            certificates: Some(chain),
        };
        self.keep(&key, row, Vec::new()).await.map(drop)
    }

    async fn add_version(&self, key: &ManagedKey) -> Result<Arc<ManagedKey>, Refusal> {
        // Any program can put any number on a token.
        let number = key.latest().checked_add(1).ok_or_else(|| {
            Refusal::bad(format!(
                "the key {} has a version {}, after which there is none: delete that from the tokens, and the key",
                key.name,
                u32::MAX
            ))
        })?;
        let (main, second) = key.kind.shape().specs();
        let (mut ids, mut made) = (Vec::new(), Vec::new());
        let specs = [(Some(main), Role::Main), (second, Role::Mac)];
        for (spec, role) in specs {
            let Some(spec) = spec else { continue };
            let mark = KeyMark {
                kind: key.kind,
                role,
                version: number,
            };
            let id = mark.to_id()?;
            ids.push(id.clone());
            let operation = without_cmac(spec.operation(key.name.as_str(), &id));
            let intended = self.store.run(move |store| store.intend(&id)).await;
            let result = match intended {
                Ok(()) => self.make_for(operation).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(object) => made.push(object),
                Err(error) => {
                    // It is unknown whether the version was made. The intent stays: when the version appears, it is
                    // adopted unused, or destroyed.
                    if !has_not_begun(&error) {
                        ids.pop();
                    }
                    self.take_back(&made, ids).await;
                    return Err(error.into());
                }
            }
        }
        let row = VersionRow {
            number,
            created: now(),
            object: made[0],
            mac: made.get(1).copied(),
            certificates: None,
        };
        let kept = self.keep(key, row, ids.clone()).await;
        if kept.is_err() {
            self.take_back(&made, ids).await;
        }
        kept
    }

    /// Makes the secret or private key. If a token refuses the uses of the template, the key gets the token's default
    /// uses.
    async fn make_for(&self, operation: Operation) -> Result<ObjectId> {
        match self.make(operation.clone()).await {
            Err(error) if refuses_template(&error) => {
                tracing::warn!(%error, "the token decides what else a new key may be used for");
                self.make(with_default_uses(operation)).await
            }
            made => made,
        }
    }

    /// Runs an operation that makes a key, once.
    async fn make(&self, operation: Operation) -> Result<ObjectId> {
        let made = self.change(operation).await?.into_objects()?;
        let ids = made.into_iter().map(|made| made.object.id);
        ids.filter(|id| id.class != Class::PUBLIC_KEY)
            .last()
            .ok_or_else(|| Error::protocol("a key was made, and none was answered"))
    }

    /// Destroys what was made. Objects that cannot be destroyed now are found later by the intent.
    async fn take_back(&self, made: &[ObjectId], ids: Vec<Vec<u8>>) {
        for object in made {
            if let Err(error) = self.destroy(*object).await {
                return tracing::error!(%error, "a key that nobody will use stays on the tokens");
            }
        }
        if let Err(error) = self.store.run(move |store| store.forget(&ids)).await {
            tracing::warn!(%error, "what was not made is remembered as intended");
        }
    }

    /// Stores a version, and shows it to requests.
    async fn keep(
        &self,
        key: &ManagedKey,
        row: VersionRow,
        ids: Vec<Vec<u8>>,
    ) -> Result<Arc<ManagedKey>, Refusal> {
        let (name, kind, settings) = (key.name.clone(), key.kind, key.settings);
        let version = self
            .store
            .run(move |store| {
                // The order matters: a stored version is not taken back.
                let version = keyring::load(store, kind, &row)?;
                store.put_version(&name, kind, &settings, &row, &ids)?;
                Ok(version)
            })
            .await?;
        self.keyring.put(key.with(version));
        self.keyring.find(key.name.as_str())
    }

    async fn save(
        &self,
        key: &ManagedKey,
        settings: KeySettings,
    ) -> Result<Arc<ManagedKey>, Refusal> {
        let (name, kind) = (key.name.clone(), key.kind);
        self.store
            .run(move |store| store.put_key(&name, kind, &settings))
            .await?;
        self.keyring.put(ManagedKey {
            settings,
            ..key.clone()
        });
        self.keyring.find(key.name.as_str())
    }

    /// An absent object counts as destroyed. The daemon refuses to destroy one that only an absent member has.
    pub(super) async fn destroy(&self, object: ObjectId) -> Result<()> {
        let operation = Operation::Destroy {
            object: object.into(),
        };
        match self.change(operation).await {
            Err(error) if error.kind() != Kind::UnknownObject => Err(error),
            _ => Ok(()),
        }
    }
}

/// The dialect has no CMAC: its AES keys encrypt and decrypt.
fn without_cmac(mut operation: Operation) -> Operation {
    if let Operation::Generate { template, .. } = &mut operation
        && template.flag(ck::CKA_ENCRYPT) == Some(true)
    {
        template.set_flag(ck::CKA_SIGN, false);
        template.set_flag(ck::CKA_VERIFY, false);
    }
    operation
}

/// True if the change is known to have touched no token.
fn has_not_begun(error: &Error) -> bool {
    error.scope() == Scope::Request || matches!(error.kind(), Kind::Busy | Kind::NoReplica)
}

/// All that versions are made of.
fn objects(versions: &BTreeMap<u32, Arc<KeyVersion>>) -> Vec<ObjectId> {
    versions
        .values()
        .flat_map(|version| version.objects())
        .collect()
}
