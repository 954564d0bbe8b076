use crate::apdu::{ApduError, StatusWord};
use crate::channel::ChannelError;

/// A command that did not succeed: which one, on which card, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// The card was not reached.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The card was reached and said no.
    #[error("{card}: {command}: {status}")]
    Refused {
        /// The card's name: its reader.
        card: String,
        /// The command, by its name in the specification.
        command: &'static str,
        /// The card's answer.
        status: StatusWord,
    },
    /// The card answered what no such card answers.
    #[error("{card}: {command}: the card answered {what}; is it a SmartCard-HSM?")]
    BadAnswer {
        /// The card's name: its reader.
        card: String,
        /// The command, by its name in the specification.
        command: &'static str,
        /// The problem with the answer.
        what: String,
    },
    /// The caller asked for what no card can do; nothing was sent.
    #[error("{command}: {what}")]
    Invalid {
        /// The command, by its name in the specification.
        command: &'static str,
        /// The problem, and the right form.
        what: String,
    },
}

impl CardError {
    /// The card's status word, if the card refused.
    pub fn status(&self) -> Option<StatusWord> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(crate) fn invalid(command: &'static str, what: impl Into<String>) -> Self {
        Self::Invalid {
            command,
            what: what.into(),
        }
    }

    pub(crate) fn unwritable(command: &'static str, error: &ApduError) -> Self {
        Self::invalid(command, error.to_string())
    }
}
