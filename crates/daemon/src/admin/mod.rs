//! Administration: JSON requests on a socket of their own.

mod act;
mod certificate;
mod client;
mod find;
mod key_copies;
mod keys;
mod local_action;
mod pin_change_process;
mod pins;
mod recorder;
mod service;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use hsmux_token::Error;
use serde::{Deserialize, Serialize};

use crate::services::ServiceName;

pub use client::AdminClient;
pub use hsmux_software::KeySpec;
pub(crate) use keys::until_settled;
pub use local_action::{LocalAction, Stage};
pub use pin_change_process::{ARGUMENT as PIN_CHANGE_ARGUMENT, pin_change_main};
pub use pins::{list as list_pins, release_offline as release_pin};
pub use recorder::Recorder;
pub use service::AdminService;
pub use status::{DaemonStatus, KeyRow, ListenerStatus, MemberStatus, PinRow};

/// A request of an administrator. Keys are named by PKCS#11 URIs (RFC 7512), members by their names.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AdminRequest {
    /// How the daemon and its members are; answered by [`AdminResponse::Status`].
    Status,
    /// All keys, certificates and data objects with their replicas; answered by [`AdminResponse::Keys`].
    Keys,
    /// Puts a member of the configuration file into service; answered by [`AdminResponse::Lines`]. One that does not
    /// come into service is an error, and not added.
    TokenAdd {
        /// Its name.
        token: String,
    },
    /// Takes a member out of service until it is added again, or until the next reload or start.
    TokenRemove {
        /// Its name.
        token: String,
        /// Take the last serving member, or the last one of a key.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Lets a member rest, over restarts too: it finishes what it has, and is given nothing more.
    TokenPark {
        /// Its name.
        token: String,
        /// Why, for those who look at the status later.
        reason: String,
        /// Take the last serving member, or the last one of a key.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Puts a parked member back into service, if it proves itself.
    TokenResume {
        /// Its name.
        token: String,
    },
    /// Reads the configuration again; answered by [`AdminResponse::Lines`]: what has changed.
    Reload,
    /// Replaces the process of a service by a new one; answered by [`AdminResponse::Lines`]. An error: it cannot start.
    ServiceRestart {
        /// Which.
        service: ServiceName,
    },
    /// Ends the daemon when what runs is done.
    Stop,
    /// Makes a key on the members; answered by [`AdminResponse::Keys`].
    KeyGenerate {
        /// `rsa:2048`, `ec:p256`, `ed25519`, `aes:256`, `generic:256`.
        spec: KeySpec,
        /// CKA_LABEL.
        label: String,
        /// CKA_ID in hexadecimal; without it a random one.
        id: Option<String>,
    },
    /// The objects that match; answered by [`AdminResponse::Keys`].
    KeyFind {
        /// Which.
        key: String,
    },
    /// Deletes objects from all members; answered by [`AdminResponse::Lines`].
    KeyDelete {
        /// A URI that matches them.
        key: String,
        /// Class and name of each, as [`AdminRequest::KeyFind`] lists them. If others match by now, nothing is deleted.
        objects: BTreeSet<(String, String)>,
        /// True if keys of the broker may be among them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        broker_keys: bool,
    },
    /// Proves all replicas anew; answered by [`AdminResponse::Keys`].
    KeyVerify {
        /// Which keys are answered; all without it.
        key: Option<String>,
    },
    /// Copies a key to members that do not hold it; answered by [`AdminResponse::Lines`].
    KeyClone {
        /// Which; all that can be copied without it.
        key: Option<String>,
        /// The member to copy from.
        from: Option<String>,
        /// The members to copy to; all without it.
        to: Vec<String>,
        /// The AES key under which they travel, which both members hold; without it the target's
        /// transport key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wrapping_key: Option<String>,
    },
    /// Makes a certification request (PKCS#10) with a key; answered by [`AdminResponse::Text`], in PEM.
    KeyCsr {
        /// The private key.
        key: String,
        /// The distinguished name, as RFC 4514 writes it.
        subject: String,
        /// DNS names, addresses and so on for subjectAltName.
        names: Vec<String>,
    },
    /// Writes a certificate to all members; answered by [`AdminResponse::Keys`].
    CertImport {
        /// Its DER, in hexadecimal.
        der: String,
        /// CKA_LABEL; without it the label of its key, or its subject.
        label: Option<String>,
        /// CKA_ID in hexadecimal; without it that of its key.
        id: Option<String>,
    },
    /// What is on record about PINs; answered by [`AdminResponse::Pins`].
    PinList,
    /// Lets a held PIN be tried once more; answered by [`AdminResponse::Pins`].
    PinRelease {
        /// The member.
        token: String,
    },
    /// Gives members new PINs, one after the other; repeated after an interruption it goes on where
    /// it stopped, and leaves those as they are that have their new one. Answered by [`AdminResponse::Lines`].
    PinRotate {
        /// The members; all without it.
        tokens: Vec<String>,
    },
    /// A command is about to do something itself, or has done it. Only the trail has it, see [`Recorder`].
    #[serde(rename = "deed")]
    LocalAction {
        /// The action.
        #[serde(rename = "deed")]
        action: LocalAction,
        /// Whether it is about to begin, or how it ended.
        stage: Stage,
    },
}

/// Whether the audit trail has a line of something before it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announced {
    /// It has none.
    No,
    /// Where that cannot be written, `[audit] on_failure` decides whether it begins.
    ByPolicy,
    /// Where that cannot be written it does not begin, whatever is configured.
    Always,
}

impl AdminRequest {
    /// True if it changes anything. The audit trail then has a line of how it ended.
    pub fn acts(&self) -> bool {
        match self {
            Self::Status | Self::Keys | Self::KeyFind { .. } | Self::PinList => false,
            Self::LocalAction { stage, .. } => *stage != Stage::Begun,
            _ => true,
        }
    }

    /// Whether the trail has a line before it begins.
    pub fn announced(&self) -> Announced {
        match self {
            Self::LocalAction {
                action,
                stage: Stage::Begun,
            } => action.announced(),
            // What only reads; what has ended; and the ways out, where the trail cannot be written: a reload takes
            // over what `[audit]` says, and turns to a new file.
            Self::Status
            | Self::Keys
            | Self::KeyFind { .. }
            | Self::PinList
            | Self::LocalAction { .. }
            | Self::Reload
            | Self::Stop => Announced::No,
            // Something is gone for good afterwards.
            Self::KeyDelete { .. } | Self::PinRotate { .. } => Announced::Always,
            _ => Announced::ByPolicy,
        }
    }
}

/// The answer to an administrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", content = "content", rename_all = "kebab-case")]
pub enum AdminResponse {
    /// Done; there is nothing to say.
    Done,
    /// See [`AdminRequest::Status`].
    Status(Box<DaemonStatus>),
    /// Objects with their replicas.
    Keys(Vec<KeyRow>),
    /// PINs on record.
    Pins(Vec<PinRow>),
    /// What was done to what, in order.
    Lines(Vec<String>),
    /// A text in PEM.
    Text(String),
    /// It failed.
    Failed(AdminFailure),
}

/// The reason why a request failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AdminFailure {
    /// What, where, and what to do.
    pub message: String,
    /// The kind of error, as the code names it (`Forbidden`, `NoReplica`).
    pub kind: String,
    /// More about it: what was done before it failed, by member or key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
}

impl From<Error> for AdminFailure {
    fn from(error: Error) -> Self {
        Self {
            message: error.to_string(),
            kind: format!("{:?}", error.kind()),
            details: BTreeMap::new(),
        }
    }
}

impl std::fmt::Display for AdminFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.details
            .iter()
            .try_for_each(|(what, why)| write!(f, "\n  {what}: {why}"))
    }
}

impl std::error::Error for AdminFailure {}
