//! Login state of the application: C_Login, C_Logout, and the end of the last session.

use std::time::Instant;

use hsmux_token::ck::*;
use hsmux_token::sync::atomic::Ordering;
use hsmux_token::{Error, Kind, Secret};

use crate::app::App;
use crate::object::ObjectEntry;
use crate::rv::{Result, Rv};

impl App {
    /// C_Login. The PIN is the pool's own: none of any token.
    pub fn login(&self, session: u64, user: CK_USER_TYPE, pin: Secret) -> Result {
        self.sessions.get(session)?;
        match user {
            CKU_USER => self.in_turn(session, || self.begin_login(session, pin)),
            CKU_CONTEXT_SPECIFIC => self.unlock(session, &pin),
            CKU_SO if self.sessions.any_read_only() => Err(Rv(CKR_SESSION_READ_ONLY_EXISTS)),
            CKU_SO if self.is_user() => Err(Rv(CKR_USER_ANOTHER_ALREADY_LOGGED_IN)),
            // Administration is not for applications.
            _ => Err(Rv(CKR_USER_TYPE_INVALID)),
        }
    }

    /// C_Logout: operations with private keys end, private session objects go, and private token
    /// objects are hidden.
    pub fn logout(&self, session: u64) -> Result {
        self.sessions.get(session)?;
        self.in_turn(session, || self.end_login())
    }

    /// Begins or ends the login, one thread after the other.
    fn in_turn(&self, session: u64, work: impl FnOnce() -> Result) -> Result {
        let turn = self.login_turn.lock_until(self.backend.deadline());
        let turn = turn.ok_or_else(|| {
            let why = "C_Login or C_Logout of another thread has no answer yet";
            Rv::from(Error::pool(Kind::Deadline, why))
        })?;
        // It may have been closed meanwhile.
        let done = self.sessions.get(session).and_then(|_| work());
        drop(turn);
        // A thread that closed the last session meanwhile has left this to the turn's holder.
        self.end_with_sessions();
        done
    }

    fn begin_login(&self, session: u64, pin: Secret) -> Result {
        if self.is_user() {
            return Err(Rv(CKR_USER_ALREADY_LOGGED_IN));
        }
        let answer = self.backend.login(pin).map_err(Rv::from);
        if matches!(answer, Ok(()) | Err(Rv(CKR_PIN_INCORRECT))) {
            self.pin_refused.store(answer.is_err(), Ordering::Relaxed);
        }
        answer?;
        if let Err(closed) = self.sessions.get(session) {
            self.forget_user();
            return Err(closed);
        }
        self.set_user(true);
        // The login is valid. If the catalogue cannot be read now, the next search reads it.
        let _ = self.objects.reread(&*self.backend);
        Ok(())
    }

    fn end_login(&self) -> Result {
        if !self.is_user() {
            return Err(Rv(CKR_USER_NOT_LOGGED_IN));
        }
        self.forget_user();
        // Public objects keep their handles; where the catalogue cannot be read now, the next search
        // reads it.
        let _ = self.objects.reread(&*self.backend);
        Ok(())
    }

    /// C_Login for a key that asks for its PIN each time.
    fn unlock(&self, session: u64, pin: &Secret) -> Result {
        let session = self.sessions.get(session)?;
        let mut state = session.state();
        let Some(active) = state.active.iter_mut().find(|active| active.is_locked()) else {
            return Err(Rv(CKR_OPERATION_NOT_INITIALIZED));
        };
        self.backend.confirm(pin)?;
        active.unlock();
        Ok(())
    }

    /// C_CloseSession.
    pub fn close(&self, session: u64) -> Result {
        self.sessions.close(session)?;
        self.end_objects(|entry| entry.session == session);
        self.end_with_sessions();
        Ok(())
    }

    /// C_CloseAllSessions.
    pub fn close_all(&self) {
        self.sessions.close_all();
        self.end_objects(|_| true);
        self.end_with_sessions();
    }

    /// With the last session the login ends (PKCS#11 3.0, section 5.6.7).
    fn end_with_sessions(&self) {
        let is_over = || self.sessions.count().0 == 0 && self.is_user();
        while is_over() {
            // A thread that has the turn looks here afterwards: nobody waits for its backend.
            let Some(_turn) = self.login_turn.lock_until(Instant::now()) else {
                return;
            };
            if is_over() {
                self.forget_user();
            }
        }
    }

    /// The login has ended here, whatever the backend says: one that has gone knows of none.
    fn forget_user(&self) {
        self.set_user(false);
        self.end_private();
        let _ = self.backend.logout();
        // Another thread may have read private objects again before the backend knew.
        self.end_private();
    }

    /// Private objects are hidden first: no operation with one of them begins after it was looked for.
    fn end_private(&self) {
        self.objects.hide_private();
        self.sessions.end_private();
        self.end_objects(ObjectEntry::is_private);
    }
}

#[cfg(all(test, shuttle))]
mod interleavings;
