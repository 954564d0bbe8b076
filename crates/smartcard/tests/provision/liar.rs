//! A card that lies now and then: whatever it says, the host neither panics nor goes on without an end, and the honest
//! card beside it can be finished.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use hsmux_smartcard::dkek::DkekShare;
use hsmux_smartcard::provision::{
    Access, Backup, clone, domain, initialise, package, pins, report,
};
use hsmux_smartcard::{Card, CardChannel, CardToken, ChannelError, KeyReference};
use hsmux_token::{Class, Mechanism, ObjectRef, Operation, Token, Verb, ck};
use hsmux_vcard::MemoryChannel;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::rig::{PIN, Plugged, SO_PIN, how, secret, shares, so_pin};

/// More commands than everything below takes, with 512 parts of an answer each.
const WITHOUT_END: usize = 500_000;

/// A change of a true answer.
#[derive(Clone, Debug)]
enum Lie {
    /// Some bits are others.
    Flipped(Index, u8),
    /// It ends early.
    Cut(Index),
    /// It goes on before its status.
    Longer(Vec<u8>),
    /// Its status is another.
    Status([u8; 2]),
    /// It is the one before.
    Again,
    /// It is something else.
    Other(Vec<u8>),
    /// There is more of it, and more, and more.
    Endless(Vec<u8>),
    /// The answer is dropped.
    Gone,
}

fn lie() -> impl Strategy<Value = Lie> {
    let status = prop_oneof![
        Just([0x90, 0x00]),
        Just([0x62, 0x82]),
        Just([0x67, 0x00]),
        Just([0x69, 0x82]),
        Just([0x6A, 0x82]),
        any::<u8>().prop_map(|low| [0x61, low]),
        any::<u8>().prop_map(|low| [0x63, low]),
        any::<u8>().prop_map(|low| [0x6C, low]),
        any::<[u8; 2]>(),
    ];
    prop_oneof![
        4 => (any::<Index>(), 1..=u8::MAX).prop_map(|(at, bits)| Lie::Flipped(at, bits)),
        2 => any::<Index>().prop_map(Lie::Cut),
        2 => vec(any::<u8>(), 1..40).prop_map(Lie::Longer),
        4 => status.prop_map(Lie::Status),
        1 => Just(Lie::Again),
        2 => vec(any::<u8>(), 0..300).prop_map(Lie::Other),
        1 => vec(any::<u8>(), 0..4).prop_map(Lie::Endless),
        1 => Just(Lie::Gone),
    ]
}

/// Lies, each after so many true answers.
type Script = VecDeque<(usize, Lie)>;

/// All ways to one lying card.
#[derive(Clone)]
struct Mood(Arc<Mutex<Inner>>);

struct Inner {
    script: Script,
    last: Vec<u8>,
    answers: usize,
}

impl Mood {
    fn new(script: Script) -> Self {
        let (last, answers) = (Vec::new(), 0);
        Self(Arc::new(Mutex::new(Inner {
            script,
            last,
            answers,
        })))
    }

    fn tell(&self, truth: Vec<u8>) -> Result<Vec<u8>, ChannelError> {
        let mut inner = self.0.lock().unwrap();
        inner.answers += 1;
        assert!(
            inner.answers < WITHOUT_END,
            "the host does not come to an end"
        );
        let before = std::mem::replace(&mut inner.last, truth.clone());
        let lie = match inner.script.front_mut() {
            None => return Ok(truth),
            Some((0, Lie::Endless(data))) => {
                let answer = [&data[..], &[0x61, 0x00]].concat();
                // Until the host gives up, which it does within one command.
                if inner.answers.is_multiple_of(1000) {
                    inner.script.pop_front();
                }
                return Ok(answer);
            }
            Some((0, _)) => inner.script.pop_front().unwrap().1,
            Some((wait, _)) => {
                *wait -= 1;
                return Ok(truth);
            }
        };
        distort(truth, before, lie)
    }
}

fn distort(mut answer: Vec<u8>, before: Vec<u8>, lie: Lie) -> Result<Vec<u8>, ChannelError> {
    match lie {
        Lie::Flipped(at, bits) => {
            let at = at.index(answer.len());
            answer[at] ^= bits;
        }
        Lie::Cut(at) => answer.truncate(at.index(answer.len())),
        Lie::Longer(more) => {
            let status = answer.split_off(answer.len() - 2);
            answer.extend(more);
            answer.extend(status);
        }
        Lie::Status(status) => {
            answer.truncate(answer.len() - 2);
            answer.extend(status);
        }
        Lie::Again => answer = before,
        Lie::Other(bytes) | Lie::Endless(bytes) => answer = bytes,
        Lie::Gone => {
            let reader = "liar".to_owned();
            return Err(ChannelError::Removed { reader });
        }
    }
    Ok(answer)
}

/// One of several ways to a card that lies.
struct Liar {
    truth: MemoryChannel,
    mood: Mood,
}

/// A card that never does, reached by a channel of the same type.
fn honest(card: &Plugged) -> Access<Liar> {
    let channel = Liar {
        truth: card.channel(),
        mood: Mood::new(Script::new()),
    };
    card.access_by(channel, PIN)
}

impl CardChannel for Liar {
    fn transmit(&mut self, command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        let truth = self.truth.transmit(command)?;
        self.mood.tell(truth)
    }

    fn begin(&mut self) -> Result<(), ChannelError> {
        self.truth.begin()
    }

    fn end(&mut self) -> Result<(), ChannelError> {
        self.truth.end()
    }

    fn name(&self) -> &'static str {
        "liar"
    }
}

/// The shares of all cards, and what the first of them holds: keys of each kind, certificates, data.
static CONTENT: LazyLock<(Vec<DkekShare>, Backup)> = LazyLock::new(|| {
    let shares = shares();
    let card = Plugged::ready("LIAR00000", &shares);
    card.fill();
    let backup = Backup::take(&mut card.access(), true, &|_| {}).unwrap();
    (shares, backup)
});

/// A filled card and a way to it for each step, which lies when its time has come.
struct Stage {
    card: Plugged,
    mood: Mood,
}

impl Stage {
    fn new(script: Script) -> Self {
        let (shares, backup) = &*CONTENT;
        let card = Plugged::ready("LIAR00001", shares);
        let restored = backup.restore(&mut card.access(), &|_| {}).unwrap();
        assert!(restored.failures.is_empty(), "{:?}", restored.failures);
        Self {
            card,
            mood: Mood::new(script),
        }
    }

    fn channel(&self) -> Liar {
        Liar {
            truth: self.card.channel(),
            mood: self.mood.clone(),
        }
    }

    fn access(&self) -> Access<Liar> {
        self.card.access_by(self.channel(), PIN)
    }

    fn card(&self) -> Card<Liar> {
        Card::new(self.channel())
    }

    /// As a token: its keys are read, and each signs.
    fn as_a_token(&self) {
        let Ok(token) = CardToken::open(self.card(), &secret(PIN)) else {
            return;
        };
        for object in &token.objects().unwrap().objects {
            for mechanism in [ck::CKM_ECDSA, ck::CKM_SHA256_RSA_PKCS] {
                let operation = Operation::Use {
                    verb: Verb::Sign,
                    key: ObjectRef::Token(object.id),
                    mechanism: Mechanism::plain(mechanism),
                    data: vec![7; 32].into(),
                };
                if object.id.class == Class::PRIVATE_KEY {
                    let deadline = Instant::now() + Duration::from_secs(60);
                    let _ = token.execute(&operation, deadline);
                }
            }
        }
    }

    /// Everything that is only read, then everything that changes the card, then its end.
    fn whole_session(&self, other: &Plugged) {
        let (shares, backup) = &*CONTENT;
        let _ = report::report(&mut self.card(), false);
        let _ = clone::check(&mut honest(other), &mut [self.access()]);
        let _ = Backup::take(&mut self.access(), true, &|_| {});
        for number in [1, 2, 7] {
            let _ = package::wrap(&mut self.access(), KeyReference(number));
        }
        self.as_a_token();
        let _ = pins::change(
            &mut self.card(),
            "liar",
            &secret(PIN),
            &secret(b"123456"),
            false,
        );
        let new = secret(PIN);
        let _ = pins::unblock(&mut self.card(), "liar", &so_pin(SO_PIN), Some(&new), false);
        let erased = how(Some(shares.len() as u8));
        let _ = initialise::initialise(&mut self.card(), "liar", &erased, "again", false);
        for share in shares {
            let _ = domain::import_share(&mut self.card(), "liar", share);
        }
        for key in &backup.keys {
            let _ = package::unwrap(&mut self.access(), key);
        }
        let _ = backup.restore(&mut self.access(), &|_| {});
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_session_with_a_liar_comes_to_its_end(script in vec((0..120_usize, lie()), 1..10)) {
        let other = Plugged::ready("LIAR00002", &CONTENT.0);
        Stage::new(script.into()).whole_session(&other);
    }

    /// The output of a lying card never counts as a key, and blocks no later clone.
    #[test]
    fn a_clone_of_a_liar_can_be_finished_by_an_honest_card(script in vec((0..40_usize, lie()), 1..5)) {
        let stage = Stage::new(script.into());
        let target = Plugged::ready("LIAR00002", &CONTENT.0);
        let _ = clone::run(&mut stage.access(), &mut [honest(&target)], &|_| {});
        let cloned = clone::run(&mut stage.card.access(), &mut [target.access()], &|_| {}).unwrap();
        let gain = &cloned.targets[0];
        let keys = gain.copied.len() + gain.completed.len() + gain.present.len();
        prop_assert_eq!(keys, 3, "{:?}", cloned);
    }
}
