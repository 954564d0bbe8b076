use std::ffi::CString;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ::pcsc::{Context, Error, ReaderState, Scope, State};

use super::error::channel_error;
use crate::channel::ChannelError;

/// Names the socket of another pcscd than the system's.
const SOCKET: &str = "PCSCLITE_CSOCK_NAME";

/// The system's.
const USUAL_SOCKET: &str = "/run/pcscd/pcscd.comm";

/// A reader, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// The name by which a [`Channel`](super::Channel) is opened.
    pub name: String,
    /// The card's state.
    pub card: CardState,
    /// Grows whenever a card comes or goes.
    pub events: u32,
}

/// The content of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardState {
    /// Nothing.
    Empty,
    /// A card that has answered to reset.
    Present {
        /// Its answer to reset.
        atr: Vec<u8>,
        /// Somebody is connected to it.
        in_use: bool,
        /// Somebody has it for himself.
        exclusive: bool,
    },
    /// A card that does not answer.
    Mute,
    /// The reader itself does not answer, or has gone.
    Unavailable,
}

/// The readers that pcscd has, and what is in them now.
pub fn readers() -> Result<Vec<Reader>, ChannelError> {
    let context = establish()?;
    let mut states: Vec<ReaderState> = names(&context)?
        .into_iter()
        .map(|name| ReaderState::new(name, State::UNAWARE))
        .collect();
    if !states.is_empty() {
        context
            .get_status_change(Duration::ZERO, &mut states)
            .map_err(|error| channel_error("all readers", "SCardGetStatusChange", error))?;
    }
    Ok(states.iter().map(reader).collect())
}

pub(super) fn establish() -> Result<Context, ChannelError> {
    Context::establish(Scope::User).map_err(|error| match error {
        Error::NoService if is_refused() => ChannelError::NotPermitted,
        error => channel_error("all readers", "SCardEstablishContext", error),
    })
}

/// True if pcscd runs, but not for this user: the library then reports that there is none.
fn is_refused() -> bool {
    let socket = std::env::var_os(SOCKET).unwrap_or_else(|| USUAL_SOCKET.into());
    let stranger = !rustix::process::geteuid().is_root();
    match UnixStream::connect(socket) {
        Ok(_) => stranger,
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    }
}

pub(super) fn names(context: &Context) -> Result<Vec<CString>, ChannelError> {
    match context.list_readers_owned() {
        Ok(names) => Ok(names),
        Err(Error::NoReadersAvailable) => Ok(Vec::new()),
        Err(error) => Err(channel_error("all readers", "SCardListReaders", error)),
    }
}

pub(super) fn reader(state: &ReaderState) -> Reader {
    let flags = state.event_state();
    let card = if flags.contains(State::MUTE) {
        CardState::Mute
    } else if flags.contains(State::PRESENT) {
        CardState::Present {
            atr: state.atr().to_vec(),
            in_use: flags.contains(State::INUSE),
            exclusive: flags.contains(State::EXCLUSIVE),
        }
    } else if flags.contains(State::EMPTY) {
        CardState::Empty
    } else {
        // Also without any flag: pcscd has not looked yet.
        CardState::Unavailable
    };
    Reader {
        name: state.name().to_string_lossy().into_owned(),
        card,
        events: state.event_count(),
    }
}
