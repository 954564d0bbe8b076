//! A SmartCard-HSM at the end of a channel: commands out, answers in.

use zeroize::Zeroizing;

use crate::apdu::{CommandApdu, ResponseApdu, StatusWord, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;

/// A SmartCard-HSM. Its commands are methods, one file each in `commands`.
///
/// Nothing is remembered of the card: what another program does to it between two commands cannot make
/// an answer wrong. Commands that belong together go into [`Card::exclusively`].
pub struct Card<C> {
    channel: C,
    /// The card, or its reader, does not take extended lengths: commands go in parts.
    short_only: bool,
    /// This is within [`Card::exclusively`].
    exclusive: bool,
    /// A PIN was verified: the login ends with the work.
    logged_in: bool,
}

/// A card that hands out a longer answer, in more parts, than any command has is not asked further.
const MAX_PARTS: usize = 512;
/// As long as an answer in one part can be.
const MAX_ANSWER: usize = 65_536;
/// The bit of the class that says: more of this command follows (ISO/IEC 7816-4, section 5.4.1).
const CHAINED: u8 = 0x10;
const SHORT_DATA: usize = 255;
const SHORT_NE: usize = 256;
/// Class, instruction, parameters, Lc and Le, the latter two extended.
const OVERHEAD: usize = 4 + 3 + 2;

impl<C: CardChannel> Card<C> {
    /// Nothing is sent yet.
    pub fn new(channel: C) -> Self {
        Self {
            channel,
            short_only: false,
            exclusive: false,
            logged_in: false,
        }
    }

    /// The card's name in messages: the reader's name.
    pub fn name(&self) -> &str {
        self.channel.name()
    }

    /// Gives the channel back.
    pub fn into_channel(self) -> C {
        self.channel
    }

    /// Runs `work` while no other program can use the card (a PC/SC transaction).
    ///
    /// Another program may have had the card before: `work` begins with [`select`](Self::select), and
    /// with [`verify`](Self::verify) if it needs a login. The login ends with the work: whoever has the card next
    /// is not logged in by us. Within such work, more of it belongs to it.
    pub fn exclusively<T, E: From<CardError>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.exclusive {
            return work(self);
        }
        self.channel.begin().map_err(CardError::from)?;
        self.exclusive = true;
        let outcome = work(self);
        self.exclusive = false;
        if std::mem::take(&mut self.logged_in) {
            // If the card does not answer any more, the login has ended anyway.
            let _ = self.select();
        }
        let ended = self.channel.end().map_err(CardError::from);
        let value = outcome?;
        ended?;
        Ok(value)
    }

    /// Sends a command and returns the whole answer, whatever its status. Parts of a long answer are fetched
    /// (`61xx`), a wrong length is corrected (`6Cxx`).
    ///
    /// `name` is the command's name in the specification, for messages.
    pub fn transmit(
        &mut self,
        name: &'static str,
        command: CommandApdu,
    ) -> Result<ResponseApdu, CardError> {
        let extended = command.data.len() > SHORT_DATA || command.ne > Some(SHORT_NE);
        if extended {
            self.transmit_extended(name, &command)
        } else {
            self.complete(name, command)
        }
    }

    fn transmit_extended(
        &mut self,
        name: &'static str,
        command: &CommandApdu,
    ) -> Result<ResponseApdu, CardError> {
        if self.short_only {
            return self.transmit_in_parts(name, command);
        }
        let response = self.complete(name, command.clone())?;
        if response.status != StatusWord::WRONG_LENGTH {
            return Ok(response);
        }
        // Nothing was done. Either the data are wrong, or the card or its reader is an old one.
        let in_parts = self.transmit_in_parts(name, command)?;
        let understood = ![
            StatusWord::WRONG_LENGTH,
            StatusWord::CHAINING_NOT_SUPPORTED,
            StatusWord::CLASS_NOT_SUPPORTED,
        ]
        .contains(&in_parts.status);
        if !understood {
            return Ok(response);
        }
        self.short_only = true;
        Ok(in_parts)
    }

    /// Sends a command and returns the answer's data; any status but success is an error.
    pub(crate) fn run(
        &mut self,
        name: &'static str,
        command: CommandApdu,
    ) -> Result<Zeroizing<Vec<u8>>, CardError> {
        let response = self.transmit(name, command)?;
        if response.status.is_ok() {
            Ok(response.data)
        } else {
            Err(self.refused(name, response.status))
        }
    }

    /// A login has begun, or ended.
    pub(crate) fn note_login(&mut self, logged_in: bool) {
        self.logged_in = logged_in;
    }

    pub(crate) fn refused(&self, command: &'static str, status: StatusWord) -> CardError {
        CardError::Refused {
            card: self.name().to_owned(),
            command,
            status,
        }
    }

    pub(crate) fn bad_answer(
        &self,
        command: &'static str,
        what: impl std::fmt::Display,
    ) -> CardError {
        CardError::BadAnswer {
            card: self.name().to_owned(),
            command,
            what: what.to_string(),
        }
    }

    /// How many data bytes one command can carry.
    pub(crate) fn max_data(&self) -> usize {
        if self.short_only {
            SHORT_DATA
        } else {
            self.channel
                .max_command()
                .saturating_sub(OVERHEAD)
                .max(SHORT_DATA)
        }
    }

    /// How many bytes one answer may be asked for.
    pub(crate) fn max_answer(&self) -> usize {
        if self.short_only {
            SHORT_NE
        } else {
            MAX_ANSWER
        }
    }

    /// Command chaining (ISO/IEC 7816-4, section 5.3.3), and an answer of at most 256 bytes at a time.
    fn transmit_in_parts(
        &mut self,
        name: &'static str,
        command: &CommandApdu,
    ) -> Result<ResponseApdu, CardError> {
        let mut parts = command.data.chunks(SHORT_DATA).peekable();
        let mut part = parts.next().unwrap_or_default();
        while parts.peek().is_some() {
            let CommandApdu {
                cla, ins, p1, p2, ..
            } = *command;
            let chained = CommandApdu::new(cla | CHAINED, ins, p1, p2).with_data(part);
            let response = self.once(name, &chained)?;
            if !response.status.is_ok() {
                return Ok(response);
            }
            part = parts.next().unwrap_or_default();
        }
        let mut last =
            CommandApdu::new(command.cla, command.ins, command.p1, command.p2).with_data(part);
        last.ne = command.ne.map(|ne| ne.min(SHORT_NE));
        self.complete(name, last)
    }

    /// One command, with the lengths that the card wants, and all parts of its answer.
    fn complete(
        &mut self,
        name: &'static str,
        mut command: CommandApdu,
    ) -> Result<ResponseApdu, CardError> {
        let mut response = self.once(name, &command)?;
        if let Some(le) = response.status.right_le() {
            command.ne = Some(le);
            response = self.once(name, &command)?;
        }
        let mut parts = 0;
        while let Some(waiting) = response.status.bytes_waiting() {
            parts += 1;
            if parts > MAX_PARTS || response.data.len() > MAX_ANSWER {
                return Err(self.bad_answer(name, "61xx without an end"));
            }
            let get = CommandApdu::new(0x00, instruction::GET_RESPONSE, 0, 0).expecting(waiting);
            let next = self.once(name, &get)?;
            let mut whole = Vec::with_capacity(response.data.len() + next.data.len());
            whole.extend_from_slice(&response.data);
            whole.extend_from_slice(&next.data);
            response = ResponseApdu {
                data: Zeroizing::new(whole),
                status: next.status,
            };
        }
        Ok(response)
    }

    fn once(
        &mut self,
        name: &'static str,
        command: &CommandApdu,
    ) -> Result<ResponseApdu, CardError> {
        let apdu = command
            .encode()
            .map_err(|error| CardError::unwritable(name, &error))?;
        let answer = self.channel.transmit(&apdu)?;
        ResponseApdu::parse(answer).map_err(|error| self.bad_answer(name, error))
    }
}
