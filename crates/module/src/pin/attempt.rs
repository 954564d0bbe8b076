//! One use of a PIN, with its journal.

use hsmux_token::ck::{CKR_USER_ALREADY_LOGGED_IN, CKU_USER};
use hsmux_token::{Error, Kind, Result, TokenFlags, TokenInfo};

use super::rules::{Counter, PinHold, Verdict, hold};
use super::{Journal, Outcome, PinUser};
use crate::Options;
use crate::library::{Library, Session, Slot};
use crate::slots::described;

/// Logs in, if the token has a login and this process is not logged in yet.
pub(crate) fn login(
    library: &Library,
    slot: Slot,
    session: Session,
    options: &Options,
) -> Result<()> {
    let token = described(&library.token_info(slot)?);
    let pad = token
        .flags
        .contains(TokenFlags::PROTECTED_AUTHENTICATION_PATH);
    if (options.pin.is_none() && !pad) || !token.flags.contains(TokenFlags::LOGIN_REQUIRED) {
        return Ok(());
    }
    let mut journal = Journal::open(&options.state, &token)?;
    // The module ends the login with the last session, so this holds only for this process.
    if library.logged_in(session)? {
        return Ok(());
    }
    let pin = options.pin.as_ref().map(hsmux_token::Secret::expose);
    // Read under the lock: another process may just have used a try.
    let token = described(&library.token_info(slot)?);
    let attempt = PinAttempt::new(&token, options.command_name(), PinUser::User, pin);
    match attempt.run(&mut journal, || library.login(session, CKU_USER, pin)) {
        Err(e) if e.code() == Some(CKR_USER_ALREADY_LOGGED_IN) => Ok(()),
        result => result,
    }
}

/// A call that shows a PIN to a token.
pub(crate) struct PinAttempt<'a> {
    /// The token's name in commands.
    name: &'a str,
    user: PinUser,
    pin: Option<&'a [u8]>,
    counter: Counter,
    judge: fn(&Result<()>) -> Verdict,
}

impl<'a> PinAttempt<'a> {
    /// `token` must have its current flags, read under the journal's lock.
    pub(crate) fn new(
        token: &TokenInfo,
        name: &'a str,
        user: PinUser,
        pin: Option<&'a [u8]>,
    ) -> Self {
        Self {
            name,
            user,
            pin,
            counter: Counter::of(token.flags, user),
            judge: Verdict::of,
        }
    }

    /// Marks a call that replaces this PIN by another.
    pub(crate) fn that_sets_another(self) -> Self {
        Self {
            judge: Verdict::of_change,
            ..self
        }
    }

    /// Runs the call if the rules permit it, and records it before and after.
    pub(crate) fn run(
        self,
        journal: &mut Journal,
        call: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (user, full) = (self.user, self.counter == Counter::Full);
        let mac = journal.mac(user, self.pin)?;
        let before = journal.version(&mac).cloned();
        if let Some(hold) = hold(journal.record(), user, before.as_ref(), self.counter) {
            if hold == PinHold::CounterLow {
                journal.write(user, &mac, Outcome::Held, full)?;
            }
            return Err(Error::token(Kind::PinHeld, hold.explained(self.name)));
        }
        let begun = match &before {
            Some(broken) if broken.outcome == Outcome::Attempting => Outcome::Retrying,
            _ => Outcome::Attempting,
        };
        journal.write(user, &mac, begun, full)?;
        let result = call();
        let verdict = (self.judge)(&result);
        let written = match verdict {
            Verdict::Right => journal.write(user, &mac, Outcome::Succeeded, full),
            Verdict::Wrong => journal.write(user, &mac, Outcome::Refused, full),
            Verdict::Untouched => journal.restore(&mac, before),
            Verdict::Unknown => journal.write(user, &mac, Outcome::Unknown, full),
        };
        // The attempt is on disk; without its outcome the PIN is tried once more at most.
        if let Err(e) = written {
            tracing::warn!("the outcome of a login is not on record: {e}");
        }
        let (verdict, hold) = match verdict {
            Verdict::Right | Verdict::Untouched => return result,
            Verdict::Wrong => ("the token refused this PIN", PinHold::Refused),
            Verdict::Unknown => (
                "the token did not say whether this PIN is right, so it may have cost a try",
                PinHold::UnknownOutcome,
            ),
        };
        result.map_err(|e| {
            let advice = hold.advice(self.name);
            let message = format!("{verdict} ({e}); it is not tried again: {advice}");
            Error::token(Kind::PinHeld, message)
        })
    }
}
