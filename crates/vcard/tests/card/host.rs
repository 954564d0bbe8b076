//! A host that sends commands like real hosts, and checks the answers.

use hsmux_smartcard::tlv::tlv;
use hsmux_smartcard::{CardChannel, CommandApdu, Curve, ResponseApdu, StatusWord};
use hsmux_token::{Hash, Mechanism, Params, Pss, ck};
use hsmux_vcard::{Card, Control, MemoryChannel, Profile, Slot};

pub const PIN: &[u8] = b"648219";
pub const SO_PIN: &[u8] = &[0x35, 0x37, 0x36, 0x32, 0x31, 0x38, 0x38, 0x30];
pub const SELECT: &[u8] = &[
    0xE8, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x81, 0xC3, 0x1F, 0x02, 0x01,
];
/// The maximum of an extended APDU.
pub const ALL: Option<usize> = Some(65_536);

pub struct Host {
    pub slot: Slot,
    pub channel: MemoryChannel,
}

impl Host {
    /// A host with a card in factory state, the application selected.
    pub fn new() -> Self {
        Self::with(Profile::new("VC000001"))
    }

    pub fn with(profile: Profile) -> Self {
        Self::at(Slot::new(Card::new(profile).unwrap()))
    }

    pub fn at(slot: Slot) -> Self {
        let channel = slot.channel();
        let mut host = Self { slot, channel };
        host.select();
        host
    }

    /// A host with a card initialised with one DKEK share of these bytes, and the user logged in.
    pub fn ready(share: u8) -> Self {
        Self::ready_with(Profile::new("VC000001"), share)
    }

    pub fn ready_with(profile: Profile, share: u8) -> Self {
        let mut host = Self::with(profile);
        host.initialize(Some(1));
        host.ok(0x80, 0x52, 0, 0, &[share; 32], Some(256));
        host.login();
        host
    }

    pub fn control(&self) -> Control {
        self.slot.control()
    }

    pub fn answer(
        &mut self,
        (cla, ins): (u8, u8),
        (p1, p2): (u8, u8),
        data: &[u8],
        ne: Option<usize>,
    ) -> ResponseApdu {
        let mut command = CommandApdu::new(cla, ins, p1, p2).with_data(data);
        command.ne = ne;
        let bytes = command.encode().unwrap();
        ResponseApdu::parse(self.channel.transmit(&bytes).unwrap()).unwrap()
    }

    pub fn ok(
        &mut self,
        cla: u8,
        ins: u8,
        p1: u8,
        p2: u8,
        data: &[u8],
        ne: Option<usize>,
    ) -> Vec<u8> {
        let response = self.answer((cla, ins), (p1, p2), data, ne);
        assert_eq!(
            response.status,
            StatusWord::OK,
            "{cla:02X} {ins:02X} {p1:02X} {p2:02X}"
        );
        response.data.to_vec()
    }

    pub fn status(&mut self, cla: u8, ins: u8, p1: u8, p2: u8, data: &[u8]) -> u16 {
        self.answer((cla, ins), (p1, p2), data, ALL).status.0
    }

    pub fn select(&mut self) -> Vec<u8> {
        self.ok(0, 0xA4, 4, 0, SELECT, Some(256))
    }

    /// Initialises like sc-hsm-tool.
    pub fn initialize(&mut self, shares: Option<u8>) {
        let data = initialization([0, 1], 3, shares);
        self.ok(0x80, 0x50, 0, 0, &data, None);
    }

    pub fn verify(&mut self, pin: &[u8]) -> u16 {
        self.status(0, 0x20, 0, 0x81, pin)
    }

    pub fn login(&mut self) {
        assert_eq!(self.verify(PIN), 0x9000);
    }

    pub fn generate(&mut self, id: u8, body: &[u8]) -> Vec<u8> {
        self.ok(0, 0x46, id, 0, body, ALL)
    }

    pub fn write(&mut self, id: u16, content: &[u8]) -> u16 {
        let [high, low] = id.to_be_bytes();
        self.status(0, 0xD7, high, low, &update(0, content))
    }

    pub fn read(&mut self, id: u16) -> ResponseApdu {
        let [high, low] = id.to_be_bytes();
        self.answer((0, 0xB1), (high, low), &[0x54, 2, 0, 0], ALL)
    }

    pub fn enumerate(&mut self) -> Vec<u16> {
        let list = self.ok(0x80, 0x58, 0, 0, &[], ALL);
        list.chunks(2)
            .map(|id| u16::from_be_bytes([id[0], id[1]]))
            .collect()
    }
}

/// The data of INITIALIZE DEVICE.
pub fn initialization(options: [u8; 2], tries: u8, shares: Option<u8>) -> Vec<u8> {
    let shares = shares
        .map(|shares| tlv(0x92, &[&[shares]]))
        .unwrap_or_default();
    [
        tlv(0x80, &[&options]),
        tlv(0x81, &[PIN]),
        tlv(0x82, &[SO_PIN]),
        tlv(0x91, &[&[tries]]),
        shares,
    ]
    .concat()
}

/// The data of UPDATE BINARY.
pub fn update(offset: u16, content: &[u8]) -> Vec<u8> {
    [tlv(0x54, &[&offset.to_be_bytes()]), tlv(0x53, &[content])].concat()
}

/// The body of a request for a key on a curve, as in OpenSC.
pub fn ec_body(curve: &Curve) -> Vec<u8> {
    let oid = [4, 0, 0x7F, 0, 7, 2, 2, 2, 2, 3];
    let parts = [
        tlv(0x06, &[&oid]),
        tlv(0x81, &[curve.prime]),
        tlv(0x82, &[curve.a]),
        tlv(0x83, &[curve.b]),
        tlv(0x84, &[curve.generator]),
        tlv(0x85, &[curve.order]),
        tlv(0x87, &[&[1]]),
    ];
    body(&parts.concat())
}

/// The body of a request for an RSA key, as in OpenSC.
pub fn rsa_body(bits: u16) -> Vec<u8> {
    let oid = [4, 0, 0x7F, 0, 7, 2, 2, 2, 1, 2];
    let parts = [
        tlv(0x06, &[&oid]),
        tlv(0x82, &[&[1, 0, 1]]),
        tlv(0x02, &[&bits.to_be_bytes()]),
    ];
    body(&parts.concat())
}

fn body(public_key: &[u8]) -> Vec<u8> {
    [
        tlv(0x5F29, &[&[0]]),
        tlv(0x42, &[b"UTCA00001"]),
        tlv(0x7F49, &[public_key]),
        tlv(0x5F20, &[b"VC00000100001"]),
    ]
    .concat()
}

/// `00 01 FF.. 00 DigestInfo`, as OpenSC pads on the host.
pub fn padded(hash: Hash, data: &[u8], len: usize) -> Vec<u8> {
    let info = digest_info(hash, data);
    let padding = vec![0xFF; len - info.len() - 3];
    [&[0, 1][..], &padding, &[0], &info].concat()
}

pub fn digest_info(hash: Hash, data: &[u8]) -> Vec<u8> {
    [
        hash.digest_info_prefix(),
        &hsmux_software::digest(hash, data),
    ]
    .concat()
}

pub fn pss(hash: u64, mgf: u64, salt: u64) -> Mechanism {
    Mechanism {
        kind: ck::CKM_RSA_PKCS_PSS,
        params: Params::Pss(Pss { hash, mgf, salt }),
    }
}
