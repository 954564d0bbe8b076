//! Cards without a module: virtual ones in memory with copies of one key, and one in a reader.
//! Virtual cards protect nothing: see `hsmux-vcard`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsmux_smartcard::dkek::DkekShare;
use hsmux_smartcard::pcsc::{CardTimeouts, Channel, readers};
use hsmux_smartcard::provision::{Access, clone, domain, initialise};
use hsmux_smartcard::{
    Card, CardError, CardToken, Curve, Initialize, KeyPair, KeyReference, SoPin,
};
use hsmux_token::{Error, Kind, Result, Secret};
use hsmux_vcard::{MemoryChannel, Profile, Slot};

use crate::burn_in::NamedToken;

pub use hsmux_smartcard::KeyPairKind;
pub use hsmux_vcard::{Control, Timing};

/// Not secret: the cards protect nothing.
const PIN: &[u8] = b"648219";
const SO_PIN: &[u8] = b"3537363231383830";

/// The number of the key on all cards.
const KEY: KeyReference = KeyReference(1);

/// A virtual card, logged in.
pub struct VirtualCard {
    /// The token for the burn-in.
    pub named_token: NamedToken,
    /// The control that pulls the card and orders faults.
    pub control: Control,
}

/// Parses a kind of key pair: `rsa:2048`, `ec:brainpoolP256r1`, `ec:P-256`.
pub fn key_kind(name: &str) -> Result<KeyPairKind> {
    let kind = match name.split_once(':') {
        Some(("rsa", bits)) => bits.parse().ok().map(|bits| KeyPairKind::Rsa { bits }),
        Some(("ec", curve)) => Curve::by_name(curve).map(KeyPairKind::Ec),
        _ => None,
    };
    kind.ok_or_else(|| {
        let message = format!("{name}: a key of a card is like rsa:2048 or ec:brainpoolP256r1");
        Error::request(Kind::Invalid, message)
    })
}

/// Creates `count` cards with one key of this kind, or reads them from `folder`, so that a later run has the same key.
pub fn virtual_cards(
    count: u8,
    kind: KeyPairKind,
    timing: &Timing,
    folder: &Path,
) -> Result<Vec<VirtualCard>> {
    if count == 0 {
        return Err(Error::request(Kind::Invalid, "virtual cards: at least one"));
    }
    if !folder.exists() {
        // A temporary folder, so that an incomplete set-up is not used.
        let draft = folder.with_extension("new");
        let _ = fs::remove_dir_all(&draft);
        fs::create_dir_all(&draft).map_err(|error| failed(&draft, error))?;
        set_up(count, kind, &draft).map_err(|error| failed(&draft, error))?;
        fs::rename(&draft, folder).map_err(|error| failed(folder, error))?;
    }
    let pin = Secret::new(PIN.to_vec());
    let open = |number| {
        let slot = slot(folder, number, timing).map_err(|error| failed(folder, error))?;
        let token = CardToken::open(Card::new(slot.channel()), &pin)?;
        let named_token = NamedToken {
            name: serial(number),
            token: Arc::new(token),
        };
        let control = slot.control();
        Ok(VirtualCard {
            named_token,
            control,
        })
    };
    (1..=count).map(open).collect()
}

/// Logs in to the card in the first reader of PC/SC, with one try of the PIN, and none if it would be the last.
/// No other program may use the card meanwhile.
pub fn card_in_reader(pin: &Secret) -> Result<NamedToken> {
    let found = readers().map_err(CardError::from)?;
    let reader = found.first().ok_or_else(|| {
        let message = "PC/SC has no reader; see hsmux card list";
        Error::token(Kind::Environment, message)
    })?;
    let channel = Channel::open(&reader.name, CardTimeouts::default()).map_err(CardError::from)?;
    let token = CardToken::open(Card::new(channel), pin)?;
    Ok(NamedToken {
        name: reader.name.clone(),
        token: Arc::new(token),
    })
}

type SetUp<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Creates a key on the first card, and copies it to the others with the DKEK.
fn set_up(count: u8, kind: KeyPairKind, folder: &Path) -> SetUp<()> {
    let share = DkekShare::random();
    let blank = |number| blank(number, folder, &share);
    let mut first = blank(1)?;
    let pair = KeyPair::new(kind, &first.serial);
    first.logged_in(|card| {
        let request = card.generate_key_pair(KEY, &pair)?;
        Ok(card.keep_request(KEY, &request)?)
    })?;
    let mut others = (2..=count).map(blank).collect::<SetUp<Vec<_>>>()?;
    let cloned = clone::run(&mut first, &mut others, &|_| ())?;
    if !cloned.is_whole() {
        return Err(format!("the key is not on all cards: {cloned:?}").into());
    }
    Ok(())
}

/// An initialised card with the DKEK.
fn blank(number: u8, folder: &Path, share: &DkekShare) -> SetUp<Access<MemoryChannel>> {
    let slot = slot(folder, number, &Timing::None)?;
    let mut card = Card::new(slot.channel());
    let serial = serial(number);
    let how = Initialize {
        so_pin: SoPin::from_hex(SO_PIN)?,
        pin: Secret::new(PIN.to_vec()),
        retries: 3,
        dkek_shares: Some(1),
        public_keys: None,
        allow_reset: true,
        transport_pin: false,
    };
    initialise::initialise(&mut card, &serial, &how, &serial, false)?;
    domain::import_share(&mut card, &serial, share)?;
    Ok(Access {
        card,
        serial,
        pin: how.pin,
        last_try: false,
    })
}

fn slot(folder: &Path, number: u8, timing: &Timing) -> Result<Slot, hsmux_vcard::CardError> {
    let state: PathBuf = folder.join(format!("{}.json", serial(number)));
    let profile = Profile::new(&serial(number))
        .timing(timing.clone())
        .state(state);
    Ok(Slot::new(hsmux_vcard::Card::new(profile)?))
}

fn serial(number: u8) -> String {
    format!("VCBURN{number:03}")
}

fn failed(folder: &Path, error: impl std::fmt::Display) -> Error {
    let folder = folder.display();
    Error::pool(
        Kind::Environment,
        format!("virtual cards in {folder}: {error}"),
    )
}
