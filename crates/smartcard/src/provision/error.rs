use hsmux_token::{Error, Kind};

use crate::dkek::{CheckValue, DkekError};
use crate::{CardError, ChannelError, FileId, KeyReference, StatusWord};

/// Why provisioning stopped, on which card, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProvisionError {
    /// A command failed.
    #[error(transparent)]
    Card(#[from] CardError),
    /// A share or a wrapped key is not what it should be.
    #[error(transparent)]
    Dkek(#[from] DkekError),
    /// The PIN was tried, once.
    #[error(
        "card {card}: the {whose} is wrong, {tries} tries are left; it was tried once and is not tried again"
    )]
    WrongPin {
        /// Serial number.
        card: String,
        /// PIN or SO-PIN.
        whose: &'static str,
        /// Tries that are left now.
        tries: u8,
    },
    /// The PIN was not tried, for a wrong one would block it.
    #[error(
        "card {card}: one try of the {whose} is left, so it was not tried; if you are sure of it, say --last-try"
    )]
    LastTry {
        /// Serial number.
        card: String,
        /// PIN or SO-PIN.
        whose: &'static str,
    },
    /// The PIN was not tried, since another card had refused it.
    #[error("card {card}: the PIN was not tried, for another card refused its own")]
    NotTried {
        /// Serial number.
        card: String,
    },
    /// No tries are left.
    #[error("card {card}: the PIN is blocked; hsmux card pin unblock sets it free with the SO-PIN")]
    PinBlocked {
        /// Serial number.
        card: String,
    },
    /// No tries of the SO-PIN are left.
    #[error(
        "card {card}: the SO-PIN is blocked, for good: the card can neither be unblocked nor initialised"
    )]
    SoPinBlocked {
        /// Serial number.
        card: String,
    },
    /// The PIN is good for nothing but its change.
    #[error("card {card}: its PIN is a transport PIN; change it first (hsmux card pin change)")]
    TransportPin {
        /// Serial number.
        card: String,
    },
    /// The PIN is not set yet.
    #[error("card {card} is not initialised (hsmux card init)")]
    NotInitialised {
        /// Serial number.
        card: String,
    },
    /// Keys cannot leave or enter.
    #[error(
        "card {card} was initialised without a DKEK, so keys neither leave nor enter it; only \
         hsmux card init --dkek-shares changes that, and erases it"
    )]
    WithoutDkek {
        /// Serial number.
        card: String,
    },
    /// Shares are missing.
    #[error(
        "card {card}: {missing} DKEK shares are missing; import them first (hsmux card dkek import-share)"
    )]
    DkekIncomplete {
        /// Serial number.
        card: String,
        /// How many.
        missing: u8,
    },
    /// All shares are there.
    #[error("card {card}: its DKEK is complete, key check value {value}; it takes no more shares")]
    DkekComplete {
        /// Serial number.
        card: String,
        /// The key check value of the DKEK.
        value: CheckValue,
    },
    /// The keys were wrapped under another.
    #[error(
        "card {card} has the DKEK with key check value {here}, but the keys are under {there}; \
         initialise it with the same shares"
    )]
    OtherDkek {
        /// Serial number.
        card: String,
        /// Its own.
        here: CheckValue,
        /// The key check value of the source's DKEK.
        there: CheckValue,
    },
    /// The card has another key under this number.
    #[error("card {card}: {key} is another key already; delete it there, or take another number")]
    Taken {
        /// Serial number.
        card: String,
        /// Its number.
        key: KeyReference,
    },
    /// No such key.
    #[error("card {card} has no {key}; hsmux card list shows its keys")]
    NoKey {
        /// Serial number.
        card: String,
        /// Its number.
        key: KeyReference,
    },
    /// The key was made so that it stays.
    #[error(
        "card {card}: {key} may not leave it: it has a use counter, or a list of algorithms without wrapping (92)"
    )]
    MayNotLeave {
        /// Serial number.
        card: String,
        /// Its number.
        key: KeyReference,
    },
    /// The card has another file under this number.
    #[error("card {card}: {file} has another content already; nothing was changed in it")]
    OtherContent {
        /// Serial number.
        card: String,
        /// Which.
        file: FileId,
    },
    /// The copy does not do what the original does.
    #[error("card {card}: {key} did not prove itself: {why}")]
    NotProved {
        /// Serial number.
        card: String,
        /// Its number.
        key: KeyReference,
        /// The wrong result.
        why: String,
    },
    /// There is nothing to compare a copy with.
    #[error("card {card}: a copy of {key} could not prove itself, so none is made: {why}")]
    NoProof {
        /// Serial number.
        card: String,
        /// Its number.
        key: KeyReference,
        /// The missing ability.
        why: String,
    },
    /// The card in use has no login any more.
    #[error(
        "card {card}: nobody is logged in to it any more: another program has selected its application \
         meanwhile, or it was pulled"
    )]
    NotInUse {
        /// Serial number.
        card: String,
    },
    /// The key that was just made cannot be told.
    #[error("card {card}: there is not one new key with CKA_ID {} on it", hex::encode(.id))]
    NotOneNewKey {
        /// Serial number.
        card: String,
        /// CKA_ID.
        id: Vec<u8>,
    },
    /// A backup that cannot be read.
    #[error("not a backup of a card: {0}")]
    Backup(String),
}

impl ProvisionError {
    /// True if further work with this card makes no sense: it is gone, full, or refuses the PIN.
    pub fn ends_card(&self) -> bool {
        match self {
            Self::Card(CardError::Channel(_)) => true,
            Self::Card(error) => error.status() == Some(StatusWord::NOT_ENOUGH_MEMORY),
            _ => !self.concerns_one_object(),
        }
    }

    fn concerns_one_object(&self) -> bool {
        matches!(
            self,
            Self::Dkek(_)
                | Self::Taken { .. }
                | Self::NoKey { .. }
                | Self::MayNotLeave { .. }
                | Self::OtherContent { .. }
                | Self::NotProved { .. }
                | Self::NoProof { .. }
        )
    }

    /// True if the card refused, false if it did not answer.
    pub fn is_answer(&self) -> bool {
        !matches!(self, Self::Card(CardError::Channel(_)))
    }
}

/// The error that a vendor's module would have given to a pool: a card that is not set up for an operation refuses
/// the request.
impl From<ProvisionError> for Error {
    fn from(error: ProvisionError) -> Self {
        let message = error.to_string();
        match error {
            ProvisionError::Card(error) => error.into(),
            ProvisionError::WithoutDkek { .. }
            | ProvisionError::DkekIncomplete { .. }
            | ProvisionError::OtherDkek { .. }
            | ProvisionError::MayNotLeave { .. }
            | ProvisionError::NoProof { .. } => Self::request(Kind::Unsupported, message),
            _ => Self::token(Kind::Unproved, message),
        }
    }
}

impl From<ChannelError> for ProvisionError {
    fn from(error: ChannelError) -> Self {
        Self::Card(error.into())
    }
}
