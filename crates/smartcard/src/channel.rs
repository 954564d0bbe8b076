//! How bytes reach a card.

/// A card, as somebody who sends it bytes sees it: in a PC/SC reader, or in memory.
///
/// Implementations send what they get and return what the card answers: response chaining, retries
/// and meaning are the business of whoever sends commands.
pub trait CardChannel: Send {
    /// Sends one command APDU and waits for the response, two status bytes at its end.
    fn transmit(&mut self, command: &[u8]) -> Result<Vec<u8>, ChannelError>;

    /// Takes the card for exclusive use until [`end`](Self::end): a PC/SC transaction.
    ///
    /// Another program may have had the card since the last `end`: whether an application is
    /// selected and a PIN verified is not known afterwards.
    fn begin(&mut self) -> Result<(), ChannelError> {
        Ok(())
    }

    /// Lets others use the card again.
    fn end(&mut self) -> Result<(), ChannelError> {
        Ok(())
    }

    /// The longest command APDU that card and reader take, in bytes.
    ///
    /// JCOP 3, the smallest of the platforms that a SmartCard-HSM runs on, takes 1232.
    fn max_command(&self) -> usize {
        1232
    }

    /// The card's name in messages: the reader's name.
    fn name(&self) -> &str;
}

impl<C: CardChannel + ?Sized> CardChannel for Box<C> {
    fn transmit(&mut self, command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        (**self).transmit(command)
    }
    fn begin(&mut self) -> Result<(), ChannelError> {
        (**self).begin()
    }
    fn end(&mut self) -> Result<(), ChannelError> {
        (**self).end()
    }
    fn max_command(&self) -> usize {
        (**self).max_command()
    }
    fn name(&self) -> &str {
        (**self).name()
    }
}

/// Why bytes did not reach a card, or no answer came back. Each says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The reader has no card, or the card was pulled.
    #[error("{reader}: the card was removed; plug it in again")]
    Removed {
        /// The reader's name.
        reader: String,
    },
    /// A card is there and does not answer.
    #[error("{reader}: the card does not answer; pull it and plug it in again, clean its contacts")]
    Mute {
        /// The reader's name.
        reader: String,
    },
    /// Another program has reset the card: the application that was selected and the login are gone.
    #[error("{reader}: another program has reset the card in the middle; do it again")]
    Reset {
        /// The reader's name.
        reader: String,
    },
    /// No reader of this name, or none at all.
    #[error("there is no reader {reader:?}; `hsmux card list` shows those that there are")]
    NoReader {
        /// The name that was looked for.
        reader: String,
    },
    /// The PC/SC daemon does not run, or has gone.
    #[error("the PC/SC daemon (pcscd) does not answer; start it: systemctl start pcscd.socket")]
    NoPcscd,
    /// polkit, or the socket's permissions, forbid it.
    #[error(
        "not permitted to use smart cards; polkit decides: allow org.debian.pcsc-lite.access_pcsc and access_card to this user"
    )]
    NotPermitted,
    /// Another program has the card for itself.
    #[error(
        "{reader}: another program has the card for itself; end it, or try again when it is done"
    )]
    SharingViolation {
        /// The reader's name.
        reader: String,
    },
    /// It did not happen in the time that was given.
    #[error(
        "{reader}: the card was not free in {seconds} s; another program (a signing daemon?) keeps it"
    )]
    TimedOut {
        /// The reader's name.
        reader: String,
        /// How long was waited.
        seconds: u64,
    },
    /// Anything else, with the words of whoever said it.
    #[error("{reader}: {call}: {message}")]
    Other {
        /// The reader's name.
        reader: String,
        /// The call that failed.
        call: &'static str,
        /// The error of the library.
        message: String,
    },
}
