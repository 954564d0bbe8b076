//! Cards in memory, and what a test does to them.

use hsmux_smartcard::dkek::DkekShare;
use hsmux_smartcard::pkcs15::{KeyDescription, KeyFamily, KeyUsage};
use hsmux_smartcard::provision::{Access, domain, initialise};
use hsmux_smartcard::{
    AesAlgorithm, AesSize, Card, Curve, FileId, FileKind, Initialize, KeyPair, KeyPairKind,
    KeyReference, SoPin,
};
use hsmux_token::Secret;
use hsmux_vcard::{Control, MemoryChannel, Profile, Slot};

pub const PIN: &[u8] = b"648219";
pub const SO_PIN: &[u8] = b"3537363231383830";

/// A card in a reader of memory.
pub struct Plugged {
    slot: Slot,
    pub serial: String,
}

pub fn secret(pin: &[u8]) -> Secret {
    Secret::new(pin.to_vec())
}

pub fn so_pin(digits: &[u8]) -> SoPin {
    SoPin::from_hex(digits).unwrap()
}

/// How a card is set up in these tests.
pub fn how(dkek_shares: Option<u8>) -> Initialize {
    Initialize {
        so_pin: so_pin(SO_PIN),
        pin: secret(PIN),
        retries: 3,
        dkek_shares,
        public_keys: None,
        allow_reset: true,
        transport_pin: false,
    }
}

impl Plugged {
    /// As it leaves the factory.
    pub fn blank(serial: &str) -> Self {
        Self::of(Profile::new(serial))
    }

    pub fn of(profile: Profile) -> Self {
        let serial = profile.serial.clone();
        let card = hsmux_vcard::Card::new(profile).unwrap();
        Self {
            slot: Slot::new(card),
            serial,
        }
    }

    /// With PINs and a DKEK of these shares.
    pub fn ready(serial: &str, shares: &[DkekShare]) -> Self {
        Self::blank(serial).with(shares)
    }

    pub fn with(self, shares: &[DkekShare]) -> Self {
        self.initialise(&how(Some(shares.len() as u8)));
        for share in shares {
            domain::import_share(&mut self.card(), &self.serial, share).unwrap();
        }
        self
    }

    pub fn initialise(&self, how: &Initialize) {
        initialise::initialise(&mut self.card(), &self.serial, how, "test", false).unwrap();
    }

    pub fn card(&self) -> Card<MemoryChannel> {
        Card::new(self.slot.channel())
    }

    pub fn access(&self) -> Access<MemoryChannel> {
        self.access_by(self.slot.channel(), PIN)
    }

    /// Through another channel, or with another PIN.
    pub fn access_by<C: hsmux_smartcard::CardChannel>(&self, channel: C, pin: &[u8]) -> Access<C> {
        Access {
            card: Card::new(channel),
            serial: self.serial.clone(),
            pin: secret(pin),
            last_try: false,
        }
    }

    pub fn channel(&self) -> MemoryChannel {
        self.slot.channel()
    }

    pub fn control(&self) -> Control {
        self.slot.control()
    }

    /// Does something with the card, logged in.
    pub fn logged_in<T>(&self, work: impl FnOnce(&mut Card<MemoryChannel>) -> T) -> T {
        self.access().logged_in(|card| Ok(work(card))).unwrap()
    }

    /// Makes an EC key with its request and description.
    pub fn ec_key(&self, number: u8, curve: &str) {
        let curve = Curve::by_name(curve).unwrap();
        self.key_pair(number, KeyPairKind::Ec(curve), KeyFamily::Ec);
    }

    pub fn rsa_key(&self, number: u8) {
        self.key_pair(number, KeyPairKind::Rsa { bits: 1024 }, KeyFamily::Rsa);
    }

    fn key_pair(&self, number: u8, kind: KeyPairKind, family: KeyFamily) {
        let key = KeyReference(number);
        self.logged_in(|card| {
            let request = card.generate_key_pair(key, &KeyPair::new(kind, &self.serial));
            card.keep_request(key, &request.unwrap()).unwrap();
            describe(card, key, family);
        });
    }

    pub fn aes_key(&self, number: u8) {
        let key = KeyReference(number);
        self.logged_in(|card| {
            card.generate_aes(key, AesSize::Bits256, &AesAlgorithm::ALL, None)
                .unwrap();
            describe(card, key, KeyFamily::Aes);
        });
    }

    /// One key of each kind, a CA certificate and two data objects, of which one needs the PIN.
    pub fn fill(&self) {
        self.ec_key(1, "P-256");
        self.rsa_key(2);
        self.aes_key(7);
        self.logged_in(|card| {
            for (kind, content) in [
                (FileKind::CaCertificate, &[0x30, 3, 1, 2, 3][..]),
                (FileKind::CertificateDescription, &[0x30, 2, 0x30, 0]),
                (FileKind::Data, b"for everybody"),
                (FileKind::ProtectedData, b"for some"),
            ] {
                card.write_file(kind.file(1), content).unwrap();
            }
        });
    }

    /// All files that can be compared, with what they hold.
    pub fn files(&self) -> Vec<(FileId, Vec<u8>)> {
        self.logged_in(|card| {
            let mut files = card.enumerate().unwrap();
            files.sort_unstable();
            files.retain(|file| {
                file.kind()
                    .is_some_and(|kind| file.number() != 0 || kind != FileKind::Key)
            });
            let read = |file: FileId| match file.kind() {
                Some(FileKind::Key) => (file, Vec::new()),
                _ => (file, card.read_file(file).unwrap().to_vec()),
            };
            files
                .into_iter()
                .filter(|file| file.number() != 0)
                .map(read)
                .collect()
        })
    }

    /// How many tries the user's PIN has left.
    pub fn tries(&self) -> hsmux_smartcard::PinStatus {
        let mut card = self.card();
        card.select().unwrap();
        card.pin_status(hsmux_smartcard::PinReference::User)
            .unwrap()
    }
}

pub fn describe(card: &mut Card<MemoryChannel>, key: KeyReference, family: KeyFamily) {
    let label = format!("key {}", key.0);
    let description = KeyDescription::new(family, key, &label, &[key.0], KeyUsage::SIGN, 256);
    let file = key.file(FileKind::KeyDescription);
    card.write_file(file, &description.encode()).unwrap();
}

/// Two shares, as a cluster has them.
pub fn shares() -> Vec<DkekShare> {
    vec![DkekShare::random(), DkekShare::random()]
}
