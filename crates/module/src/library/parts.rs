//! Enciphering in parts (PKCS#11 3.0, section 5.8).

use hsmux_token::ck::CKR_DEVICE_ERROR;
use hsmux_token::{Error, Mechanism, Result, Verb};

use super::keys::Steps;
use super::{Handle, Library, Session, call, input};

/// More than the longest block of a cipher.
const ROOM: usize = 64;

impl Library {
    /// C_EncryptInit; to be followed by [`Self::encrypt_final`].
    pub(crate) fn encrypt_init(
        &self,
        session: Session,
        mechanism: &Mechanism,
        key: Handle,
    ) -> Result<()> {
        Steps::of(Verb::Encrypt, &self.functions).init(session, mechanism, key)
    }

    /// C_EncryptUpdate with whole blocks, which have to come back at once: `room` is as long as `data`.
    pub(crate) fn encrypt_update(
        &self,
        session: Session,
        data: &[u8],
        room: &mut [u8],
    ) -> Result<()> {
        let mut len = room.len() as u64;
        // SAFETY: the data with its length, the room with its length.
        unsafe {
            call!(
                self,
                C_EncryptUpdate(
                    session,
                    input(data),
                    data.len() as u64,
                    room.as_mut_ptr(),
                    &raw mut len
                )
            )
        }?;
        all_of_it("C_EncryptUpdate", len, room.len())
    }

    /// C_EncryptFinal, when nothing is left over.
    pub(crate) fn encrypt_final(&self, session: Session) -> Result<()> {
        let mut room = [0; ROOM];
        let mut len = ROOM as u64;
        // SAFETY: the room with its length.
        unsafe {
            call!(
                self,
                C_EncryptFinal(session, room.as_mut_ptr(), &raw mut len)
            )
        }?;
        all_of_it("C_EncryptFinal", len, 0)
    }
}

fn all_of_it(call: &str, len: u64, wanted: usize) -> Result<()> {
    if len == wanted as u64 {
        return Ok(());
    }
    let message = format!("{len} bytes in place of {wanted}");
    Err(Error::vendor(call, CKR_DEVICE_ERROR).at(message))
}
