//! How new keys get from the token where they are made to others by the tokens' own means.

use hsmux_token::{Blob, Result, TokenInfo};

/// A way of keys between tokens beside PKCS#11 wrapping, for tokens that have one: a SmartCard-HSM's DKEK.
///
/// It works beside the members' workers, by their logins, and shows no PIN. The bytes that it hands
/// out are written to the journal, so keys are encrypted in them; nobody else looks into them. Errors
/// name the token and say what to do.
///
/// A worker's module does not see what comes to its token in this way: the member is connected anew.
pub trait Replicator: Send + Sync {
    /// Whether a token has these means, as it answers itself; otherwise what was asked and what it lacks, for people.
    fn serves(&self, token: &TokenInfo) -> std::result::Result<(), String>;

    /// Asks whether a token is still logged in: any program can end that by looking at a card.
    fn is_logged_in(&self, token: &TokenInfo) -> Result<bool>;

    /// Whether keys can go from each of these tokens to each other; touches none of them. A refusal is
    /// the request's fault ([`hsmux_token::Scope::Request`]).
    fn check(&self, tokens: &[&TokenInfo]) -> Result<()>;

    /// The mark by which a key with this CKA_ID will differ from all others of the token. It is asked for before the key
    /// is made.
    fn expect(&self, token: &TokenInfo, id: &[u8]) -> Result<Blob>;

    /// Takes the expected key from the token where it was made, for all others.
    fn take(&self, token: &TokenInfo, expected: &Blob) -> Result<Blob>;

    /// Puts what was taken onto another token, where it proves itself. What is there already is left.
    fn put(&self, token: &TokenInfo, key: &Blob) -> Result<()>;

    /// Takes away the expected key, whole or half; says whether there was one.
    fn sweep(&self, token: &TokenInfo, expected: &Blob) -> Result<bool>;
}
