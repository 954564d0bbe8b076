//! Virtual cards in readers, through libpcsclite, pcscd and vpcd.
//!
//! libpcsclite reads the name of pcscd's socket from the environment, once: each test runs itself again
//! with that environment, and tells its parent what is to happen to the cards.

mod child;
mod descriptions;

use std::time::{Duration, Instant};

use child::{child, tell};
use hsmux_smartcard::commands::{Initialize, KeyPair, KeyPairKind};
use hsmux_smartcard::cvc::{Certificate, CvcRequest};
use hsmux_smartcard::pcsc::{CardState, CardTimeouts, Channel, ReaderWatch, readers};
use hsmux_smartcard::{
    Card, CardChannel, CardError, ChannelError, Curve, FileId, KeyReference, PinReference,
    PinStatus, SignAlgorithm, SoPin, ecdsa_fixed,
};
use hsmux_token::{Mechanism, Secret, ck};

const KEY: KeyReference = KeyReference(1);

fn names() -> Vec<String> {
    let readers = readers().unwrap();
    readers.into_iter().map(|reader| reader.name).collect()
}

fn card(reader: &str) -> Card<Channel> {
    Card::new(Channel::open(reader, CardTimeouts::default()).unwrap())
}

fn pin() -> Secret {
    Secret::new(b"648219".to_vec())
}

fn initialise(card: &mut Card<Channel>) {
    let how = Initialize {
        so_pin: SoPin::from_hex(b"3537363231383830").unwrap(),
        pin: pin(),
        retries: 3,
        dkek_shares: None,
        public_keys: None,
        allow_reset: true,
        transport_pin: false,
    };
    let work = |card: &mut Card<Channel>| {
        card.select()?;
        card.initialize(&how)
    };
    card.exclusively::<_, CardError>(work).unwrap();
}

/// Until this holds; the last answer if it never does.
fn until<T: std::fmt::Debug>(mut ask: impl FnMut() -> T, holds: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let answer = ask();
        if holds(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "still {answer:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_key_is_made_and_signs() {
    child("a_key_is_made_and_signs", 2, || {
        let found = readers().unwrap();
        assert_eq!(found.len(), 2);
        assert!(matches!(&found[0].card, CardState::Present { atr, .. } if atr[0] == 0x3B));
        let mut card = card(&found[0].name);
        initialise(&mut card);
        let work = |card: &mut Card<Channel>| {
            card.select()?;
            card.verify(&pin())?;
            let pair = KeyPair::new(KeyPairKind::Ec(&Curve::SECP256R1), "");
            let request = card.generate_key_pair(KEY, &pair)?;
            let signature = card.sign(KEY, SignAlgorithm::EcdsaSha256, b"hello")?;
            let certificates = card.read_file(FileId::DEVICE_CERTIFICATES)?;
            Ok::<_, CardError>((request, signature, certificates))
        };
        let (request, signature, certificates) = card.exclusively(work).unwrap();
        let request = CvcRequest::parse(&request).unwrap();
        request.verify_inner().unwrap();
        let certificates = Certificate::parse_all(&certificates).unwrap();
        request.verify_outer(&certificates[0]).unwrap();
        let key = request.certificate.public_key.to_public_key().unwrap();
        let signature = ecdsa_fixed(&signature, 32).unwrap();
        let mechanism = Mechanism::plain(ck::CKM_ECDSA_SHA256);
        key.verify(&mechanism, b"hello", &signature).unwrap();
        assert!(key.verify(&mechanism, b"hallo", &signature).is_err());
        // The login has ended with the work.
        let status = card.pin_status(PinReference::User).unwrap();
        assert_eq!(status, PinStatus::TriesLeft(3));
    });
}

#[test]
fn one_program_at_a_time() {
    child("one_program_at_a_time", 2, || {
        let names = names();
        let mut first = Channel::open(&names[0], CardTimeouts::default()).unwrap();
        let impatient = CardTimeouts {
            exclusive: Duration::from_millis(200),
            ..CardTimeouts::default()
        };
        let mut second = Channel::open(&names[0], impatient).unwrap();
        first.begin().unwrap();
        let error = second.begin().unwrap_err();
        assert!(matches!(error, ChannelError::TimedOut { .. }), "{error}");
        first.end().unwrap();
        until(|| second.begin(), Result::is_ok).unwrap();
        second.end().unwrap();
    });
}

#[test]
fn a_card_that_was_pulled_is_found_again() {
    child("a_card_that_was_pulled_is_found_again", 2, || {
        let names = names();
        let mut card = card(&names[0]);
        let mut watch = ReaderWatch::new().unwrap();
        watch.wait(Duration::ZERO).unwrap();
        card.exclusively(Card::select).unwrap();
        tell("pull");
        let gone = || card.exclusively(Card::select);
        let error = until(gone, Result::is_err).unwrap_err();
        let known = matches!(
            error,
            CardError::Channel(ChannelError::Removed { .. } | ChannelError::Mute { .. })
        );
        assert!(known, "{error}");
        let second = Duration::from_secs(1);
        let is_empty = |found: &Option<Vec<_>>| {
            let found: Option<&Vec<hsmux_smartcard::pcsc::Reader>> = found.as_ref();
            found.is_some_and(|found| found[0].card == CardState::Empty)
        };
        until(|| watch.wait(second).unwrap(), is_empty);
        tell("plug");
        until(|| watch.wait(second).unwrap(), Option::is_some);
        until(|| card.exclusively(Card::select), Result::is_ok).unwrap();
    });
}

#[test]
fn a_pcscd_that_was_restarted_is_found_again() {
    child("a_pcscd_that_was_restarted_is_found_again", 2, || {
        let names = names();
        let mut card = card(&names[0]);
        card.exclusively(Card::select).unwrap();
        tell("stop");
        let error = card.exclusively(Card::select).unwrap_err();
        assert!(matches!(error, CardError::Channel(_)), "{error}");
        let error = Channel::open(&names[0], CardTimeouts::default())
            .err()
            .unwrap();
        assert_eq!(error, ChannelError::NoPcscd);
        assert_eq!(readers(), Err(ChannelError::NoPcscd));
        tell("start");
        until(|| card.exclusively(Card::select), Result::is_ok).unwrap();
        let error = Channel::open("No such reader", CardTimeouts::default()).err();
        assert!(
            matches!(error, Some(ChannelError::NoReader { .. })),
            "{error:?}"
        );
    });
}

#[test]
fn waiting_for_a_change_can_be_ended() {
    child("waiting_for_a_change_can_be_ended", 1, || {
        let mut watch = ReaderWatch::new().unwrap();
        watch.wait(Duration::ZERO).unwrap();
        let canceller = watch.canceller();
        let waiting = std::thread::spawn(move || watch.wait(Duration::from_secs(600)));
        let cancel = || {
            canceller.cancel().unwrap();
            waiting.is_finished()
        };
        until(cancel, |finished| *finished);
        assert_eq!(waiting.join().unwrap(), Ok(None));
    });
}
