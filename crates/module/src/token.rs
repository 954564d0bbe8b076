//! [`ModuleToken`]: one token of a vendor's module, in this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hsmux_token::{
    Batch, Error, ObjectChanges, ObjectId, Operation, OperationPace, Outcome, Result, Snapshot,
    Token, TokenInfo,
};

use crate::Options;
use crate::by_name::ByName;
use crate::copies::Copies;
use crate::library::{Handle, LibraryRef};
use crate::object_cache::ObjectCache;
use crate::pace::Paces;
use crate::prepared::PreparedSignatures;
use crate::sessions::{Purpose, Sessions};
use crate::streams::Streams;
use crate::threads::{Threads, too_late};
use crate::usual_durations::{Task, UsualDurations};
use crate::{pin, slots};
use hsmux_state::FileLock;

/// A token that is open and logged in; its last reference closes it.
/// [`Token::execute`] runs on the caller's thread, [`Token::submit`] on threads that start with its first call.
pub struct ModuleToken {
    pub(crate) name: String,
    /// See [`TokenInfo::identity`].
    pub(crate) identity: String,
    pub(crate) sessions: Sessions,
    pub(crate) handles: ByName<Handle>,
    pub(crate) object_cache: ObjectCache,
    pub(crate) streams: Streams,
    pub(crate) prepared: PreparedSignatures,
    pub(crate) usual: UsualDurations,
    pub(crate) copies: Option<Copies>,
    info: Arc<TokenInfo>,
    pub(crate) paces: Paces,
    threads: Arc<Threads>,
    aborted: AtomicBool,
}

impl ModuleToken {
    /// Loads the module, finds the token, opens its sessions and logs in once. If the breaker refuses the login, it
    /// fails with [`hsmux_token::Kind::PinHeld`]; a missing module or token is [`hsmux_token::Kind::Environment`].
    pub fn open(options: Options) -> Result<Arc<Self>> {
        let name = options.name.clone();
        Self::open_unnamed(options).map_err(|e| e.at(name))
    }

    fn open_unnamed(options: Options) -> Result<Arc<Self>> {
        let _turn = wait_for_others(&options);
        let library = LibraryRef::open(&options.module)?;
        let slot = slots::choose(&library, &options.slot)?;
        let sessions = Sessions::open(library, slot, options.sessions)?;
        {
            let first = sessions.lease(Purpose::Keep, Instant::now())?;
            pin::login(sessions.library(), slot, first.session(), &options)?;
        }
        let info = slots::describe(sessions.library(), slot, sessions.count())?;
        warn_of_known_trouble(&options.name, &info);
        Ok(Arc::new_cyclic(|me: &Weak<Self>| Self {
            threads: Threads::new(me.clone(), sessions.count() as usize),
            identity: info.identity(options.member()),
            name: options.name,
            sessions,
            handles: ByName::default(),
            object_cache: ObjectCache::default(),
            streams: Streams::default(),
            prepared: PreparedSignatures::default(),
            usual: UsualDurations::default(),
            copies: Copies::of(&info, options.copies),
            info: Arc::new(info),
            aborted: AtomicBool::new(false),
            paces: Paces::default(),
        }))
    }
}

impl ModuleToken {
    /// Ends copies, streams and prepared signatures of a key that has changed or been deleted.
    pub(crate) fn end_uses(&self, key: ObjectId) {
        self.streams.end(&self.sessions, key);
        self.prepared.end(&self.sessions, key);
        if let Some(copies) = &self.copies {
            copies.end(&self.sessions, key);
        }
    }
}

impl Token for ModuleToken {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.info)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        self.read_objects().map_err(|e| e.at(&self.name))
    }

    fn submit(&self, batch: Batch) {
        self.threads.submit(batch);
    }

    fn look(&self) -> Result<ObjectChanges> {
        self.look_around().map_err(|e| e.at(&self.name))
    }

    fn pace(&self) -> Vec<OperationPace> {
        self.paces.all()
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        if self.aborted.load(Ordering::Relaxed) {
            return Err(Error::lost("the token was given up").at(&self.name));
        }
        self.run(operation, deadline).map_err(|e| e.at(&self.name))
    }

    fn execute_all(
        &self,
        operations: &[(Operation, Instant)],
        tell: &mut dyn FnMut(usize, Result<Outcome>),
    ) {
        let told = self.run_in_streams(operations, tell);
        for (index, (operation, deadline)) in operations.iter().enumerate() {
            if told.contains(&index) {
                continue;
            }
            let begun = Instant::now();
            if begun >= *deadline {
                tell(index, Err(too_late(operation)));
                continue;
            }
            let result = match self.run_prepared(operation) {
                Some(signature) => Ok(Outcome::Bytes(signature.into())),
                None => self.execute(operation, *deadline),
            };
            if let Some(task) = Task::of(operation) {
                self.usual.note(&task, begun);
            }
            tell(index, result);
        }
    }

    fn make_ready(&self, like: &Operation) -> Option<Instant> {
        ModuleToken::make_ready(self, like)
    }

    fn discard_ready(&self) {
        self.prepared.end_old(&self.sessions);
    }

    /// Fails pending [`Token::submit`] calls at once. The vendor's call itself cannot be ended, and is abandoned.
    fn abort(&self, reason: &str) {
        self.aborted.store(true, Ordering::Relaxed);
        self.threads
            .abort(&Error::lost(format!("given up: {reason}")).at(&self.name));
    }
}

impl Drop for ModuleToken {
    fn drop(&mut self) {
        self.threads
            .abort(&Error::lost("the token was closed").at(&self.name));
        self.streams.close_idle(&self.sessions);
        self.prepared.end_all(&self.sessions);
        if let Some(copies) = &self.copies {
            copies.end_all(&self.sessions);
        }
    }
}

/// Lets processes with one state folder start a module in turn: SoftHSM may fail in C_OpenSession or C_Login meanwhile,
/// which would leave a login's outcome unknown. Best effort: after a long wait it proceeds.
fn wait_for_others(options: &Options) -> Option<FileLock> {
    let module = options.module.file_name()?.to_string_lossy().into_owned();
    // Among the records of PINs, which a module in a sandbox can write.
    let folder = options.state.join("pins");
    hsmux_state::private_folder(&folder).ok()?;
    let path = folder.join(format!("start-{module}.lock"));
    FileLock::take_turn(&path, Duration::from_secs(5), Duration::from_secs(10)).ok()
}

/// Before 2.4.0 SoftHSM becomes slow for good after any change of its store by another process.
fn warn_of_known_trouble(name: &str, info: &TokenInfo) {
    let (major, minor) = info.library_version;
    if info.manufacturer.starts_with("SoftHSM") && (major, minor) < (2, 4) {
        tracing::warn!(
            "{name}: SoftHSM {major}.{minor} gets slow for good when another process adds or removes keys: use 2.6.1 or later"
        );
    }
}
