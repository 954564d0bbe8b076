use std::io;
use std::path::PathBuf;

/// An error of cards in readers.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    /// pcscd or its driver is not installed.
    #[error("{path} is missing; install it: apt-get install {package}")]
    Missing {
        /// The file.
        path: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// More cards than one pcscd supports.
    #[error("{0} cards: one pcscd takes {most} readers; start fewer", most = super::MOST)]
    TooMany(usize),
    /// A virtual card cannot be created.
    #[error(transparent)]
    Card(#[from] crate::CardError),
    /// Another process uses the cards of this folder.
    #[error("the cards in {} are in use; end the other hsmux vcard run, or take another folder", .0.display())]
    InUse(PathBuf),
    /// The running cards refused an order.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The failed action.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// pcscd runs, but does not recognise a card.
    #[error("pcscd does not see the card in {reader}; pcscd's log: {log}")]
    Unseen {
        /// The reader's name.
        reader: String,
        /// The log of pcscd.
        log: String,
    },
}

impl ReaderError {
    pub(super) fn missing(path: &'static str, package: &'static str) -> Self {
        Self::Missing { path, package }
    }

    pub(super) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }
}
