//! One [`Library`] for each file and process, counted; the last reference finalises it.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use hsmux_token::Result;
use hsmux_token::permissions::TrustedOwner;
use hsmux_token::sync::Mutex;

use super::{Library, unloadable};

/// A reference to a loaded module.
pub(crate) struct LibraryRef {
    library: Option<Arc<Library>>,
    entry: Arc<RegistryEntry>,
}

/// The registry's entry of one module. Its lock is held while the module starts or ends, which may hang;
/// other modules have other locks.
#[derive(Default)]
struct RegistryEntry(Mutex<Option<LoadedModule>>);

struct LoadedModule {
    library: Arc<Library>,
    users: usize,
    /// C_Initialize does not survive fork(2): a child starts again (PKCS#11 2.40, section 2.3).
    process: u32,
}

static REGISTRY: LazyLock<Mutex<HashMap<PathBuf, Arc<RegistryEntry>>>> =
    LazyLock::new(Mutex::default);

impl LibraryRef {
    /// Loads the module, or shares the loaded one.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = verified(path)?;
        let entry = Arc::clone(REGISTRY.lock().entry(path.clone()).or_default());
        let mut loaded = entry.0.lock();
        if let Some(inherited) = loaded.take_if(|l| l.process != std::process::id()) {
            std::mem::forget(inherited);
        }
        let library = if let Some(loaded) = &mut *loaded {
            loaded.users += 1;
            Arc::clone(&loaded.library)
        } else {
            LoadedModule::first(&mut loaded, Library::load(path)?)
        };
        drop(loaded);
        Ok(Self {
            library: Some(library),
            entry,
        })
    }
}

/// Verifies that no other user can change the module. dlopen(3) would search unverified folders for a bare name,
/// and run the code that it finds.
fn verified(path: &Path) -> Result<PathBuf> {
    TrustedOwner::RootOrSelf.verify(path).map_err(|error| {
        let is_bare = path
            .parent()
            .is_none_or(|parent| parent.as_os_str().is_empty());
        let advice = if is_bare && error.kind() == ErrorKind::NotFound {
            "; name it by its path, such as /usr/lib/softhsm/libsofthsm2.so"
        } else {
            ""
        };
        unloadable(path, &format!("cannot be loaded: {error}{advice}"))
    })
}

impl LoadedModule {
    /// Stores the library of the first user.
    fn first(entry: &mut Option<Self>, library: Library) -> Arc<Library> {
        let library = Arc::new(library);
        *entry = Some(Self {
            library: Arc::clone(&library),
            users: 1,
            process: std::process::id(),
        });
        library
    }
}

impl Deref for LibraryRef {
    type Target = Library;
    fn deref(&self) -> &Library {
        // Taken out only in drop.
        self.library.as_ref().expect("a share holds its library")
    }
}

impl Drop for LibraryRef {
    fn drop(&mut self) {
        let mut entry = self.entry.0.lock();
        let mine = self.library.take();
        let Some(loaded) = &mut *entry else { return };
        if loaded.process != std::process::id() {
            // After fork(2) the child must not finalise the parent's module.
            std::mem::forget(mine);
            return;
        }
        drop(mine);
        loaded.users -= 1;
        if loaded.users == 0
            && let Some(loaded) = entry.take()
            && let Some(library) = Arc::into_inner(loaded.library)
        {
            library.unload();
        }
    }
}
