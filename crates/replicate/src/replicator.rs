//! How new keys get from the token where they are made to others by the tokens' own means.

use hsmux_token::{Blob, Result, TokenInfo};

/// A transfer of keys between tokens beside PKCS#11 wrapping, for tokens that have one: a SmartCard-HSM's DKEK.
///
/// It works beside the members' workers, with their logins, and shows no PIN. Its output is written to the journal
/// unread, so keys in it are encrypted. Errors name the token and say what to do.
///
/// A worker's module does not see keys that come to its token in this way: the member is reconnected.
pub trait Replicator: Send + Sync {
    /// Checks that a token has these means, by its own answer; otherwise says what was asked and what it lacks.
    fn serves(&self, token: &TokenInfo) -> std::result::Result<(), String>;

    /// Asks whether a token is still logged in: any program can end that by looking at a card.
    fn is_logged_in(&self, token: &TokenInfo) -> Result<bool>;

    /// Checks that keys can go from each of these tokens to each other; touches none of them. A refusal is the
    /// request's fault ([`hsmux_token::Scope::Request`]).
    fn check(&self, tokens: &[&TokenInfo]) -> Result<()>;

    /// The mark by which a key with this CKA_ID will differ from all others of the token. It is asked for before the key
    /// is made.
    fn expect(&self, token: &TokenInfo, id: &[u8]) -> Result<Blob>;

    /// Takes the expected key from the token where it was made, for all others.
    fn take(&self, token: &TokenInfo, expected: &Blob) -> Result<Blob>;

    /// Puts the taken key onto another token, where it proves itself. Existing objects stay.
    fn put(&self, token: &TokenInfo, key: &Blob) -> Result<()>;

    /// Takes away the expected key, whole or half; says whether there was one.
    fn sweep(&self, token: &TokenInfo, expected: &Blob) -> Result<bool>;
}
