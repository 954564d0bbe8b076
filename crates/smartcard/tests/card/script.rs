use std::collections::VecDeque;

use hsmux_smartcard::{Card, CardChannel, ChannelError};

/// A card that expects these commands and gives these answers, in hexadecimal with spaces at will.
pub struct Script(VecDeque<(Vec<u8>, Vec<u8>)>);

pub fn card(script: &[(&str, &str)]) -> Card<Script> {
    let steps = script
        .iter()
        .map(|(command, answer)| (hex(command), hex(answer)));
    Card::new(Script(steps.collect()))
}

pub fn hex(text: &str) -> Vec<u8> {
    hex::decode(text.replace(' ', "")).unwrap()
}

/// Nothing of the script is left.
pub fn done(card: Card<Script>) {
    let left = card.into_channel().0;
    assert!(left.is_empty(), "never sent: {left:02X?}");
}

impl CardChannel for Script {
    fn transmit(&mut self, command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        let (expected, answer) = self.0.pop_front().expect("one command too many");
        assert_eq!(hex::encode(command), hex::encode(expected));
        Ok(answer)
    }

    fn name(&self) -> &'static str {
        "script"
    }
}

/// A card that always answers the same.
pub struct Parrot(pub Vec<u8>);

impl CardChannel for Parrot {
    fn transmit(&mut self, _command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        Ok(self.0.clone())
    }

    fn name(&self) -> &'static str {
        "parrot"
    }
}
