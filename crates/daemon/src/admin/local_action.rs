//! Actions of commands without the daemon, for the audit trail.

use std::path::PathBuf;

use hsmux_state::Timestamp;
use serde::{Deserialize, Serialize};

use super::Announced;

/// An action of a command on a token, a card or the broker's store, without the daemon. Cards are named by their serial
/// numbers. It never contains a PIN, password, share or client's token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LocalAction {
    /// `hsmux token init`.
    TokenInit {
        /// The vendor's module.
        module: PathBuf,
        /// The label that the token is to have.
        label: String,
        /// The serial number of the token that is erased.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        erased: Option<String>,
    },
    /// `hsmux card init`, which erases the card.
    CardInit {
        /// The card.
        card: String,
        /// The label that it is to have.
        label: String,
        /// The number of shares of its DKEK. Without a DKEK keys cannot leave the card.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dkek_shares: Option<u8>,
    },
    /// `hsmux card dkek import-share`.
    CardDkekImportShare {
        /// The card.
        card: String,
        /// The file of the share.
        file: PathBuf,
    },
    /// `hsmux card clone`.
    CardClone {
        /// The card that is copied.
        from: String,
        /// Those that receive.
        to: Vec<String>,
    },
    /// `hsmux card key wrap`.
    CardKeyWrap {
        /// The card.
        card: String,
        /// The key's number on it.
        key: u8,
        /// The new file.
        file: PathBuf,
    },
    /// `hsmux card key unwrap`.
    CardKeyUnwrap {
        /// The card.
        card: String,
        /// The key's number on it.
        key: u8,
        /// The file.
        file: PathBuf,
    },
    /// `hsmux card pin change`.
    CardPinChange {
        /// The card.
        card: String,
    },
    /// `hsmux card pin unblock`.
    CardPinUnblock {
        /// The card.
        card: String,
        /// True if the user has a new PIN.
        new_pin: bool,
    },
    /// `hsmux card backup`.
    CardBackup {
        /// The card.
        card: String,
        /// The new file.
        file: PathBuf,
    },
    /// `hsmux card restore`.
    CardRestore {
        /// The card.
        card: String,
        /// The backup.
        file: PathBuf,
    },
    /// `hsmux token-auth create`.
    TokenAuthCreate {
        /// The token's id.
        id: String,
        /// Its owner's name.
        name: String,
        /// The end of its life; `None`: it does not expire.
        expires: Option<Timestamp>,
    },
    /// `hsmux token-auth revoke`.
    TokenAuthRevoke {
        /// The id or the name that was given.
        which: String,
        /// The ids of the matching tokens.
        ids: Vec<String>,
    },
    /// `hsmux broker --backup`.
    BrokerBackup {
        /// The new file.
        file: PathBuf,
    },
}

impl LocalAction {
    /// Actions on tokens and cards lose objects or export keys, so they are always announced. Rows of the broker's
    /// store can be made again.
    pub(super) fn announced(&self) -> Announced {
        match self {
            Self::TokenAuthCreate { .. }
            | Self::TokenAuthRevoke { .. }
            | Self::BrokerBackup { .. } => Announced::ByPolicy,
            _ => Announced::Always,
        }
    }
}

/// The progress of a [`LocalAction`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is about to begin.
    Begun,
    /// It is done.
    Done,
    /// It failed, or was done in part: the reason.
    Failed(String),
}
