use hsmux_vcard::Fault;

use crate::host::{Host, PIN, SO_PIN, initialization};

const VERIFY: u8 = 0x20;

fn status_of(host: &mut Host, reference: u8) -> u16 {
    host.status(0, VERIFY, 0, reference, &[])
}

#[test]
fn a_card_that_was_never_initialised_has_no_pins() {
    let mut host = Host::new();
    // As sc-hsm-tool and OpenSC's module ask.
    for reference in [0x81, 0x88, 0x85, 0x86] {
        assert_eq!(status_of(&mut host, reference), 0x6A88);
    }
    assert_eq!(host.verify(PIN), 0x6A88);
    assert_eq!(host.status(0x80, 0x52, 0, 0, &[]), 0x6D00);
}

#[test]
fn asking_costs_no_try_and_a_wrong_pin_one() {
    let mut host = Host::new();
    host.initialize(None);
    assert_eq!(status_of(&mut host, 0x81), 0x63C3);
    assert_eq!(status_of(&mut host, 0x81), 0x63C3);
    assert_eq!(status_of(&mut host, 0x88), 0x63CF);
    assert_eq!(host.verify(b"000000"), 0x63C2);
    assert_eq!(status_of(&mut host, 0x81), 0x63C2);
    host.login();
    assert_eq!(status_of(&mut host, 0x81), 0x9000);
    // Selecting the application logs out, and the counter is full again.
    host.select();
    assert_eq!(status_of(&mut host, 0x81), 0x63C3);
    assert_eq!(host.status(0, 0x48, 1, 0xB0, &[]), 0x6982);
}

#[test]
fn a_wrong_pin_logs_out() {
    let mut host = Host::ready(1);
    assert_eq!(host.verify(b"999999"), 0x63C2);
    assert_eq!(host.status(0, 0x48, 1, 0xB0, &[]), 0x6982);
}

#[test]
fn a_blocked_pin_stays_blocked_until_the_so_unblocks_it() {
    let mut host = Host::new();
    host.initialize(None);
    for left in [2, 1, 0] {
        assert_eq!(host.verify(b"000000"), 0x63C0 + left);
    }
    assert_eq!(host.verify(PIN), 0x6983);
    assert_eq!(status_of(&mut host, 0x81), 0x6983);
    assert_eq!(host.status(0, 0x24, 0, 0x81, b"648219123456"), 0x6983);
    host.slot.card().reset();
    host.select();
    assert_eq!(host.verify(PIN), 0x6983);

    // P1 01 resets only the counter, 00 also sets a new PIN.
    assert_eq!(host.status(0, 0x2C, 1, 0x81, SO_PIN), 0x9000);
    host.login();
    let new = [SO_PIN, b"11223344"].concat();
    assert_eq!(host.status(0, 0x2C, 0, 0x81, &new), 0x9000);
    host.select();
    assert_eq!(host.verify(b"11223344"), 0x9000);
    assert_eq!(
        host.status(0, 0x2C, 0, 0x81, &[&[0; 8], PIN].concat()),
        0x63CE
    );
    assert_eq!(
        host.status(0, 0x2C, 0, 0x81, &[SO_PIN, b"123"].concat()),
        0x6A80
    );
    assert_eq!(host.status(0, 0x2C, 0, 0x81, b"short"), 0x6700);
}

#[test]
fn without_the_option_nobody_unblocks() {
    let mut host = Host::new();
    host.ok(0x80, 0x50, 0, 0, &initialization([0, 0], 3, None), None);
    assert_eq!(host.status(0, 0x2C, 1, 0x81, SO_PIN), 0x6985);
    assert_eq!(status_of(&mut host, 0x88), 0x63CF);
}

#[test]
fn pins_are_changed_with_the_old_one() {
    let mut host = Host::new();
    host.initialize(None);
    assert_eq!(host.status(0, 0x24, 0, 0x81, b"648210123456789"), 0x63C2);
    assert_eq!(host.status(0, 0x24, 0, 0x81, b"648219123456789"), 0x9000);
    assert_eq!(host.status(0, 0x48, 1, 0xB0, &[]), 0x9000, "logged in");
    assert_eq!(host.verify(PIN), 0x63C2);
    assert_eq!(host.verify(b"123456789"), 0x9000);
    // Too short: no try is lost.
    assert_eq!(host.status(0, 0x24, 0, 0x81, b"123456789123"), 0x6A80);
    assert_eq!(host.verify(b"123456789"), 0x9000);

    let new = [SO_PIN, &[9; 8]].concat();
    assert_eq!(host.status(0, 0x24, 0, 0x88, &new), 0x9000);
    assert_eq!(host.status(0, 0x20, 0, 0x88, SO_PIN), 0x63CE);
    assert_eq!(host.status(0, 0x20, 0, 0x88, &[9; 8]), 0x9000);
}

#[test]
fn a_transport_pin_can_only_be_changed() {
    let mut host = Host::new();
    host.ok(0x80, 0x50, 0, 0, &initialization([0, 3], 3, None), None);
    assert_eq!(status_of(&mut host, 0x81), 0x6984);
    assert_eq!(host.verify(PIN), 0x6984);
    assert_eq!(host.status(0, 0x24, 0, 0x81, b"000000123456"), 0x63C2);
    assert_eq!(host.status(0, 0x24, 0, 0x81, b"648219123456"), 0x9000);
    assert_eq!(host.verify(b"123456"), 0x9000);
}

#[test]
fn initialising_again_needs_the_so_pin_and_erases() {
    let mut host = Host::ready(1);
    host.ok(0, 0x48, 1, 0xB0, &[], None);
    host.write(0xCF01, b"data");
    let mut wrong = initialization([0, 1], 3, None);
    let at = wrong
        .windows(8)
        .position(|window| window == SO_PIN)
        .unwrap();
    wrong[at] ^= 1;
    assert_eq!(host.status(0x80, 0x50, 0, 0, &wrong), 0x6985);
    assert_eq!(host.enumerate(), [0xCC00, 0xCC01, 0xCF01]);
    assert_eq!(status_of(&mut host, 0x88), 0x63CE);

    host.initialize(None);
    assert_eq!(host.enumerate(), [0xCC00]);
    assert_eq!(status_of(&mut host, 0x88), 0x63CF);
    assert_eq!(host.status(0, 0x48, 1, 0xB0, &[]), 0x6982, "logged out");
    assert_eq!(
        host.status(0x80, 0x52, 0, 0, &[]),
        0x6D00,
        "no DKEK any more"
    );
    for left in (0..15).rev() {
        assert_eq!(host.status(0x80, 0x50, 0, 0, &wrong), 0x6985, "{left}");
    }
    assert_eq!(host.status(0x80, 0x50, 0, 0, &wrong), 0x6983);
    let right = initialization([0, 1], 3, None);
    assert_eq!(host.status(0x80, 0x50, 0, 0, &right), 0x6983);
}

#[test]
fn initialisations_that_make_no_sense() {
    let mut host = Host::new();
    let good = initialization([0, 1], 3, None);
    for tries in [0, 11] {
        let data = initialization([0, 1], tries, None);
        assert_eq!(host.status(0x80, 0x50, 0, 0, &data), 0x6A80);
    }
    assert_eq!(host.status(0x80, 0x50, 0, 0, &good[..4]), 0x6A80);
    assert_eq!(host.status(0x80, 0x50, 0, 0, &[]), 0x6A80);
    let with_keys = [&good[..], &[0x93, 2, 1, 1]].concat();
    assert_eq!(host.status(0x80, 0x50, 0, 0, &with_keys), 0x6A81);
    assert_eq!(status_of(&mut host, 0x81), 0x6A88, "still not initialised");
}

/// A card counts a try before it compares: pulling it in between does not avoid the count.
#[test]
fn a_power_loss_while_a_pin_is_compared_costs_the_try() {
    let mut host = Host::new();
    host.initialize(None);
    for (pin, commits, left) in [
        (&b"000000"[..], 0, 3),
        (b"000000", 1, 2),
        (PIN, 1, 1),
        (PIN, 2, 3),
    ] {
        host.control()
            .order(Fault::PowerLoss(commits).once().on(VERIFY));
        let command = [&[0, VERIFY, 0, 0x81, 6][..], pin].concat();
        assert!(hsmux_smartcard::CardChannel::transmit(&mut host.channel, &command).is_err());
        host.select();
        assert_eq!(status_of(&mut host, 0x81), 0x63C0 + left, "{commits}");
    }
}
