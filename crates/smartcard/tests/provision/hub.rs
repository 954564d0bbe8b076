//! Cards behind a network USB hub, or usbip: every command takes longer, and the hub drops off with all of
//! them, in the middle of whatever they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hsmux_smartcard::pkcs15::KeyFamily;
use hsmux_smartcard::provision::clone::{check, run};
use hsmux_smartcard::provision::report::report;
use hsmux_smartcard::provision::{Access, ProvisionError};
use hsmux_smartcard::{
    Card, CardChannel, CardError, ChannelError, KeyPair, KeyPairKind, KeyReference, SignAlgorithm,
};
use hsmux_vcard::MemoryChannel;
use parking_lot::Mutex;

use crate::pulled::shows_no_half_key;
use crate::rig::{PIN, Plugged, shares};

/// The hub: what is common to the ways through it.
#[derive(Default)]
struct Hub {
    /// How much longer a command takes.
    latency: Duration,
    /// Commands until it drops off; nothing: never.
    left: Mutex<Option<usize>>,
    /// Readers that were plugged into it, each with its card, which has its power from it.
    cards: Vec<hsmux_vcard::Control>,
}

/// The way to one card.
struct HubChannel {
    hub: Arc<Hub>,
    inner: MemoryChannel,
    commands: Arc<AtomicUsize>,
}

impl Hub {
    fn new(latency: Duration, left: Option<usize>, cards: &[&Plugged]) -> Arc<Self> {
        Arc::new(Self {
            latency,
            left: Mutex::new(left),
            cards: cards.iter().map(|card| card.control()).collect(),
        })
    }

    fn access(self: &Arc<Self>, card: &Plugged) -> (Access<HubChannel>, Arc<AtomicUsize>) {
        let commands = Arc::default();
        let channel = HubChannel {
            hub: Arc::clone(self),
            inner: card.channel(),
            commands: Arc::clone(&commands),
        };
        (card.access_by(channel, PIN), commands)
    }

    fn is_there(&self) -> bool {
        *self.left.lock() != Some(0)
    }

    /// Every card loses its power with it.
    fn count(&self) {
        let mut left = self.left.lock();
        *left = left.map(|left| left.saturating_sub(1));
        if *left == Some(0) {
            self.cards.iter().for_each(hsmux_vcard::Control::unplug);
        }
    }

    fn is_back(&self) {
        *self.left.lock() = None;
        self.cards.iter().for_each(hsmux_vcard::Control::plug);
    }
}

impl HubChannel {
    /// PC/SC's error for a reader that is gone.
    fn there(&self) -> Result<(), ChannelError> {
        let reader = self.inner.name().to_owned();
        let there = self.hub.is_there().then_some(());
        there.ok_or(ChannelError::NoReader { reader })
    }
}

impl CardChannel for HubChannel {
    fn transmit(&mut self, command: &[u8]) -> Result<Vec<u8>, ChannelError> {
        self.there()?;
        self.commands.fetch_add(1, Ordering::Relaxed);
        sleep(self.hub.latency);
        let answer = self.inner.transmit(command);
        self.hub.count();
        // An answer that was on its way when the hub dropped off does not arrive.
        self.there()?;
        answer
    }

    fn begin(&mut self) -> Result<(), ChannelError> {
        self.there()?;
        self.inner.begin()
    }

    fn end(&mut self) -> Result<(), ChannelError> {
        self.inner.end()?;
        self.there()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

fn is_gone(error: &ProvisionError) -> bool {
    let channel = matches!(
        error,
        ProvisionError::Card(CardError::Channel(ChannelError::NoReader { .. }))
    );
    channel && error.to_string().contains("there is no reader")
}

/// At every step of a clone to two cards.
#[test]
fn a_hub_that_drops_off_leaves_no_half_key_and_the_next_run_finishes() {
    let shares = shares();
    let source = Plugged::ready("HUB000000", &shares);
    source.ec_key(1, "P-256");
    source.ec_key(2, "P-256");
    for step in 1.. {
        let targets = [1, 2].map(|n| Plugged::ready(&format!("HUB00000{n}"), &shares));
        let hub = Hub::new(
            Duration::ZERO,
            Some(step),
            &[&source, &targets[0], &targets[1]],
        );
        let clone = || {
            let (mut from, _) = hub.access(&source);
            let mut to = [hub.access(&targets[0]).0, hub.access(&targets[1]).0];
            run(&mut from, &mut to, &|_| {})
        };
        let outcome = clone();
        if hub.is_there() {
            assert!(step > 40, "{step}: too few commands to be true");
            assert!(outcome.unwrap().is_whole());
            return;
        }
        match &outcome {
            Err(error) => assert!(is_gone(error), "step {step}: {error}"),
            Ok(cloned) => {
                let of_targets = cloned.targets.iter().flat_map(|target| &target.failures);
                let mut failures = cloned.failures.iter().chain(of_targets);
                assert!(failures.all(is_gone), "step {step}: {cloned:?}");
            }
        }
        hub.is_back();
        for target in &targets {
            shows_no_half_key(target);
        }
        let again = clone().unwrap();
        assert!(again.is_whole(), "step {step}: {again:?}");
        for target in &targets {
            assert_eq!(target.files(), source.files(), "step {step}");
        }
    }
}

/// No time-out here is shorter than a slow hub; each command waits for its answer.
#[test]
fn a_slow_hub_takes_its_time_for_each_command() {
    let latency = Duration::from_millis(5);
    let shares = shares();
    let source = Plugged::ready("HUB000010", &shares);
    source.fill();
    let targets = [1, 2].map(|n| Plugged::ready(&format!("HUB00001{n}"), &shares));
    let hub = Hub::new(latency, None, &[]);
    let (mut from, _) = hub.access(&source);
    let (one, of_one) = hub.access(&targets[0]);
    let (two, of_two) = hub.access(&targets[1]);
    let mut to = [one, two];
    let verdicts = check(&mut from, &mut to).unwrap();
    assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
    let before = of_one.load(Ordering::Relaxed);
    let start = Instant::now();
    let cloned = run(&mut from, &mut to, &|_| {}).unwrap();
    let took = start.elapsed();
    assert!(cloned.is_whole(), "{cloned:?}");
    let commands = of_one.load(Ordering::Relaxed);
    assert_eq!(commands, of_two.load(Ordering::Relaxed));
    assert!(took >= latency * u32::try_from(commands - before).unwrap());
    for target in &targets {
        assert_eq!(target.files(), source.files());
    }
}

/// Commands that are sent to a card for something.
fn commands<T>(card: &Plugged, work: impl FnOnce(&mut Access<HubChannel>) -> T) -> usize {
    let hub = Hub::new(Duration::ZERO, None, &[]);
    let (mut access, commands) = hub.access(card);
    work(&mut access);
    commands.load(Ordering::Relaxed)
}

fn rsa_key(card: &Plugged, number: u8, bits: u16) {
    let key = KeyReference(number);
    card.logged_in(|open| {
        let kind = KeyPairKind::Rsa { bits };
        let request = open.generate_key_pair(key, &KeyPair::new(kind, &card.serial));
        open.keep_request(key, &request.unwrap()).unwrap();
        crate::rig::describe(open, key, KeyFamily::Rsa);
    });
}

/// Commands that a clone sends to source and target.
fn of_clone(source: &Plugged, target: &Plugged) -> [usize; 2] {
    let hub = Hub::new(Duration::ZERO, None, &[]);
    let (mut from, of_source) = hub.access(source);
    let (to, of_target) = hub.access(target);
    let mut to = [to];
    check(&mut from, &mut to).unwrap().remove(0).unwrap();
    let cloned = run(&mut from, &mut to, &|_| {}).unwrap();
    assert!(cloned.is_whole(), "{cloned:?}");
    [of_source, of_target].map(|commands| commands.load(Ordering::Relaxed))
}

/// The table of the guide, by which a latency becomes a time.
#[test]
fn the_guide_counts_the_commands() {
    let shares = shares();
    let ready = |serial| Plugged::ready(serial, &shares);
    let empty = of_clone(&ready("HUB000020"), &ready("HUB000021"));
    let [ec, aes, rsa] = [KeyFamily::Ec, KeyFamily::Aes, KeyFamily::Rsa].map(|family| {
        let source = ready("HUB000022");
        match family {
            KeyFamily::Ec => source.ec_key(1, "P-256"),
            KeyFamily::Aes => source.aes_key(1),
            KeyFamily::Rsa => rsa_key(&source, 1, 2048),
        }
        let [from, to] = of_clone(&source, &ready("HUB000023"));
        [from - empty[0], to - empty[1]]
    });
    let listed = |card: &Plugged| {
        commands(card, |access| {
            report(&mut access.card, false).unwrap();
        })
    };
    let card = ready("HUB000024");
    let bare = listed(&card);
    card.ec_key(1, "P-256");
    let one_key = listed(&card) - bare;
    let logged_in = |work: &dyn Fn(&mut Card<HubChannel>)| {
        commands(&card, |access| {
            let worked = access.logged_in(|open| {
                work(open);
                Ok(())
            });
            worked.unwrap();
        })
    };
    let login = logged_in(&|_| {});
    let sign = logged_in(&|open| {
        open.sign(KeyReference(1), SignAlgorithm::Ecdsa, &[7; 32])
            .unwrap();
    });

    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cards.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let rows = [
        format!("| a signature | {} |", sign - login),
        format!("| login and logout | {login} |"),
        format!("| `hsmux card list`, a card | {bare}, and {one_key} for each key |"),
        format!("| `hsmux card clone`, the source | {} |", empty[0]),
        format!("| `hsmux card clone`, each target | {} |", empty[1]),
        format!(
            "| each key on a curve: source, target | {}, {} |",
            ec[0], ec[1]
        ),
        format!("| each RSA key: source, target | {}, {} |", rsa[0], rsa[1]),
        format!("| each AES key: source, target | {}, {} |", aes[0], aes[1]),
    ];
    let missing: Vec<_> = rows.iter().filter(|row| !guide.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/cards.md lacks {missing:#?}");
}
