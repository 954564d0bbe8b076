//! The thread that has a card: it waits where waiting cannot be given up.

use std::ffi::CString;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use ::pcsc::{Card, Disposition, Error, MAX_BUFFER_SIZE_EXTENDED, Protocols, ShareMode};
use zeroize::{Zeroize, Zeroizing};

use super::error::{channel_error, is_gone};
use super::readers::establish;
use crate::channel::ChannelError;

/// A request to the thread; each has one answer.
pub enum CardRequest {
    /// Begins a transaction.
    Begin,
    /// Sends a command.
    Transmit(Zeroizing<Vec<u8>>),
    /// Ends the transaction.
    End,
}

/// The answer of a card; empty for `Begin` and `End`.
pub type CardReply = Result<Vec<u8>, ChannelError>;

/// Starts the thread; its first answer says whether it has the card.
pub fn start(
    reader: &str,
) -> io::Result<(Sender<CardRequest>, Receiver<CardReply>, JoinHandle<()>)> {
    let (asks, asked) = channel();
    let (answer, answers) = channel();
    let reader = reader.to_owned();
    let thread = Builder::new()
        .name("card".to_owned())
        .spawn(move || serve(&reader, &asked, &answer))?;
    Ok((asks, answers, thread))
}

/// Ends when the channel is gone.
fn serve(reader: &str, asked: &Receiver<CardRequest>, answer: &Sender<CardReply>) {
    let mut line = match CardConnection::open(reader) {
        Ok(line) => line,
        Err(error) => {
            let _ = answer.send(Err(error));
            return;
        }
    };
    let mut listening = answer.send(Ok(Vec::new())).is_ok();
    while listening {
        listening = match asked.recv() {
            Ok(CardRequest::Begin) => match line.ready() {
                Ok(()) => line.hold(asked, answer).is_some(),
                Err(error) => answer.send(Err(error)).is_ok(),
            },
            Ok(CardRequest::Transmit(command)) => {
                let response = line
                    .buffer
                    .transmit(reader, |to| line.card.transmit(&command, to));
                answer.send(response).is_ok()
            }
            Ok(CardRequest::End) => answer.send(Ok(Vec::new())).is_ok(),
            Err(_) => false,
        };
    }
    // A card that is dropped is reset, under the hands of whoever else uses it.
    let _ = line.card.disconnect(Disposition::LeaveCard);
}

struct CardConnection {
    reader: String,
    card: Card,
    buffer: ResponseBuffer,
}

impl CardConnection {
    fn open(reader: &str) -> Result<Self, ChannelError> {
        let name = CString::new(reader).map_err(|_| ChannelError::NoReader {
            reader: reader.to_owned(),
        })?;
        let card = establish()?
            .connect(&name, ShareMode::Shared, Protocols::ANY)
            .map_err(|error| channel_error(reader, "SCardConnect", error))?;
        Ok(Self {
            reader: reader.to_owned(),
            card,
            buffer: ResponseBuffer::new(),
        })
    }

    /// Finds the card again, after a reset by another program, after it was pulled, after pcscd was restarted.
    fn ready(&mut self) -> Result<(), ChannelError> {
        match self.card.status2_owned() {
            Ok(_) => Ok(()),
            Err(Error::ResetCard | Error::RemovedCard | Error::NoSmartcard) => self
                .card
                .reconnect(ShareMode::Shared, Protocols::ANY, Disposition::LeaveCard)
                .map_err(|error| channel_error(&self.reader, "SCardReconnect", error)),
            Err(error) if is_gone(error) => {
                *self = Self::open(&self.reader)?;
                Ok(())
            }
            Err(error) => Err(channel_error(&self.reader, "SCardStatus", error)),
        }
    }

    /// One transaction, until its end is requested, or until the channel is gone.
    fn hold(&mut self, asked: &Receiver<CardRequest>, answer: &Sender<CardReply>) -> Option<()> {
        let reader = &self.reader;
        let transaction = match self.card.transaction() {
            Ok(transaction) => transaction,
            Err(error) => {
                let error = channel_error(reader, "SCardBeginTransaction", error);
                return answer.send(Err(error)).ok();
            }
        };
        answer.send(Ok(Vec::new())).ok()?;
        loop {
            match asked.recv().ok()? {
                CardRequest::Begin => answer.send(Ok(Vec::new())).ok()?,
                CardRequest::Transmit(command) => {
                    let response = self
                        .buffer
                        .transmit(reader, |to| transaction.transmit(&command, to));
                    answer.send(response).ok()?;
                }
                CardRequest::End => break,
            }
        }
        let ended = match transaction.end(Disposition::LeaveCard) {
            Ok(()) => Ok(Vec::new()),
            Err((_, error)) => Err(channel_error(reader, "SCardEndTransaction", error)),
        };
        answer.send(ended).ok()
    }
}

/// The buffer for responses: long enough for any, and wiped after each.
struct ResponseBuffer(Vec<u8>);

impl ResponseBuffer {
    fn new() -> Self {
        Self(vec![0; MAX_BUFFER_SIZE_EXTENDED])
    }

    fn transmit(
        &mut self,
        reader: &str,
        send: impl FnOnce(&mut [u8]) -> Result<&[u8], Error>,
    ) -> CardReply {
        let response = send(&mut self.0).map(<[u8]>::to_vec);
        let used = response.as_ref().map_or(0, Vec::len);
        self.0[..used].zeroize();
        response.map_err(|error| channel_error(reader, "SCardTransmit", error))
    }
}
