//! Login state of the application: C_Login, C_Logout, and the end of the last session.

use hsmux_token::Secret;
use hsmux_token::ck::*;
use hsmux_token::sync::atomic::Ordering;

use crate::app::App;
use crate::object::ObjectEntry;
use crate::rv::{Result, Rv};

impl App {
    /// C_Login. The PIN is the pool's own: none of any token.
    pub fn login(&self, session: u64, user: CK_USER_TYPE, pin: Secret) -> Result {
        self.sessions.get(session)?;
        match user {
            CKU_USER => self.begin_login(pin),
            CKU_CONTEXT_SPECIFIC => self.unlock(session, &pin),
            CKU_SO if self.sessions.any_read_only() => Err(Rv(CKR_SESSION_READ_ONLY_EXISTS)),
            CKU_SO if self.is_user() => Err(Rv(CKR_USER_ANOTHER_ALREADY_LOGGED_IN)),
            // Administration is not for applications.
            _ => Err(Rv(CKR_USER_TYPE_INVALID)),
        }
    }

    fn begin_login(&self, pin: Secret) -> Result {
        let _turn = self.login_turn.lock();
        if self.is_user() {
            return Err(Rv(CKR_USER_ALREADY_LOGGED_IN));
        }
        let answer = self.backend.login(pin).map_err(Rv::from);
        if matches!(answer, Ok(()) | Err(Rv(CKR_PIN_INCORRECT))) {
            self.pin_refused.store(answer.is_err(), Ordering::Relaxed);
        }
        answer?;
        self.set_user(true);
        if self.sessions.count().0 == 0 {
            // Another thread has closed the last one meanwhile.
            self.forget_user();
            return Err(Rv(CKR_SESSION_HANDLE_INVALID));
        }
        // The login is valid. If the catalogue cannot be read now, the next search reads it.
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

    /// C_Logout: operations with private keys end, private session objects go, and private token
    /// objects are hidden.
    pub fn logout(&self, session: u64) -> Result {
        self.sessions.get(session)?;
        let _turn = self.login_turn.lock();
        if !self.is_user() {
            return Err(Rv(CKR_USER_NOT_LOGGED_IN));
        }
        self.forget_user();
        // Public objects keep their handles; where the catalogue cannot be read now, the next search
        // reads it.
        let _ = self.objects.reread(&*self.backend);
        Ok(())
    }

    /// C_CloseSession.
    pub fn close(&self, session: u64) -> Result {
        self.sessions.close(session)?;
        self.end_objects(|entry| entry.session == session);
        self.after_close();
        Ok(())
    }

    /// C_CloseAllSessions.
    pub fn close_all(&self) {
        self.sessions.close_all();
        self.end_objects(|_| true);
        self.after_close();
    }

    /// With the last session the login ends (PKCS#11 3.0, section 5.6.7).
    fn after_close(&self) {
        if self.sessions.count().0 > 0 {
            return;
        }
        let _turn = self.login_turn.lock();
        // Another thread may have opened a session and logged in meanwhile.
        if self.sessions.count().0 == 0 && self.is_user() {
            self.forget_user();
        }
    }

    /// The login has ended here, whatever the backend says: one that has gone knows of none.
    fn forget_user(&self) {
        self.sessions.end_private();
        self.end_objects(ObjectEntry::is_private);
        self.set_user(false);
        let _ = self.backend.logout();
        // Last: before, another thread could have read private objects again.
        self.objects.hide_private();
    }
}

#[cfg(all(test, shuttle))]
mod interleavings;
