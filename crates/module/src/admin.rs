//! Changes of a token's PINs, under the breaker's lock and with its journal.

use hsmux_token::ck::{CKU_SO, CKU_USER};
use hsmux_token::{Error, Kind, Result, Secret, TokenFlags, TokenInfo};

use crate::Options;
use crate::library::{LibraryRef, Session, Slot};
use crate::pin::{Journal, Outcome, PinAttempt, PinUser, is_about_new_pin};
use crate::slots::{choose, described};

/// Initialises a token, **which erases it**, sets the user's PIN (`options.pin`) if given, and returns its new data.
/// On an initialised token `so_pin` must be its security officer's PIN; on a new token it becomes that PIN.
pub fn init_token(options: &Options, label: &str, so_pin: &Secret) -> Result<TokenInfo> {
    let access = AdminAccess::open(options)?;
    let mut padded = [b' '; 32];
    let Some(field) = padded.get_mut(..label.len()) else {
        return Err(Error::request(
            Kind::Invalid,
            format!("{label:?} is longer than the 32 bytes of a token's label"),
        ));
    };
    field.copy_from_slice(label.as_bytes());
    let token = access.token()?;
    let init = || {
        access
            .library
            .init_token(access.slot, so_pin.expose(), &padded)
    };
    if token.flags.contains(TokenFlags::TOKEN_INITIALIZED) {
        let mut journal = Journal::open(&options.state, &token)?;
        access.attempt(&mut journal, PinUser::SecurityOfficer, so_pin, init)?;
    } else {
        init()?;
    }
    if let Some(pin) = &options.pin {
        set_user_pin(&access, so_pin, pin)?;
    }
    access.token()
}

/// Sets the user's PIN as security officer (C_InitPIN), which also unlocks it.
pub fn init_pin(options: &Options, so_pin: &Secret, new: &Secret) -> Result<()> {
    set_user_pin(&AdminAccess::open(options)?, so_pin, new)
}

/// Changes the user's PIN from `options.pin` to `new` (C_SetPIN).
/// After an interrupted change to the same PIN it tries the new PIN first, unless the old one has succeeded since.
pub fn change_pin(options: &Options, new: &Secret) -> Result<()> {
    let Some(old) = &options.pin else {
        return Err(Error::request(
            Kind::Invalid,
            "C_SetPIN: the PIN as it is now is needed",
        ));
    };
    let access = AdminAccess::open(options)?;
    let mut journal = Journal::open(&options.state, &access.token()?)?;
    let (old_mac, new_mac) = (
        journal.mac(PinUser::User, Some(old.expose()))?,
        journal.mac(PinUser::User, Some(new.expose()))?,
    );
    let outcome = |mac| journal.version(mac).map(|version| version.outcome);
    if (outcome(&old_mac), outcome(&new_mac)) == (Some(Outcome::Refused), Some(Outcome::Succeeded))
    {
        // The change was complete before; the caller was interrupted before it recorded that.
        return Ok(());
    }
    if !journal.is_right_since(&old_mac, &new_mac)
        && access.has_been_set(&mut journal, new, &new_mac)?
    {
        return replaced(&mut journal, &old_mac, &new_mac);
    }
    let session = access.session()?;
    let is_unknown = |journal: &Journal| {
        let old = journal.version(&old_mac);
        old.is_some_and(|old| old.outcome == Outcome::Unknown)
    };
    let (was_unknown, before) = (is_unknown(&journal), journal.version(&new_mac).cloned());
    journal.write(PinUser::User, &new_mac, Outcome::Setting, true)?;
    let (name, pin) = (options.member(), Some(old.expose()));
    let attempt = PinAttempt::new(&access.token()?, name, PinUser::User, pin).that_sets_another();
    let result = attempt.run(&mut journal, || {
        access
            .library
            .set_pin(session.0, old.expose(), new.expose())
    });
    let Err(error) = result else {
        return replaced(&mut journal, &old_mac, &new_mac);
    };
    // If this attempt made the outcome unknown, the token may have the new PIN.
    if was_unknown || !is_unknown(&journal) {
        journal.restore(&new_mac, before)?;
    }
    Err(error.at(&options.name))
}

/// Marks the old PIN as refused, so that it costs no further try.
fn replaced(journal: &mut Journal, old: &str, new: &str) -> Result<()> {
    journal.write(PinUser::User, old, Outcome::Refused, true)?;
    journal.write(PinUser::User, new, Outcome::Succeeded, true)
}

fn set_user_pin(access: &AdminAccess<'_>, so_pin: &Secret, new: &Secret) -> Result<()> {
    let mut journal = Journal::open(&access.options.state, &access.token()?)?;
    let session = access.session()?;
    access.attempt(&mut journal, PinUser::SecurityOfficer, so_pin, || {
        access
            .library
            .login(session.0, CKU_SO, Some(so_pin.expose()))
    })?;
    let mac = journal.mac(PinUser::User, Some(new.expose()))?;
    let before = journal.version(&mac).cloned();
    journal.write(PinUser::User, &mac, Outcome::Setting, true)?;
    if let Err(error) = access.library.init_pin(session.0, new.expose()) {
        if is_about_new_pin(&error) {
            journal.restore(&mac, before)?;
        }
        return Err(error);
    }
    journal.write(PinUser::User, &mac, Outcome::Succeeded, true)?;
    access.library.logout(session.0)
}

/// An administrator's access to a token.
struct AdminAccess<'a> {
    options: &'a Options,
    library: LibraryRef,
    slot: Slot,
}

/// A session that is closed on drop, which also ends the login.
struct AdminSession<'a>(Session, &'a LibraryRef);

impl<'a> AdminAccess<'a> {
    fn open(options: &'a Options) -> Result<Self> {
        let library = LibraryRef::open(&options.module)?;
        let slot = choose(&library, &options.slot)?;
        Ok(Self {
            options,
            library,
            slot,
        })
    }

    /// The token's current data.
    fn token(&self) -> Result<TokenInfo> {
        Ok(described(&self.library.token_info(self.slot)?))
    }

    fn session(&self) -> Result<AdminSession<'_>> {
        let session = self.library.open_session(self.slot)?;
        Ok(AdminSession(session, &self.library))
    }

    /// Runs a call that shows `pin` to the token.
    fn attempt(
        &self,
        journal: &mut Journal,
        user: PinUser,
        pin: &Secret,
        call: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let pin = Some(pin.expose());
        let attempt = PinAttempt::new(&self.token()?, self.options.member(), user, pin);
        attempt
            .run(journal, call)
            .map_err(|e| e.at(&self.options.name))
    }

    /// Checks if an interrupted change to `new` has reached the token.
    fn has_been_set(&self, journal: &mut Journal, new: &Secret, mac: &str) -> Result<bool> {
        if journal.version(mac).map(|v| v.outcome) != Some(Outcome::Setting) {
            return Ok(false);
        }
        let session = self.session()?;
        let login = || self.library.login(session.0, CKU_USER, Some(new.expose()));
        match self.attempt(journal, PinUser::User, new, login) {
            Ok(()) => Ok(true),
            Err(e) => match journal.version(mac).map(|v| v.outcome) {
                Some(Outcome::Refused) => Ok(false),
                _ => Err(e),
            },
        }
    }
}

impl Drop for AdminSession<'_> {
    fn drop(&mut self) {
        // A session that cannot be closed ends with the module.
        let _ = self.1.close_session(self.0);
    }
}
