//! Sessions and PINs (PKCS#11 3.0, section 5.6).

use hsmux_token::Result;
use hsmux_token::ck::{
    CK_SESSION_INFO, CK_USER_TYPE, CKF_RW_SESSION, CKF_SERIAL_SESSION, CKR_TOKEN_WRITE_PROTECTED,
    CKS_RO_USER_FUNCTIONS, CKS_RW_USER_FUNCTIONS,
};

use super::{Library, Session, Slot, call, input};

impl Library {
    /// C_OpenSession: read-write if the token permits it.
    pub(crate) fn open_session(&self, slot: Slot) -> Result<Session> {
        let open = |flags| {
            let mut session = 0;
            // SAFETY: no application pointer, no callback, a place for one handle.
            unsafe {
                call!(
                    self,
                    C_OpenSession(slot, flags, std::ptr::null_mut(), None, &raw mut session)
                )
            }
            .map(|()| session)
        };
        match open(CKF_SERIAL_SESSION | CKF_RW_SESSION) {
            Err(e) if e.code() == Some(CKR_TOKEN_WRITE_PROTECTED) => open(CKF_SERIAL_SESSION),
            result => result,
        }
    }

    /// C_CloseSession.
    pub(crate) fn close_session(&self, session: Session) -> Result<()> {
        // SAFETY: no pointers.
        unsafe { call!(self, C_CloseSession(session)) }
    }

    /// C_GetSessionInfo: whether the user is logged in, by any session of this process.
    pub(crate) fn logged_in(&self, session: Session) -> Result<bool> {
        let mut info = CK_SESSION_INFO::default();
        // SAFETY: a place for one structure.
        unsafe { call!(self, C_GetSessionInfo(session, &raw mut info)) }?;
        Ok([CKS_RO_USER_FUNCTIONS, CKS_RW_USER_FUNCTIONS].contains(&info.state))
    }

    /// C_Login; without a PIN the token reads it on its own PIN pad.
    pub(crate) fn login(
        &self,
        session: Session,
        user: CK_USER_TYPE,
        pin: Option<&[u8]>,
    ) -> Result<()> {
        let (place, len) = pin.map_or((std::ptr::null_mut(), 0), |p| (input(p), p.len() as u64));
        // SAFETY: null, or the PIN with its length.
        unsafe { call!(self, C_Login(session, user, place, len)) }
    }

    /// C_Logout.
    pub(crate) fn logout(&self, session: Session) -> Result<()> {
        // SAFETY: no pointers.
        unsafe { call!(self, C_Logout(session)) }
    }

    /// C_InitPIN: the logged-in security officer sets the user's PIN.
    pub(crate) fn init_pin(&self, session: Session, pin: &[u8]) -> Result<()> {
        // SAFETY: the PIN with its length.
        unsafe { call!(self, C_InitPIN(session, input(pin), pin.len() as u64)) }
    }

    /// C_SetPIN.
    pub(crate) fn set_pin(&self, session: Session, old: &[u8], new: &[u8]) -> Result<()> {
        // SAFETY: both PINs with their lengths.
        unsafe {
            call!(
                self,
                C_SetPIN(
                    session,
                    input(old),
                    old.len() as u64,
                    input(new),
                    new.len() as u64
                )
            )
        }
    }

    /// C_GenerateRandom.
    pub(crate) fn random(&self, session: Session, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        // SAFETY: room for `len` bytes.
        unsafe {
            call!(
                self,
                C_GenerateRandom(session, bytes.as_mut_ptr(), len as u64)
            )
        }?;
        Ok(bytes)
    }
}
