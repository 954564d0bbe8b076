//! The callback of BoringSSL for each ticket that it issues or receives.

use boring::error::ErrorStack;
use boring::hash::MessageDigest;
use boring::hmac::HmacCtxRef;
use boring::ssl::{SslContextBuilder, SslRef, TicketKeyCallbackResult as Answer};
use boring::symm::{Cipher, CipherCtxRef};

use super::{TicketKey, TicketKeyRing, TicketKeys};

/// Makes a context seal its tickets with these keys.
///
/// Call it for every context that a connection may have. BoringSSL calls the context that the connection began with,
/// and
/// `boring` looks for the callback in its current one.
pub fn install(context: &mut SslContextBuilder, keys: &TicketKeys) {
    let keys = keys.clone();
    let callback = move |_: &SslRef,
                         name: &mut [u8; 16],
                         iv: &mut [u8; 16],
                         cipher: &mut CipherCtxRef,
                         mac: &mut HmacCtxRef,
                         seals: bool| {
        let ring = keys.0.load();
        let (key, answer) = if seals {
            (&ring.current, Answer::Success)
        } else {
            match ring.find(name) {
                Some(found) => found,
                None => return Answer::Noop,
            }
        };
        match set_up(key, name, iv, cipher, mac, seals) {
            Ok(()) => answer,
            Err(_) => Answer::Error,
        }
    };
    // SAFETY: what the callback has to do (SSL_CTX_set_tlsext_ticket_key_cb): wherever it answers with
    // success both contexts have their keys, and for a new ticket the name and the IV are filled; it answers
    // `Noop` only where a ticket was shown.
    #[allow(unsafe_code)]
    unsafe {
        context.set_ticket_key_callback(callback);
    }
}

impl TicketKeyRing {
    fn find(&self, name: &[u8; 16]) -> Option<(&TicketKey, Answer)> {
        let all = [
            (Some(&self.current), Answer::Success),
            (self.previous.as_ref(), Answer::DecryptSuccessRenew),
            (self.next.as_ref(), Answer::Success),
        ];
        let known = all
            .into_iter()
            .filter_map(|(key, answer)| Some((key?, answer)));
        let mut known = known.filter(|(key, _)| key.name == *name);
        known.next()
    }
}

fn set_up(
    key: &TicketKey,
    name: &mut [u8; 16],
    iv: &mut [u8; 16],
    cipher: &mut CipherCtxRef,
    mac: &mut HmacCtxRef,
    seals: bool,
) -> Result<(), ErrorStack> {
    mac.init(&key.mac, &MessageDigest::sha256())?;
    if !seals {
        return cipher.init_decrypt(&Cipher::aes_256_cbc(), &key.cipher, iv);
    }
    *name = key.name;
    boring::rand::rand_bytes(iv)?;
    cipher.init_encrypt(&Cipher::aes_256_cbc(), &key.cipher, iv)
}
