use zeroize::Zeroizing;

use crate::Card;
use crate::apdu::{CommandApdu, StatusWord, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;

/// The state of a card's device key encryption key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DkekStatus {
    /// The number of its shares.
    pub shares: u8,
    /// How many are not imported yet: while there are any, no key can be wrapped or unwrapped.
    pub missing: u8,
    /// First 8 bytes of the SHA-256 of the DKEK, by which cards with the same one are known; without meaning
    /// while shares are missing.
    pub key_check_value: [u8; 8],
}

const STATUS: &str = "DKEK status";
const IMPORT: &str = "IMPORT DKEK SHARE";

impl<C: CardChannel> Card<C> {
    /// The state of the DKEK; nothing if the card was initialised without one (OpenSC
    /// `sc_hsm_import_dkek_share`).
    pub fn dkek_status(&mut self) -> Result<Option<DkekStatus>, CardError> {
        let command = CommandApdu::new(0x80, instruction::IMPORT_DKEK, 0, 0).expecting(256);
        let response = self.transmit(STATUS, command)?;
        match response.status {
            StatusWord::OK => self.dkek_answer(STATUS, &response.data).map(Some),
            StatusWord::INSTRUCTION_NOT_SUPPORTED => Ok(None),
            status => Err(self.refused(STATUS, status)),
        }
    }

    /// Imports one share of the DKEK. The order does not matter; the same share twice undoes itself.
    pub fn import_dkek_share(
        &mut self,
        share: &Zeroizing<[u8; 32]>,
    ) -> Result<DkekStatus, CardError> {
        let command = CommandApdu::new(0x80, instruction::IMPORT_DKEK, 0, 0)
            .with_data(share.as_slice())
            .expecting(256);
        let answer = self.run(IMPORT, command)?;
        self.dkek_answer(IMPORT, &answer)
    }

    fn dkek_answer(&self, name: &'static str, answer: &[u8]) -> Result<DkekStatus, CardError> {
        let [shares, missing, value @ ..] = answer else {
            return Err(self.bad_answer(name, "too few bytes"));
        };
        let key_check_value = *value
            .first_chunk()
            .ok_or_else(|| self.bad_answer(name, "no key check value"))?;
        Ok(DkekStatus {
            shares: *shares,
            missing: *missing,
            key_check_value,
        })
    }
}
