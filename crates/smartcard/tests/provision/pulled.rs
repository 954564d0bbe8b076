//! A card that is pulled in the middle of a clone, at every step.

use hsmux_smartcard::provision::ProvisionError;
use hsmux_smartcard::provision::clone::run;
use hsmux_smartcard::{CardChannel, CardError, ChannelError, FileKind};
use hsmux_vcard::{Control, MemoryChannel};

use crate::rig::{PIN, Plugged, shares};

/// A way to a card that is pulled at one command: before it, or when it is done but not answered.
struct Pulling {
    inner: MemoryChannel,
    control: Control,
    /// Commands until then; nothing: never.
    left: Option<usize>,
    done: bool,
}

impl CardChannel for Pulling {
    fn transmit(&mut self, command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        let now = self.left == Some(0);
        self.left = self.left.and_then(|left| left.checked_sub(1));
        if now && self.done {
            self.inner.transmit(command)?;
        }
        if now {
            self.control.unplug();
        }
        self.inner.transmit(command)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

fn pulling(card: &Plugged, left: Option<usize>, done: bool) -> Pulling {
    Pulling {
        inner: card.channel(),
        control: card.control(),
        left,
        done,
    }
}

/// Every description on the card is one of a key that works; programs see a key by its description.
pub fn shows_no_half_key(card: &Plugged) {
    let files: Vec<_> = card.files().into_iter().map(|(file, _)| file).collect();
    for file in files
        .iter()
        .filter(|file| file.kind() == Some(FileKind::KeyDescription))
    {
        for kind in [FileKind::Key, FileKind::Certificate] {
            assert!(files.contains(&kind.file(file.number())), "{files:?}");
        }
    }
}

fn pulled_at_every_step(done: bool) {
    let shares = shares();
    let source = Plugged::ready("PLD000000", &shares);
    source.ec_key(1, "P-256");
    source.rsa_key(2);
    for step in 0.. {
        let target = Plugged::ready("PLD000001", &shares);
        let mut from = source.access_by(pulling(&source, None, false), PIN);
        let mut to = [target.access_by(pulling(&target, Some(step), done), PIN)];
        let cloned = run(&mut from, &mut to, &|_| {}).unwrap();
        if target.control().plugged() {
            assert!(step > 15, "{step}: too few commands to be true");
            assert!(cloned.is_whole(), "{cloned:?}");
            return;
        }
        // The very last command logs out; what was done before it holds.
        if let Some(failure) = cloned.targets[0].failures.first() {
            let gone = ProvisionError::Card(CardError::Channel(ChannelError::Removed {
                reader: target.channel().name().to_owned(),
            }));
            assert_eq!(failure.to_string(), gone.to_string(), "step {step}");
        }
        target.control().plug();
        shows_no_half_key(&target);
        let again = run(&mut source.access(), &mut [target.access()], &|_| {}).unwrap();
        assert!(again.is_whole(), "step {step}: {again:?}");
        assert_eq!(target.files(), source.files(), "step {step}");
    }
}

#[test]
fn pulled_before_a_command() {
    pulled_at_every_step(false);
}

#[test]
fn pulled_before_an_answer() {
    pulled_at_every_step(true);
}

#[test]
fn a_source_that_is_pulled_ends_the_clone() {
    let shares = shares();
    let source = Plugged::ready("PLD000010", &shares);
    source.ec_key(1, "P-256");
    source.ec_key(2, "P-256");
    let target = Plugged::ready("PLD000011", &shares);
    for step in 0.. {
        let mut from = source.access_by(pulling(&source, Some(step), false), PIN);
        let mut to = [target.access_by(pulling(&target, None, false), PIN)];
        let outcome = run(&mut from, &mut to, &|_| {});
        if source.control().plugged() {
            assert!(outcome.unwrap().is_whole());
            break;
        }
        source.control().plug();
        shows_no_half_key(&target);
    }
    assert_eq!(target.files(), source.files());
}
