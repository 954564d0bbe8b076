//! A program with a module of version 1, byte for byte as it was, and today's daemon.
//!
//! Nothing here is today's code: what is sent was recorded, and what comes is read as version 1 read it. Fields that are
//! newer are skipped.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use hsmux_suite::{PATIENCE, Rig, Setup};
use minicbor::bytes::{ByteArray, ByteVec};
use minicbor::{Decode, Decoder};

/// Hello: versions 1 to 1, a random name, the program.
const HELLO: &str = "19000000 84 01 01 50 07070707070707070707070707070707 64 74657374";
/// Login with `pin-of-the-pool`.
const LOGIN: &str = "13000000 82 04 81 4f 70696e2d6f662d7468652d706f6f6c";
/// Catalogue; nothing is known.
const CATALOGUE: &str = "04000000 82 03 81 00";
/// Execute: one item, of Use: Sign, the stand-in's private key `ec`, CKM_ECDSA without a parameter, 32 bytes; within a
/// minute.
const SIGN: &str = "5e000000 82 00 81 81 82
    82 00 84 00
        82 00 81 82 03 5820 adb968e82ad7e211e278c85dc3649e9596f694d352f4956a84a4dca2308ecb58
        82 191041 82 00 80
        5820 0707070707070707070707070707070707070707070707070707070707070707
    1a03938700";

/// The answer to Hello; 0 is a Welcome.
#[derive(Decode)]
enum Greeting {
    #[n(0)]
    Welcome(#[n(0)] Welcome),
}

#[derive(Decode)]
#[cbor(array)]
struct Welcome {
    #[n(0)]
    version: u16,
    #[n(2)]
    pin_login: bool,
    #[n(3)]
    read_only: bool,
}

/// Bare, for version 1 tells no epoch.
#[derive(Decode)]
enum Answer {
    #[n(0)]
    Done,
    #[n(2)]
    Results(#[n(0)] Vec<Result<Outcome, Unread>>),
    #[n(5)]
    Catalogue(#[n(0)] Option<View>),
}

#[derive(Decode)]
enum Outcome {
    #[n(1)]
    Bytes(#[n(0)] ByteVec),
}

#[derive(Decode)]
#[cbor(array)]
struct View {
    #[n(0)]
    epoch: u64,
    #[n(1)]
    info: Info,
    #[n(2)]
    objects: Vec<Object>,
    #[n(3)]
    logged_in: bool,
}

/// Its last fields are a list of mechanisms, how many operations run at once, and the least and greatest length of a PIN.
#[derive(Decode)]
#[cbor(array)]
struct Info {
    #[n(0)]
    label: String,
    #[n(9)]
    mechanisms: Vec<Unread>,
    #[n(10)]
    lanes: u32,
    #[n(11)]
    pin_length: (u64, u64),
}

#[derive(Decode)]
#[cbor(array)]
struct Object {
    #[n(0)]
    id: Id,
    #[n(1)]
    attributes: Vec<Attribute>,
}

#[derive(Decode)]
#[cbor(array)]
struct Id {
    #[n(0)]
    class: u64,
    #[n(1)]
    name: ByteArray<32>,
}

#[derive(Decode)]
#[cbor(array)]
struct Attribute {
    #[n(0)]
    kind: u64,
    #[n(1)]
    value: ByteVec,
}

/// What a version 1 read as well, and this test does not.
struct Unread;

impl<C> Decode<'_, C> for Unread {
    fn decode(decoder: &mut Decoder<'_>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        decoder.skip().map(|()| Self)
    }
}

/// A connection of such a program.
struct Program(UnixStream);

impl Program {
    /// Sends a recorded frame, and reads the one that answers it: its length, then all of it and no more.
    fn says<T: for<'b> Decode<'b, ()>>(&mut self, recorded: &str) -> T {
        self.0.write_all(&bytes(recorded)).unwrap();
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut frame = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut frame).unwrap();
        let mut decoder = Decoder::new(&frame);
        let answer = decoder
            .decode()
            .unwrap_or_else(|e| panic!("{recorded}: {e}: {frame:02x?}"));
        assert_eq!(decoder.position(), frame.len(), "{recorded}: {frame:02x?}");
        answer
    }
}

fn bytes(recorded: &str) -> Vec<u8> {
    let digits: Vec<_> = recorded.chars().filter_map(|c| c.to_digit(16)).collect();
    let byte = |pair: &[u32]| (16 * pair[0] + pair[1]) as u8;
    digits.chunks(2).map(byte).collect()
}

#[test]
fn a_program_of_version_1_logs_in_finds_and_signs() {
    const CKO_PRIVATE_KEY: u64 = 3;
    const CKA_LABEL: u64 = 3;
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let _tokens = rig.stand_in("vendor", &["a", "b"]);
    rig.start();
    let stream = UnixStream::connect(rig.path("hsmux.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut program = Program(stream);

    let Greeting::Welcome(welcome) = program.says(HELLO);
    assert_eq!(welcome.version, 1);
    assert!(welcome.pin_login && !welcome.read_only);

    assert!(matches!(program.says(LOGIN), Answer::Done));

    let Answer::Catalogue(Some(view)) = program.says(CATALOGUE) else {
        panic!("no catalogue");
    };
    assert!(view.logged_in && view.epoch > 0);
    assert_eq!(view.info.label, "web");
    assert!(view.info.lanes > 0 && !view.info.mechanisms.is_empty());
    assert!(view.info.pin_length.0 <= view.info.pin_length.1);
    let is_ec = |object: &&Object| {
        let mut attributes = object.attributes.iter();
        let named = attributes.any(|a| a.kind == CKA_LABEL && **a.value == *b"ec");
        object.id.class == CKO_PRIVATE_KEY && named
    };
    let ec = view.objects.iter().find(is_ec).expect("the key ec");
    assert!(
        bytes(SIGN).windows(32).any(|part| part == *ec.id.name),
        "another key than the recorded one: {:02x?}",
        ec.id.name
    );

    let Answer::Results(results) = program.says(SIGN) else {
        panic!("no results");
    };
    let [Ok(Outcome::Bytes(signature))] = &results[..] else {
        panic!("no signature");
    };
    assert_eq!(signature.len(), 64);
}
