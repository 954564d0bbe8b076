//! Virtual cards in memory.

use hsmux_bench::burn_in::{self, BurnInOptions, NamedToken};
use hsmux_bench::{BenchKey, cards};
use hsmux_token::Uri;

use crate::common::{fits_80_columns, keeps_schema, quiet};
use crate::{folder, options, signers};

/// Virtual cards with copies of one key; an interrupted run continues with the same key.
#[test]
fn cards_in_memory_are_burnt_in_and_one_that_lies_is_named() {
    let folder = folder();
    let kind = cards::key_kind("ec:brainpoolP256r1").unwrap();
    let open = || {
        let state = folder.path().join("cards");
        cards::virtual_cards(3, kind, &cards::Timing::None, &state).unwrap()
    };
    let burn = |tests, spoil: Option<usize>| {
        let cards = open();
        if let Some(at) = spoil {
            let order = "wrong-signature".parse::<hsmux_vcard::Order>().unwrap();
            cards[at].control.obey(order.only(Some(3), Some(0x68)));
        }
        let tokens: Vec<NamedToken> = cards.into_iter().map(|card| card.named_token).collect();
        let key = BenchKey::find(&*tokens[0].token, Some(&Uri::default())).unwrap();
        let options = BurnInOptions {
            tokens,
            key,
            name: "cards".into(),
            ..options(signers(1), folder.path(), tests)
        };
        burn_in::run(&options, quiet()).unwrap()
    };
    let first = burn(60, None);
    assert!(first.is_clean(), "{first}");
    assert_eq!(
        first.reference.len(),
        5,
        "brainpoolP256r1 has published rows"
    );
    let second = burn(180, Some(1));
    assert_eq!((second.performed, second.runs), (180, 2));
    assert_eq!((second.wrong, second.tokens[1].wrong), (3, Some(3)));
    assert!(
        second.failures[0]
            .examples
            .iter()
            .all(|example| example.token == "VCBURN002")
    );
    assert!(second.tokens.iter().all(|token| token.served > 0));
    fits_80_columns(&second.to_string());
    keeps_schema(&second);
}

#[test]
fn a_key_of_a_card_has_a_name() {
    for bad in ["rsa", "rsa:x", "ec:P-255", "aes:128"] {
        let error = cards::key_kind(bad).unwrap_err().to_string();
        assert!(error.contains(bad), "{error}");
    }
}
