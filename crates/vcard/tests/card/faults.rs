use std::thread;
use std::time::{Duration, Instant};

use hsmux_smartcard::{CardChannel, ChannelError, CommandApdu, Curve};
use hsmux_token::{Hash, Mechanism, ck};
use hsmux_vcard::{Card, Fault, Profile, Slot, Timing};

use crate::host::{Host, ec_body};

const SIGN: u8 = 0x68;

/// A card with key 1 on P-256, and a command that signs with it.
fn signer(profile: Profile) -> (Host, Vec<u8>) {
    let mut host = Host::ready_with(profile, 1);
    host.generate(1, &ec_body(Curve::by_name("P-256").unwrap()));
    let command = CommandApdu::new(0x80, SIGN, 1, 0x70)
        .with_data([7; 32])
        .expecting(256);
    let command = command.encode().unwrap().to_vec();
    (host, command)
}

fn slow(ms: u32) -> Profile {
    let row = format!("[[time]]\noperation = 'sign'\nmean_ms = {ms}");
    Profile::new("VC000001").timing(Timing::from_toml(&row).unwrap())
}

#[test]
fn a_card_that_is_pulled_is_gone_and_comes_back_logged_out() {
    let (mut host, sign) = signer(Profile::new("VC000001"));
    host.control().unplug();
    let removed = ChannelError::Removed {
        reader: host.channel.name().to_owned(),
    };
    assert_eq!(host.channel.transmit(&sign).unwrap_err(), removed);
    host.control().plug();
    assert_eq!(
        host.channel.transmit(&sign).unwrap(),
        [0x6D, 0],
        "nothing is selected"
    );
    host.select();
    assert_eq!(host.channel.transmit(&sign).unwrap(), [0x69, 0x82]);
    host.login();
    assert!(host.channel.transmit(&sign).unwrap().ends_with(&[0x90, 0]));
}

#[test]
fn a_pull_in_the_middle_ends_the_command_at_once() {
    let (mut host, sign) = signer(slow(600_000));
    let control = host.control();
    let mut channel = host.slot.channel();
    let signing = thread::spawn(move || channel.transmit(&sign));
    while !signing.is_finished() && !host.slot.busy() {
        thread::yield_now();
    }
    control.unplug();
    let answer = signing.join().unwrap();
    assert!(
        matches!(answer, Err(ChannelError::Removed { .. })),
        "{answer:?}"
    );
    control.plug();
    host.select();
}

#[test]
fn mute_slow_refusing_and_wrong() {
    let (mut host, sign) = signer(Profile::new("VC000001"));
    let control = host.control();
    control.order(Fault::Mute.once().on(SIGN));
    assert!(matches!(
        host.channel.transmit(&sign),
        Err(ChannelError::Mute { .. })
    ));

    control.order(Fault::Status(0x6F00).times(2).on(SIGN));
    for expected in [&[0x6F, 0][..], &[0x6F, 0]] {
        assert_eq!(host.channel.transmit(&sign).unwrap(), expected);
    }
    control.order(Fault::Slow(80).once());
    let start = Instant::now();
    assert!(host.channel.transmit(&sign).unwrap().ends_with(&[0x90, 0]));
    assert!(start.elapsed() >= Duration::from_millis(80));
}

#[test]
fn a_wrong_signature_looks_like_one_and_does_not_verify() {
    let (mut host, sign) = signer(Profile::new("VC000001"));
    let request = host.read(0xCE01).data;
    let key = hsmux_smartcard::cvc::public_key_of(&request).unwrap();
    let verify = |answer: &[u8]| {
        let signature = answer.strip_suffix(&[0x90, 0]).unwrap();
        let signature = hsmux_smartcard::ecdsa_fixed(signature, 32).unwrap();
        key.verify(&Mechanism::plain(ck::CKM_ECDSA), &[7; 32], &signature)
    };
    host.control().order(Fault::WrongSignature.once());
    assert!(verify(&host.channel.transmit(&sign).unwrap()).is_err());
    verify(&host.channel.transmit(&sign).unwrap()).unwrap();

    host.generate(2, &crate::host::rsa_body(1024));
    let block = crate::host::padded(Hash::Sha256, b"data", 128);
    let right = host.ok(0x80, SIGN, 2, 0x20, &block, Some(256));
    host.control().order(Fault::WrongSignature.once());
    let wrong = host.ok(0x80, SIGN, 2, 0x20, &block, Some(256));
    assert!(wrong != right && wrong.len() == right.len());
}

#[test]
fn a_power_loss_is_a_reset_and_what_was_not_committed_is_gone() {
    let (mut host, sign) = signer(Profile::new("VC000001"));
    host.control().order(Fault::PowerLoss(0).once().on(SIGN));
    assert!(matches!(
        host.channel.transmit(&sign),
        Err(ChannelError::Reset { .. })
    ));
    assert_eq!(host.channel.transmit(&sign).unwrap(), [0x6D, 0]);
}

#[test]
fn a_service_time_holds_for_the_whole_command_and_adds_up() {
    const TIMES: u32 = 10;
    let (mut host, sign) = signer(slow(30));
    let start = Instant::now();
    for _ in 0..TIMES {
        let one = Instant::now();
        assert!(host.channel.transmit(&sign).unwrap().ends_with(&[0x90, 0]));
        // May be a little shorter, if the previous one took longer.
        assert!(one.elapsed() >= Duration::from_millis(10));
    }
    let mean = start.elapsed() / TIMES;
    assert!(mean >= Duration::from_millis(28), "{mean:?}");
    // Other commands have no delay: at least one of many is faster, however busy the machine is.
    let fast = (0..100).any(|_| {
        let start = Instant::now();
        host.select();
        start.elapsed() < Duration::from_millis(30)
    });
    assert!(fast);
}

#[test]
fn whoever_has_the_card_for_himself_is_not_disturbed() {
    let slot = Slot::new(Card::new(Profile::new("VC000001")).unwrap());
    let (mut one, mut other) = (Host::at(slot.clone()), Host::at(slot));
    one.channel.begin().unwrap();
    one.initialize(None);
    one.login();
    let waiting = thread::spawn(move || {
        other.channel.begin().unwrap();
        // Selecting logs out: it must come after the other's last command.
        other.select();
        let enumerated = other.enumerate();
        other.channel.end().unwrap();
        enumerated
    });
    for id in 1..20 {
        one.ok(0, 0x48, id, 0xB0, &[], None);
    }
    assert!(!waiting.is_finished());
    one.channel.end().unwrap();
    assert_eq!(waiting.join().unwrap().len(), 20);
    assert_eq!(one.status(0, 0x48, 30, 0xB0, &[]), 0x6982);
}

#[test]
fn a_channel_that_is_dropped_lets_go() {
    let slot = Slot::new(Card::new(Profile::new("VC000001")).unwrap());
    let mut one = slot.channel();
    one.begin().unwrap();
    drop(one);
    slot.channel().begin().unwrap();
}

#[test]
fn a_card_counts_its_commands_and_their_time() {
    let (mut host, sign) = signer(slow(50));
    let before = host.control().worked();
    for _ in 0..2 {
        host.channel.transmit(&sign).unwrap();
    }
    host.control().unplug();
    host.channel.transmit(&sign).unwrap_err();
    let worked = host.control().worked().since(before);
    assert_eq!(worked.commands, 3);
    // The next command makes up for the lateness of one.
    assert!(worked.time >= Duration::from_millis(99));
}
