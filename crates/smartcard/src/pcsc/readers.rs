use std::ffi::CString;
use std::time::Duration;

use ::pcsc::{Context, Error, ReaderState, Scope, State};

use super::error::channel_error;
use crate::channel::ChannelError;

/// A reader, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// The name by which a [`Channel`](super::Channel) is opened.
    pub name: String,
    /// What is in it.
    pub card: CardState,
    /// Grows whenever a card comes or goes.
    pub events: u32,
}

/// What is in a reader.
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
    Context::establish(Scope::User)
        .map_err(|error| channel_error("all readers", "SCardEstablishContext", error))
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
    } else if flags.intersects(State::UNAVAILABLE | State::UNKNOWN) {
        CardState::Unavailable
    } else {
        CardState::Empty
    };
    Reader {
        name: state.name().to_string_lossy().into_owned(),
        card,
        events: state.event_count(),
    }
}
