use std::fmt;

/// The status word of a response (ISO/IEC 7816-4, section 5.6), with what a SmartCard-HSM means by it.
///
/// Shown with `{}` it says what it means and what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StatusWord(pub u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $meaning:literal;)*) => {
        impl StatusWord {
            $($(#[$doc])* pub const $name: Self = Self($word);)*

            fn meaning(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($meaning),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Done.
    OK = 0x9000, "done";
    /// READ BINARY reached the end of the file: the data are complete.
    END_OF_FILE = 0x6282, "the end of the file came before the length that was asked for";
    /// Authentication failed, without a counter.
    AUTHENTICATION_FAILED = 0x6300, "authentication failed: check the PIN before another try";
    /// Wrong, and no tries are left.
    NO_TRIES_LEFT = 0x63C0, "wrong PIN, and no try is left: unblock it with the SO-PIN (hsmux card pin unblock)";
    /// The card failed inside.
    EXECUTION_ERROR = 0x6400, "the card failed in the command: try once more, then look at the card";
    /// Persistent memory could not be written.
    MEMORY_FAILURE = 0x6581, "the card could not write its memory: it may be worn out or full";
    /// Wrong length of data or of the answer.
    WRONG_LENGTH = 0x6700, "wrong length: the card does not take data of this size with this command";
    /// Command chaining is not supported.
    CHAINING_NOT_SUPPORTED = 0x6884, "the card does not take a command in parts";
    /// Not logged in.
    NOT_LOGGED_IN = 0x6982, "not logged in, or not allowed: verify the PIN first; another program may have selected the application, which logs everybody out";
    /// The PIN is blocked.
    PIN_BLOCKED = 0x6983, "the PIN is blocked: unblock it with the SO-PIN (hsmux card pin unblock); a blocked SO-PIN cannot be unblocked";
    /// A transport PIN that was never changed, or the use counter of a key has run out.
    REFERENCE_UNUSABLE = 0x6984, "the PIN is still the transport PIN, which only allows its change (hsmux card pin change); or the use counter of this key has run out";
    /// Conditions of use are not satisfied; after INITIALIZE DEVICE: a wrong SO-PIN.
    CONDITIONS_NOT_SATISFIED = 0x6985, "conditions of use are not satisfied: a wrong SO-PIN at initialisation, a card that is not initialised, or a DKEK that is not complete (hsmux card list)";
    /// A secure messaging object is wrong.
    WRONG_SECURE_MESSAGING = 0x6988, "wrong secure messaging data";
    /// The data are wrong; after UNWRAP KEY: another DKEK, or a damaged blob.
    WRONG_DATA = 0x6A80, "wrong data: for a wrapped key, the card has another DKEK or the blob is damaged (compare key check values: hsmux card list); for a PIN, its length";
    /// The card does not have this function.
    FUNCTION_NOT_SUPPORTED = 0x6A81, "the card does not have this function, or this key is not allowed to do it";
    /// No such file or key.
    FILE_NOT_FOUND = 0x6A82, "no such file or key on the card";
    /// The card is full.
    NOT_ENOUGH_MEMORY = 0x6A84, "the card is full: delete keys or certificates that are not needed";
    /// Lc does not fit the TLVs.
    WRONG_TLV_LENGTH = 0x6A85, "the lengths inside of the command data contradict each other";
    /// P1 or P2 are wrong.
    WRONG_PARAMETERS = 0x6A86, "wrong parameters: this version of the card does not know this form of the command, key or algorithm";
    /// A PIN or key reference is not known.
    REFERENCE_NOT_FOUND = 0x6A88, "no such PIN, or the card was never initialised (hsmux card init)";
    /// The key id is taken.
    FILE_EXISTS = 0x6A89, "a key or file with this id exists already: take another id, or delete it first";
    /// An offset outside of the file.
    WRONG_OFFSET = 0x6B00, "an offset beyond the end of the file";
    /// The instruction is not known; for DKEK commands: initialised without DKEK support.
    INSTRUCTION_NOT_SUPPORTED = 0x6D00, "the card does not know this command, or was initialised without DKEK (hsmux card init --dkek-shares)";
    /// The class is not known.
    CLASS_NOT_SUPPORTED = 0x6E00, "not a command of this application: is it a SmartCard-HSM?";
    /// No diagnosis.
    UNKNOWN_ERROR = 0x6F00, "the card failed without saying why: try once more, then pull and plug it";
}

impl StatusWord {
    /// `63Cx`: a wrong PIN (or, when only asked, none given), `tries` left.
    pub const fn tries(tries: u8) -> Self {
        Self(0x63C0 | (tries & 0xF) as u16)
    }

    /// `61xx`: `more` bytes wait for GET RESPONSE, 0 for 256 or more.
    pub const fn more_data(more: u8) -> Self {
        Self(0x6100 | more as u16)
    }

    /// `6Cxx`: the command is to be repeated with this Le, 0 for 256.
    pub const fn wrong_le(le: u8) -> Self {
        Self(0x6C00 | le as u16)
    }

    /// Did the command succeed?
    pub const fn is_ok(self) -> bool {
        self.0 == Self::OK.0
    }

    /// How many tries a PIN has left, where the status says so: `63Cx`, and 0 if it is blocked.
    pub const fn tries_left(self) -> Option<u8> {
        match self.0 {
            0x63C0..=0x63CF => Some((self.0 & 0xF) as u8),
            0x6983 => Some(0),
            _ => None,
        }
    }

    /// How many bytes wait for GET RESPONSE.
    pub const fn bytes_waiting(self) -> Option<usize> {
        if self.0 >> 8 == 0x61 {
            Some(low_or_256(self.0))
        } else {
            None
        }
    }

    /// The length with which the card wants the command repeated.
    pub const fn right_le(self) -> Option<usize> {
        if self.0 >> 8 == 0x6C {
            Some(low_or_256(self.0))
        } else {
            None
        }
    }
}

const fn low_or_256(word: u16) -> usize {
    match word & 0xFF {
        0 => 256,
        low => low as usize,
    }
}

impl fmt::Display for StatusWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.0;
        match (self.meaning(), self.tries_left()) {
            (Some(meaning), _) => write!(f, "{meaning} ({word:04X})"),
            (None, Some(1)) => write!(
                f,
                "wrong PIN, 1 try left: a wrong one now blocks it ({word:04X})"
            ),
            (None, Some(tries)) => write!(f, "wrong PIN, {tries} tries left ({word:04X})"),
            (None, None) => write!(
                f,
                "status {word:04X}, which a SmartCard-HSM does not document (ISO 7816-4, section 5.6)"
            ),
        }
    }
}

impl fmt::Debug for StatusWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:04X})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_it_means() {
        let wrong = StatusWord::tries(2);
        assert_eq!(wrong.tries_left(), Some(2));
        assert_eq!(wrong.to_string(), "wrong PIN, 2 tries left (63C2)");
        assert_eq!(StatusWord::PIN_BLOCKED.tries_left(), Some(0));
        assert!(StatusWord::PIN_BLOCKED.to_string().contains("SO-PIN"));
        assert!(StatusWord(0x6F42).to_string().contains("6F42"));
        assert_eq!(StatusWord::OK.tries_left(), None);
    }

    #[test]
    fn lengths_in_a_status() {
        assert_eq!(StatusWord(0x6110).bytes_waiting(), Some(16));
        assert_eq!(StatusWord(0x6100).bytes_waiting(), Some(256));
        assert_eq!(StatusWord(0x6C20).right_le(), Some(32));
        assert_eq!(StatusWord::OK.right_le(), None);
    }
}
