//! Decides when a PIN may be tried, and interprets a token's answer. No I/O.

use hsmux_token::ck::*;
use hsmux_token::{Error, Result, TokenFlags};

use super::{Outcome, PinUser, Record, Version};

/// The token's report of its retry counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counter {
    /// No wrong PIN since the last correct one.
    Full,
    /// CKF_USER_PIN_COUNT_LOW: at least one wrong PIN.
    Low,
    /// CKF_USER_PIN_FINAL_TRY: the next wrong PIN locks it.
    FinalTry,
    /// CKF_USER_PIN_LOCKED.
    Locked,
}

impl Counter {
    pub(super) fn of(flags: TokenFlags, user: PinUser) -> Self {
        let (locked, last, low) = match user {
            PinUser::User => (
                TokenFlags::USER_PIN_LOCKED,
                TokenFlags::USER_PIN_FINAL_TRY,
                TokenFlags::USER_PIN_COUNT_LOW,
            ),
            PinUser::SecurityOfficer => (
                TokenFlags::SO_PIN_LOCKED,
                TokenFlags::SO_PIN_FINAL_TRY,
                TokenFlags::SO_PIN_COUNT_LOW,
            ),
        };
        match () {
            () if flags.contains(locked) => Self::Locked,
            () if flags.contains(last) => Self::FinalTry,
            () if flags.contains(low) => Self::Low,
            () => Self::Full,
        }
    }
}

/// The start of a URI, which names a card or a token that is not a member.
const CARD: &str = "pkcs11:";

/// The reason why a PIN is not tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PinHold {
    Locked,
    FinalTry,
    CounterLow,
    Refused,
    UnknownOutcome,
}

impl PinHold {
    /// The message: the reason and the next command. `name` is the token's name in commands.
    pub(super) fn explained(self, name: &str) -> String {
        let why = match self {
            Self::Locked => "the token's PIN is locked",
            Self::FinalTry => "the token says that one more wrong PIN locks it",
            Self::CounterLow => {
                "the token's PIN counter is low, and this PIN has never been right on it"
            }
            Self::Refused => "the token refused this PIN before, so it is not tried again",
            Self::UnknownOutcome => {
                "the outcome of an earlier login with this PIN is unknown, so it may have cost a try"
            }
        };
        format!("{why}; {}", self.advice(name))
    }

    /// The next command for the operator.
    pub(super) fn advice(self, name: &str) -> String {
        let is_card = name.starts_with(CARD);
        // Quoted, because a shell splits a URI with several attributes.
        let name = if is_card {
            format!("'{name}'")
        } else {
            name.to_owned()
        };
        match self {
            Self::Locked => "its security officer can set a new one".into(),
            Self::FinalTry => {
                "make sure that the PIN is right, then log in once with the vendor's own tool"
                    .into()
            }
            Self::Refused if is_card => {
                format!(
                    "give the right PIN, or run `hsmux pin release {name}` if this one is right now"
                )
            }
            Self::Refused => format!(
                "put the right PIN into its file, then `hsmux token resume {name}`; or `hsmux pin release {name}`, \
                 if this one is right now"
            ),
            Self::CounterLow | Self::UnknownOutcome => {
                format!("make sure that the PIN is right, then `hsmux pin release {name}`")
            }
        }
    }
}

/// Decides whether a PIN may be tried now. A low counter stops a PIN that never succeeded, unless it was released,
/// was being set, or corrects this host's own refusal, which found the counter full. The last try is never taken.
pub(super) fn hold(
    record: &Record,
    user: PinUser,
    version: Option<&Version>,
    counter: Counter,
) -> Option<PinHold> {
    let outcome = version.map(|v| v.outcome);
    let succeeded_before = version.is_some_and(|v| v.succeeded_before);
    match (outcome, counter) {
        (_, Counter::Locked) => Some(PinHold::Locked),
        (Some(Outcome::Refused), _) => Some(PinHold::Refused),
        (Some(Outcome::Unknown | Outcome::Retrying), _) => Some(PinHold::UnknownOutcome),
        (Some(Outcome::Attempting), _) if !succeeded_before => Some(PinHold::UnknownOutcome),
        (_, Counter::FinalTry) => Some(PinHold::FinalTry),
        (Some(Outcome::Released | Outcome::Setting), Counter::Low) => None,
        (_, Counter::Low) if !succeeded_before && !own_refusal(record, user) => {
            Some(PinHold::CounterLow)
        }
        _ => None,
    }
}

/// Whether the last attempt was refused, and the counter was full before.
fn own_refusal(record: &Record, user: PinUser) -> bool {
    let mut tried = record.pins.iter().rev().filter(|v| v.user == user);
    let last = tried.find(|v| v.outcome != Outcome::Held);
    last.is_some_and(|v| v.outcome == Outcome::Refused && v.counter_was_full)
}

/// The result of a call with a PIN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The token accepted the PIN.
    Right,
    /// The token refused it, or its form.
    Wrong,
    /// The call failed before the token checked the PIN.
    Untouched,
    /// Unknown.
    Unknown,
}

impl Verdict {
    /// Only codes that the standard defines for the application's state, before a PIN is checked, count as untouched.
    /// General and device errors may follow a counted wrong PIN.
    pub(super) fn of(result: &Result<()>) -> Self {
        let Err(error) = result else {
            return Self::Right;
        };
        match error.code() {
            Some(
                CKR_PIN_INCORRECT | CKR_PIN_INVALID | CKR_PIN_LEN_RANGE | CKR_PIN_EXPIRED
                | CKR_PIN_LOCKED,
            ) => Self::Wrong,
            Some(
                CKR_USER_ALREADY_LOGGED_IN
                | CKR_USER_ANOTHER_ALREADY_LOGGED_IN
                | CKR_USER_TOO_MANY_TYPES
                | CKR_USER_TYPE_INVALID
                | CKR_USER_PIN_NOT_INITIALIZED
                | CKR_ARGUMENTS_BAD
                | CKR_CRYPTOKI_NOT_INITIALIZED
                | CKR_SESSION_HANDLE_INVALID
                | CKR_SESSION_READ_ONLY
                | CKR_SESSION_READ_ONLY_EXISTS
                | CKR_FUNCTION_NOT_SUPPORTED,
            ) => Self::Untouched,
            _ => Self::Unknown,
        }
    }

    /// For C_SetPIN: an error about a PIN's form concerns the new one.
    pub(super) fn of_change(result: &Result<()>) -> Self {
        match result {
            Err(error) if is_about_new_pin(error) => Self::Untouched,
            result => Self::of(result),
        }
    }
}

/// Whether a call refused the new PIN: these codes have no other meaning (PKCS#11 2.40, section 5.1.6).
pub(crate) fn is_about_new_pin(error: &Error) -> bool {
    matches!(error.code(), Some(CKR_PIN_INVALID | CKR_PIN_LEN_RANGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(outcome: Outcome, succeeded_before: bool, counter_was_full: bool) -> Version {
        Version {
            user: PinUser::User,
            mac: "a".into(),
            outcome,
            succeeded_before,
            counter_was_full,
            time: 0,
        }
    }

    #[test]
    fn a_hold_follows_from_the_record_and_the_counter() {
        use Counter::{FinalTry, Full, Locked, Low};
        use Outcome::{Attempting, Held, Refused, Released, Retrying, Setting, Succeeded, Unknown};
        for (known, counter, expected) in [
            (None, Full, None),
            (None, Low, Some(PinHold::CounterLow)),
            (None, FinalTry, Some(PinHold::FinalTry)),
            (None, Locked, Some(PinHold::Locked)),
            (Some((Succeeded, true)), Full, None),
            (Some((Succeeded, true)), Low, None),
            (Some((Succeeded, true)), FinalTry, Some(PinHold::FinalTry)),
            (Some((Succeeded, true)), Locked, Some(PinHold::Locked)),
            (Some((Attempting, true)), Low, None),
            (
                Some((Attempting, false)),
                Full,
                Some(PinHold::UnknownOutcome),
            ),
            (Some((Retrying, true)), Full, Some(PinHold::UnknownOutcome)),
            (Some((Unknown, true)), Full, Some(PinHold::UnknownOutcome)),
            (Some((Refused, true)), Full, Some(PinHold::Refused)),
            (Some((Refused, false)), Low, Some(PinHold::Refused)),
            (Some((Held, false)), Full, None),
            (Some((Held, false)), Low, Some(PinHold::CounterLow)),
            (Some((Released, false)), Low, None),
            (Some((Released, false)), FinalTry, Some(PinHold::FinalTry)),
            (Some((Setting, false)), Low, None),
            (Some((Setting, false)), FinalTry, Some(PinHold::FinalTry)),
        ] {
            let known = known.map(|(outcome, before)| version(outcome, before, true));
            let found = hold(&Record::default(), PinUser::User, known.as_ref(), counter);
            assert_eq!(found, expected, "{known:?} {counter:?}");
        }
    }

    #[test]
    fn our_own_first_refusal_explains_a_low_counter_and_a_second_does_not() {
        let after = |full| Record {
            pins: vec![version(Outcome::Refused, false, full)],
            ..Record::default()
        };
        let corrected = |record: Record| hold(&record, PinUser::User, None, Counter::Low);
        assert_eq!(corrected(after(true)), None);
        assert_eq!(corrected(after(false)), Some(PinHold::CounterLow));
        let other_user = hold(&after(true), PinUser::SecurityOfficer, None, Counter::Low);
        assert_eq!(other_user, Some(PinHold::CounterLow));
    }
}
