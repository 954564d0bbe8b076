use hsmux_token::Secret;

use super::SoPin;
use super::verify::check_user_pin;
use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::secret::joined;
use crate::tlv::tlv;

/// How a card is to be after its initialisation.
#[derive(Debug, Clone)]
pub struct Initialize {
    /// The SO-PIN; on a card that has one already it must be that one.
    pub so_pin: SoPin,
    /// The user's first PIN.
    pub pin: Secret,
    /// Wrong PINs in a row that block it, 1 to 10; at most 3 for a PIN of 6 characters, 5 for one of 7.
    pub retries: u8,
    /// The DKEK is made of so many shares, which are then imported; 0: the card makes one that no other
    /// card has; nothing: keys cannot leave the card.
    pub dkek_shares: Option<u8>,
    /// Public-key authentication: of so many (first) keys so many (second) must log in.
    pub public_keys: Option<(u8, u8)>,
    /// May the SO-PIN unblock the user's PIN? Bit 0 of the options.
    pub allow_reset: bool,
    /// Must the user's first PIN be changed before anything else? Bit 1 of the options.
    pub transport_pin: bool,
}

const NAME: &str = "INITIALIZE DEVICE";

impl<C: CardChannel> Card<C> {
    /// Erases the card: every key, certificate and file, and the DKEK; then sets it up
    /// (OpenSC `sc_hsm_initialize`). A wrong SO-PIN is `6985`, and one try less.
    ///
    /// The label is written afterwards: [`TokenInfo`](crate::pkcs15::TokenInfo).
    pub fn initialize(&mut self, how: &Initialize) -> Result<(), CardError> {
        check_user_pin(NAME, &how.pin)?;
        check_retries(how.retries, how.pin.expose().len())?;
        let options = u16::from(how.allow_reset) | u16::from(how.transport_pin) << 1;
        let pin = joined(&[&[0x81, how.pin.expose().len() as u8], how.pin.expose()]);
        let so_pin = joined(&[&[0x82, 8], how.so_pin.expose()]);
        let optional = |tag, value: Option<&[u8]>| value.map(|value| tlv(tag, &[value]));
        let shares = optional(
            0x92,
            how.dkek_shares
                .map(|shares| [shares])
                .as_ref()
                .map(<_>::as_ref),
        );
        let keys = how
            .public_keys
            .map(|(all, needed)| tlv(0x93, &[&[all, needed]]));
        let mut command = CommandApdu::new(0x80, instruction::INITIALIZE, 0, 0);
        command.data = joined(&[
            &tlv(0x80, &[&options.to_be_bytes()]),
            &pin,
            &so_pin,
            &tlv(0x91, &[&[how.retries]]),
            &shares.unwrap_or_default(),
            &keys.unwrap_or_default(),
        ]);
        self.run(NAME, command).map(drop)
    }
}

/// The card's own rule, checked here: to learn it from the card would erase the card.
fn check_retries(retries: u8, pin_len: usize) -> Result<(), CardError> {
    let most = match pin_len {
        6 => 3,
        7 => 5,
        _ => 10,
    };
    if (1..=most).contains(&retries) {
        return Ok(());
    }
    let what = format!("a PIN of {pin_len} characters may have 1 to {most} tries, not {retries}");
    Err(CardError::invalid(NAME, what))
}
