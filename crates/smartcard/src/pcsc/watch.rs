use std::time::Duration;

use ::pcsc::{Context, Error, PNP_NOTIFICATION, ReaderState, State};

use super::error::channel_error;
use super::readers::{Reader, establish, names, reader};
use crate::channel::ChannelError;

/// Watches cards and readers come and go.
pub struct ReaderWatch {
    context: Context,
    /// The known states: first the entry for readers that come and go, then the readers.
    states: Vec<ReaderState>,
}

/// Ends a [`ReaderWatch::wait`] from another thread.
#[derive(Clone)]
pub struct WatchCanceller(Context);

impl ReaderWatch {
    /// The first [`wait`](Self::wait) says at once what there is.
    pub fn new() -> Result<Self, ChannelError> {
        Ok(Self {
            context: establish()?,
            states: vec![ReaderState::new(PNP_NOTIFICATION(), State::UNAWARE)],
        })
    }

    /// For whoever wants to end the waiting.
    pub fn canceller(&self) -> WatchCanceller {
        WatchCanceller(self.context.clone())
    }

    /// Waits for a change, and tells all readers as they are then; nothing after `timeout`, if there is one, or
    /// when it was cancelled. An error means that pcscd has gone: make a new one.
    pub fn wait(
        &mut self,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Option<Vec<Reader>>, ChannelError> {
        // pcscd only tells of readers that come while somebody waits.
        let changed = self.update_readers()?;
        let timeout = if changed {
            Some(Duration::ZERO)
        } else {
            timeout.into()
        };
        let waited = self.context.get_status_change(timeout, &mut self.states);
        match waited {
            // Unknown: a reader went between the list and the wait.
            Ok(()) | Err(Error::UnknownReader) => {}
            Err(Error::Timeout) if changed => {}
            Err(Error::Timeout | Error::Cancelled) => return Ok(None),
            Err(error) => return Err(channel_error("all readers", "SCardGetStatusChange", error)),
        }
        for state in &mut self.states {
            state.sync_current_state();
        }
        self.update_readers()?;
        Ok(Some(self.states.iter().skip(1).map(reader).collect()))
    }

    /// Are there other readers than before?
    fn update_readers(&mut self) -> Result<bool, ChannelError> {
        let names = names(&self.context)?;
        let before = self.states.len();
        let is_there = |state: &ReaderState| {
            let name = state.name();
            name == PNP_NOTIFICATION() || names.iter().any(|there| there.as_c_str() == name)
        };
        self.states.retain(is_there);
        let mut changed = self.states.len() != before;
        for name in names {
            if !self
                .states
                .iter()
                .any(|state| state.name() == name.as_c_str())
            {
                self.states.push(ReaderState::new(name, State::UNAWARE));
                changed = true;
            }
        }
        Ok(changed)
    }
}

impl WatchCanceller {
    /// Ends the waiting now, if somebody waits; a later one is not ended by it.
    pub fn cancel(&self) -> Result<(), ChannelError> {
        self.0
            .cancel()
            .map_err(|error| channel_error("all readers", "SCardCancel", error))
    }
}
