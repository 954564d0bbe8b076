//! The kind of token that is measured.

use std::collections::BTreeSet;

use hsmux_pool::{SeatStatus, TokenStatus};
use hsmux_vcard::reader::is_virtual;

/// The kind of the measured members' tokens.
#[derive(Debug, PartialEq, Eq)]
pub struct Device {
    /// The name, for a title: `SoftHSM v2`.
    pub name: String,
    /// Whether published figures of SmartCard-HSMs are comparable.
    pub is_smartcard_hsm: bool,
}

impl Device {
    /// From the tokens of these members; several kinds have their names joined.
    pub fn of(seats: &[SeatStatus], members: &[String]) -> Self {
        let seats = seats.iter().filter(|seat| members.contains(&seat.member));
        Self::of_tokens(seats.filter_map(|seat| seat.token.as_ref()))
    }

    fn of_tokens<'a>(tokens: impl Iterator<Item = &'a TokenStatus>) -> Self {
        let kinds: BTreeSet<_> = tokens
            .map(|token| (name(token), is_smartcard_hsm(token)))
            .collect();
        let names: Vec<_> = kinds.iter().map(|(name, _)| name.as_str()).collect();
        Self {
            name: names.join(", "),
            is_smartcard_hsm: !kinds.is_empty() && kinds.iter().all(|(_, is_one)| *is_one),
        }
    }
}

/// OpenSC names the maker only, and sc-hsm-embedded the model as well.
fn is_smartcard_hsm(token: &TokenStatus) -> bool {
    token
        .manufacturer
        .to_ascii_lowercase()
        .contains("cardcontact")
}

fn name(token: &TokenStatus) -> String {
    let is_virtual = token.slot.as_deref().is_some_and(is_virtual);
    match (is_smartcard_hsm(token), token.model.trim()) {
        (true, _) if is_virtual => "virtual SmartCard-HSM".to_owned(),
        (true, _) => "SmartCard-HSM".to_owned(),
        (false, "") => "token without a model".to_owned(),
        (false, model) => model.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(manufacturer: &str, model: &str, slot: Option<&str>) -> TokenStatus {
        TokenStatus {
            label: "web".to_owned(),
            serial: "1".to_owned(),
            manufacturer: manufacturer.to_owned(),
            model: model.to_owned(),
            library: String::new(),
            flags: 0,
            slot: slot.map(str::to_owned),
        }
    }

    fn device(tokens: &[TokenStatus]) -> (String, bool) {
        let Device {
            name,
            is_smartcard_hsm,
        } = Device::of_tokens(tokens.iter());
        (name, is_smartcard_hsm)
    }

    #[test]
    fn cards_are_known_through_either_module_and_virtual_ones_are_named() {
        let reader = "Identiv uTrust 2700 R [CCID Interface] 00 00";
        for (manufacturer, model) in [
            ("www.CardContact.de", "PKCS#15 emulated"),
            ("CardContact (www.cardcontact.de)", "SmartCard-HSM"),
        ] {
            let card = token(manufacturer, model, Some(reader));
            assert_eq!(device(&[card]), ("SmartCard-HSM".to_owned(), true));
            let slot = Some("hsmux virtual cards A, no protection 00 01");
            let card = token(manufacturer, model, slot);
            assert_eq!(device(&[card]), ("virtual SmartCard-HSM".to_owned(), true));
        }
    }

    #[test]
    fn other_tokens_have_no_published_figures() {
        let soft = || token("SoftHSM project", "SoftHSM v2", None);
        assert_eq!(device(&[soft(), soft()]), ("SoftHSM v2".to_owned(), false));
        let card = token("www.CardContact.de", "PKCS#15 emulated", None);
        assert_eq!(
            device(&[soft(), card]),
            ("SmartCard-HSM, SoftHSM v2".to_owned(), false)
        );
        assert!(!device(&[]).1);
    }
}
