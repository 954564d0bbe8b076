use hsmux_smartcard::{Initialize, PinReference, PinStatus, SoPin, StatusWord};
use hsmux_token::Secret;

use super::script::{card, done};

fn pin(text: &str) -> Secret {
    Secret::new(text.into())
}

fn so_pin() -> SoPin {
    SoPin::from_hex(b"3537363231383830").unwrap()
}

#[test]
fn asking_for_the_state_of_a_pin_sends_no_pin() {
    for (answer, status) in [
        ("9000", PinStatus::LoggedIn),
        ("63C2", PinStatus::TriesLeft(2)),
        ("63C0", PinStatus::Blocked),
        ("6983", PinStatus::Blocked),
        ("6984", PinStatus::Transport),
        ("6A88", PinStatus::NotSet),
    ] {
        let mut card = card(&[("00200081", answer)]);
        assert_eq!(card.pin_status(PinReference::User).unwrap(), status);
        done(card);
    }
    let mut card = card(&[("00200088", "63CF")]);
    let status = card.pin_status(PinReference::SecurityOfficer).unwrap();
    assert_eq!(status, PinStatus::TriesLeft(15));
}

#[test]
fn a_pin_is_sent_once() {
    let mut card = card(&[
        ("00200081 06 363438323139", "9000"),
        ("00200081 06 363438323139", "63C2"),
        ("00200088 08 3537363231383830", "6983"),
    ]);
    card.verify(&pin("648219")).unwrap();
    let error = card.verify(&pin("648219")).unwrap_err();
    assert_eq!(error.status().and_then(StatusWord::tries_left), Some(2));
    assert_eq!(
        error.to_string(),
        "script: VERIFY: wrong PIN, 2 tries left (63C2)"
    );
    let error = card.verify_so(&so_pin()).unwrap_err();
    assert_eq!(error.status(), Some(StatusWord::PIN_BLOCKED));
    done(card);
}

#[test]
fn a_pin_that_cannot_be_right_costs_no_try() {
    let mut card = card(&[]);
    for wrong in ["", "12345", "12345678901234567"] {
        let error = card.verify(&pin(wrong)).unwrap_err();
        assert_eq!(error.to_string(), "VERIFY: a PIN has 6 to 16 characters");
    }
    assert!(SoPin::from_hex(b"353736323138383").is_err());
    assert!(SoPin::from_hex(b"35373632313838ZZ").is_err());
    assert_eq!(format!("{:?}", so_pin()), "(secret)");
}

#[test]
fn pins_are_changed_and_unblocked() {
    let mut card = card(&[
        ("00240081 0C 363438323139 313131313131", "9000"),
        ("00240088 10 3537363231383830 3537363231383830", "9000"),
        ("002C0081 0E 3537363231383830 363438323139", "9000"),
        ("002C0181 08 3537363231383830", "6985"),
    ]);
    card.change_pin(&pin("648219"), &pin("111111")).unwrap();
    card.change_so_pin(&so_pin(), &so_pin()).unwrap();
    card.reset_retry_counter(&so_pin(), Some(&pin("648219")))
        .unwrap();
    let error = card.reset_retry_counter(&so_pin(), None).unwrap_err();
    assert_eq!(error.status(), Some(StatusWord::CONDITIONS_NOT_SATISFIED));
    done(card);
}

#[test]
fn a_card_is_initialised() {
    let mut how = Initialize {
        so_pin: so_pin(),
        pin: pin("648219"),
        retries: 3,
        dkek_shares: Some(2),
        public_keys: None,
        allow_reset: true,
        transport_pin: false,
    };
    let tlvs = "80020001 8106363438323139 82083537363231383830 910103";
    let mut card = card(&[
        (&format!("80500000 1C {tlvs} 920102"), "9000"),
        (&format!("80500000 1D {tlvs} 93020302"), "6985"),
    ]);
    card.initialize(&how).unwrap();
    how.dkek_shares = None;
    how.public_keys = Some((3, 2));
    assert!(card.initialize(&how).is_err());
    how.retries = 4;
    let error = card.initialize(&how).unwrap_err();
    assert!(
        error.to_string().contains("may have 1 to 3 tries"),
        "{error}"
    );
    done(card);
}
