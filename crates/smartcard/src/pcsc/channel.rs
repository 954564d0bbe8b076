use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::card_thread::{self, CardReply, CardRequest};
use crate::channel::{CardChannel, ChannelError};
use crate::secret::joined;

/// How long to wait for a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardTimeouts {
    /// For other programs to finish their transactions.
    pub exclusive: Duration,
    /// For the answer to one command; generating a large RSA key takes minutes.
    pub answer: Duration,
}

impl Default for CardTimeouts {
    fn default() -> Self {
        Self {
            exclusive: Duration::from_secs(30),
            answer: Duration::from_secs(600),
        }
    }
}

/// The card in one reader.
///
/// Shared with other programs, except between `begin` and `end`. The next `begin` recovers from a reset by another
/// program, from a card that was pulled and plugged in again, and from a restart of pcscd. Dropping this leaves the
/// card unchanged: [`Card::exclusively`](crate::Card::exclusively) ends the login.
pub struct Channel {
    reader: String,
    limits: CardTimeouts,
    /// Nothing after a command that never came back: its thread ends when that does.
    card_thread: Option<CardThread>,
}

struct CardThread {
    asks: Sender<CardRequest>,
    answers: Receiver<CardReply>,
    thread: JoinHandle<()>,
}

impl Channel {
    /// Connects to the card in this reader.
    pub fn open(reader: &str, limits: CardTimeouts) -> Result<Self, ChannelError> {
        let mut channel = Self {
            reader: reader.to_owned(),
            limits,
            card_thread: None,
        };
        channel.connect()?;
        Ok(channel)
    }

    fn connect(&mut self) -> Result<(), ChannelError> {
        let (asks, answers, thread) =
            card_thread::start(&self.reader).map_err(|error| ChannelError::Other {
                reader: self.reader.clone(),
                call: "thread",
                message: error.to_string(),
            })?;
        self.card_thread = Some(CardThread {
            asks,
            answers,
            thread,
        });
        let connected = self.wait(self.limits.exclusive);
        if connected.is_err() {
            self.card_thread = None;
        }
        connected.map(drop)
    }

    fn ask(&mut self, ask: CardRequest, within: Duration) -> CardReply {
        let Some(card_thread) = &self.card_thread else {
            // Selection and login went with the last connection.
            let reader = self.reader.clone();
            return Err(ChannelError::Reset { reader });
        };
        // If the thread has ended, the wait fails.
        let _ = card_thread.asks.send(ask);
        self.wait(within)
    }

    fn wait(&mut self, within: Duration) -> CardReply {
        let reader = self.reader.clone();
        let received = self
            .card_thread
            .as_ref()
            .map(|card_thread| card_thread.answers.recv_timeout(within));
        match received {
            Some(Ok(answer)) => answer,
            Some(Err(RecvTimeoutError::Timeout)) => {
                self.card_thread = None;
                Err(ChannelError::TimedOut {
                    reader,
                    seconds: within.as_secs(),
                })
            }
            Some(Err(RecvTimeoutError::Disconnected)) | None => {
                self.card_thread = None;
                Err(ChannelError::Reset { reader })
            }
        }
    }
}

impl CardChannel for Channel {
    fn transmit(&mut self, command: &[u8]) -> CardReply {
        let within = self.limits.answer;
        match self.ask(CardRequest::Transmit(joined(&[command])), within) {
            Err(ChannelError::TimedOut { reader, .. }) => Err(ChannelError::Mute { reader }),
            answer => answer,
        }
    }

    fn begin(&mut self) -> Result<(), ChannelError> {
        if self.card_thread.is_none() {
            self.connect()?;
        }
        self.ask(CardRequest::Begin, self.limits.exclusive)
            .map(drop)
    }

    fn end(&mut self) -> Result<(), ChannelError> {
        self.ask(CardRequest::End, self.limits.exclusive).map(drop)
    }

    fn name(&self) -> &str {
        &self.reader
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(CardThread { asks, thread, .. }) = self.card_thread.take() {
            drop(asks);
            // It has nothing under way; what it panicked of was said by an answer that never came.
            let _ = thread.join();
        }
    }
}
