//! Writes seeds for the fuzz targets from real encoders: `cargo run -p hsmux-fuzz-targets --example seeds`.
//!
//! Seeds that need a private key are not made here: `jws`, `jwk` and `audit_lines` have theirs from `data/`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hsmux_audit::{Actor, Event, Keeper, OnFailure, Settings, Trail};
use hsmux_smartcard::dkek::custodian;
use hsmux_smartcard::dkek::{
    Dkek, DkekShare, KeyMaterial, WrappedKey, WrappedKeyFile, WrappedKind,
};
use hsmux_smartcard::pkcs15::{
    CertificateDescription, DataDescription, KeyDescription, KeyFamily, KeyUsage, ObjectAttributes,
    TokenInfo as CardInfo,
};
use hsmux_smartcard::provision::initialise;
use hsmux_smartcard::tlv::{Tlv, tlv};
use hsmux_smartcard::{Card, Curve, FileId, Initialize, KeyPair, KeyPairKind, KeyReference, SoPin};
// The numbers of PKCS#11 carry their own prefixes.
#[allow(clippy::wildcard_imports)]
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Class, Error, Gcm, Kind, Made, Mechanism, Oaep, Object, ObjectId, ObjectRef,
    Operation, Outcome, Params, Pss, Secret, Seen, SessionObject, Snapshot, TokenInfo, Verb,
};
use hsmux_vcard::{Profile, Slot};
use hsmux_wire::frame::encode_reply;
use hsmux_wire::{Answer, Call, Hello, Item, Reply, View, Welcome};

/// The input's first byte: the rest is a stream that comes as a whole.
const WHOLE: u8 = 0;
/// The same, in pieces of few bytes.
const IN_PIECES: u8 = 2;
/// Version 2 of answers; a connection that others hear, too.
const BIT: u8 = 0x40;

const KEY: ObjectId = ObjectId {
    class: Class::PRIVATE_KEY,
    name: [7; 32],
};

fn main() {
    frames();
    handed();
    memory();
    cards();
    certificates();
    dkek_files();
    configuration();
    journal();
    trail();
    text();
}

fn write(target: &str, name: &str, bytes: impl AsRef<[u8]>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let folder = folder.join(target);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), bytes).expect("a seed");
}

fn after(how: u8, rest: &[u8]) -> Vec<u8> {
    [&[how], rest].concat()
}

fn framed<T: minicbor::Encode<()>>(message: &T) -> Vec<u8> {
    let mut item = Vec::new();
    minicbor::encode(message, &mut item).expect("an item");
    let length = u32::try_from(item.len()).expect("a frame");
    [&length.to_le_bytes()[..], &item].concat()
}

fn mechanisms() -> Vec<Mechanism> {
    let with = |kind, params| Mechanism { kind, params };
    vec![
        Mechanism::plain(CKM_ECDSA),
        Mechanism::plain(CKM_SHA256_RSA_PKCS),
        with(CKM_AES_CBC_PAD, Params::Bytes(vec![1; 16].into())),
        with(CKM_AES_CMAC_GENERAL, Params::Number(8)),
        with(
            CKM_RSA_PKCS_PSS,
            Params::Pss(Pss {
                hash: CKM_SHA256,
                mgf: 2,
                salt: 32,
            }),
        ),
        with(
            CKM_RSA_PKCS_OAEP,
            Params::Oaep(Oaep {
                hash: CKM_SHA256,
                mgf: 2,
                label: vec![3; 4].into(),
            }),
        ),
        with(
            CKM_AES_GCM,
            Params::Gcm(Gcm {
                iv: vec![1; 12].into(),
                aad: vec![2; 5].into(),
                tag_bits: 128,
            }),
        ),
        with(
            CKM_AES_CTR,
            Params::Ctr {
                bits: 32,
                block: vec![1; 16].into(),
            },
        ),
        with(
            CKM_ECDH1_DERIVE,
            Params::Ecdh {
                kdf: 1,
                shared: Vec::new().into(),
                public: vec![4; 65].into(),
            },
        ),
        with(
            CKM_AES_CBC_ENCRYPT_DATA,
            Params::CbcData {
                iv: vec![0; 16].into(),
                data: vec![5; 32].into(),
            },
        ),
        with(
            CKM_AES_ECB_ENCRYPT_DATA,
            Params::StringData(vec![6; 16].into()),
        ),
        with(
            CKM_EDDSA,
            Params::Eddsa {
                prehash: true,
                context: b"context".to_vec().into(),
            },
        ),
    ]
}

fn template() -> Attributes {
    Attributes::default()
        .with_number(CKA_CLASS, CKO_PRIVATE_KEY)
        .with_flag(CKA_TOKEN, true)
        .with_flag(CKA_SENSITIVE, true)
        .with(CKA_LABEL, b"web".to_vec())
        .with(CKA_ID, vec![1, 2, 3])
        .with_number(CKA_MODULUS_BITS, 2048)
}

fn uses() -> Vec<Operation> {
    let each = mechanisms()
        .into_iter()
        .zip([Verb::Sign, Verb::Decrypt, Verb::Encrypt].iter().cycle());
    each.map(|(mechanism, verb)| Operation::Use {
        verb: *verb,
        key: ObjectRef::Token(KEY),
        mechanism,
        data: vec![9; 32].into(),
    })
    .collect()
}

fn operations() -> Vec<Operation> {
    let key = ObjectRef::Token(KEY);
    let session = ObjectRef::Session(SessionObject {
        owner: 5,
        handle: 6,
    });
    let mechanism = Mechanism::plain(CKM_AES_KEY_GEN);
    let mut all = uses();
    all.extend([
        Operation::Random { len: 32 },
        Operation::Generate {
            mechanism: mechanism.clone(),
            template: template(),
        },
        Operation::GeneratePair {
            mechanism: Mechanism::plain(CKM_EC_KEY_PAIR_GEN),
            public: template(),
            private: template(),
        },
        Operation::Derive {
            key,
            mechanism: mechanisms()[8].clone(),
            template: template(),
        },
        Operation::Wrap {
            wrapping: key,
            mechanism: Mechanism::plain(CKM_AES_KEY_WRAP),
            key: session,
        },
        Operation::Unwrap {
            unwrapping: session,
            mechanism,
            wrapped: vec![1; 40].into(),
            template: template(),
        },
        Operation::Create {
            template: template(),
            near: Some(key),
        },
        Operation::Copy {
            object: session,
            template: Attributes::default(),
        },
        Operation::Destroy { object: key },
        Operation::SetAttributes {
            object: key,
            template: template(),
        },
        Operation::Read { object: session },
    ]);
    all
}

fn item(operation: Operation) -> Item {
    Item {
        operation,
        remaining_us: 30_000_000,
    }
}

fn frames() {
    let mut calls = vec![
        Call::Info,
        Call::Objects,
        Call::Catalogue { known: 7 },
        Call::Login(Secret::new(b"1234".to_vec())),
        Call::Logout,
        Call::Admin(br#"{"status":{}}"#.to_vec().into()),
        Call::Start(Secret::new(vec![1, 2, 3])),
        Call::Look,
        Call::Pace,
        Call::HandOver(KEY),
        Call::Execute(uses().into_iter().map(item).collect()),
    ];
    calls.extend(
        operations()
            .into_iter()
            .map(|one| Call::Execute(vec![item(one)])),
    );
    for (at, call) in calls.iter().enumerate() {
        write("calls", &format!("call-{at}"), after(WHOLE, &framed(call)));
    }
    let hello = Hello {
        oldest: 1,
        newest: 2,
        client: [1; 16],
        program: "openssl".into(),
    };
    let login = [framed(&hello), framed(&calls[3]), framed(&calls[0])].concat();
    write("calls", "greeting-and-login", after(IN_PIECES, &login));
    write(
        "calls",
        "too-long",
        after(IN_PIECES, &[framed(&hello), vec![0xff; 9]].concat()),
    );
    replies();
}

fn replies() {
    let object = Object {
        id: KEY,
        attributes: template(),
    };
    let made = Made {
        session: Some(SessionObject {
            owner: 1,
            handle: 2,
        }),
        object: object.clone(),
    };
    let info = TokenInfo {
        label: "pool".into(),
        serial: "1".into(),
        slot: Some("slot".into()),
        ..TokenInfo::default()
    };
    let answers = vec![
        Answer::Done,
        Answer::Failed(Error::vendor("C_Sign", CKR_DEVICE_ERROR)),
        Answer::Results(vec![
            Ok(Outcome::Done),
            Ok(Outcome::Bytes(vec![1; 64].into())),
            Ok(Outcome::Objects(vec![made])),
            Err(Error::request(Kind::Forbidden, "no")),
        ]),
        Answer::Info(info.clone()),
        Answer::Objects(Snapshot {
            epoch: 3,
            ..Snapshot::default()
        }),
        Answer::Catalogue(None),
        Answer::Catalogue(Some(View {
            epoch: 9,
            info: info.clone(),
            objects: vec![object.clone()],
            logged_in: true,
        })),
        Answer::Admin(b"{}".to_vec().into()),
        Answer::Started(info.clone()),
        Answer::Doing("C_Initialize".into()),
        Answer::Seen(Seen {
            made: vec![object],
            gone: vec![KEY],
        }),
        Answer::Pace(Vec::new()),
        Answer::Linked(info, 2),
    ];
    for (at, answer) in answers.into_iter().enumerate() {
        let reply = Reply::new(5, answer);
        for (version, bit) in [(1, 0), (2, BIT)] {
            let mut out = Vec::new();
            encode_reply(version, &reply, &mut out).expect("a frame");
            write(
                "replies",
                &format!("answer-{at}-v{version}"),
                after(bit, &out),
            );
        }
    }
    let welcome = Welcome {
        version: 2,
        boot: 1,
        pin_login: true,
        read_only: false,
        hands_over: Some(true),
    };
    write(
        "replies",
        "welcome",
        after(BIT | IN_PIECES, &framed(&welcome)),
    );
}

fn handed() {
    for (at, operation) in operations().into_iter().enumerate() {
        let frame = framed(&Call::Execute(vec![item(operation)]));
        for (how, name) in [(WHOLE, "whole"), (IN_PIECES, "pieces"), (BIT, "shared")] {
            if at < 12 || how == WHOLE {
                write("direct", &format!("use-{at}-{name}"), after(how, &frame));
            }
        }
    }
    let other = Operation::Use {
        verb: Verb::Sign,
        key: ObjectRef::Token(KEY.with_class(Class::SECRET_KEY)),
        mechanism: Mechanism::plain(CKM_ECDSA),
        data: vec![0; 32].into(),
    };
    write(
        "direct",
        "other-key",
        after(WHOLE, &framed(&Call::Execute(vec![item(other)]))),
    );
    let two = uses().into_iter().take(2).map(item).collect();
    write("direct", "two", after(WHOLE, &framed(&Call::Execute(two))));
    let login = framed(&Call::Login(Secret::new(b"1234".to_vec())));
    write("direct", "login", after(IN_PIECES, &login));
}

/// The layouts are those of `hsmux_pkcs11::entry::fuzzing`.
fn memory() {
    let array = |mode: u8, bytes: &[u8]| [&[mode, bytes.len() as u8], bytes].concat();
    let mut rows = vec![6];
    for (at, (kind, value)) in [
        (0, &[3; 8][..]),
        (1, &[1]),
        (3, b"web"),
        (19, &[1; 16]),
        (20, &[1; 24]),
        (4, b""),
    ]
    .iter()
    .enumerate()
    {
        rows.extend([&[*kind], &array(4, value)[..]].concat());
        let name = format!("one-{at}");
        write(
            "templates",
            &name,
            [&[1, *kind], &array(4, value)[..], &[5, 1, 2, 3]].concat(),
        );
    }
    rows.extend([5, 1, 2, 3, 0, 1, 9]);
    write("templates", "all", &rows);
    for mode in 0..4 {
        write(
            "templates",
            &format!("wrong-{mode}"),
            [&[1, 3], &array(mode, b"web")[..], &[4, 1, 2]].concat(),
        );
        write(
            "templates",
            &format!("no-array-{mode}"),
            [&[0x81, 3], &array(4, b"web")[..], &[mode]].concat(),
        );
    }
    for (at, entry) in hsmux_token::entries().iter().enumerate() {
        let mut input = vec![at as u8, 1];
        input.extend(array(4, &[4; 16]));
        input.extend(array(4, b"and"));
        input.extend([0; 16]);
        input.extend([1; 17]);
        let name = entry.name.to_ascii_lowercase();
        write("mechanisms", &name, &input);
        let number = match entry.kind {
            CKM_AES_CTR | CKM_RSA_PKCS_PSS => 24,
            CKM_AES_CMAC_GENERAL => 8,
            _ => continue,
        };
        write(
            "mechanisms",
            &format!("{name}-number"),
            [&[at as u8, 1], &array(4, &vec![1; number])[..]].concat(),
        );
    }
}

fn cards() {
    let dkek = Dkek::from_shares([&DkekShare::from([9; 32])]);
    for kind in [
        WrappedKind::Rsa,
        WrappedKind::RsaCrt,
        WrappedKind::Ec,
        WrappedKind::Aes,
    ] {
        let values = kind.fields().iter().map(|_| vec![1; 32].into()).collect();
        let key = KeyMaterial::new(kind, values).expect("fields");
        let key = WrappedKey::seal(&key, &[0x10], &dkek).expect("a wrapped key");
        write(
            "key_blobs",
            &format!("wrapped-{kind:?}"),
            after(0, key.as_bytes()),
        );
        let file = WrappedKeyFile {
            key,
            description: Some(tlv(0x30, &[b"description"])),
            certificate: Some(tlv(0x67, &[b"request"])),
        };
        write(
            "key_blobs",
            &format!("file-{kind:?}"),
            after(0, &file.to_der()),
        );
        let fields = [&[0, 32], &[2; 32][..]].concat();
        let clear = [&[1, kind as u8, 1, 0][..], &fields.repeat(8)].concat();
        write("key_blobs", &format!("clear-{kind:?}"), clear);
    }
    write(
        "key_blobs",
        "clear-aes-16",
        [&[1, WrappedKind::Aes as u8, 0, 16][..], &[3; 16]].concat(),
    );
    let info = CardInfo::labelled("card").encode();
    write("tlv", "token-info", &info);
    let data = DataDescription {
        object: ObjectAttributes::labelled("notes"),
        application: "hsmux".into(),
        oid: Some(vec![0x2b, 6]),
        path: vec![0xcf, 1],
    };
    write("tlv", "data", data.encode());
    let certificate = CertificateDescription {
        object: ObjectAttributes::labelled("root"),
        id: vec![1, 2],
        authority: true,
        path: vec![0xca, 1],
    };
    write("tlv", "certificate", certificate.encode());
    for (name, family) in [("rsa", KeyFamily::Rsa), ("ec", KeyFamily::Ec)] {
        let key = KeyDescription::new(
            family,
            KeyReference(1),
            "web",
            &[1, 2],
            KeyUsage::SIGN,
            2048,
        );
        write("tlv", &format!("key-{name}"), key.encode());
    }
    write(
        "tlv",
        "nested",
        tlv(
            0x7f21,
            &[
                &tlv(0x7f4e, &[&tlv(0x42, &[b"DECVCA"])]),
                &tlv(0x5f37, &[&[1; 64]]),
            ],
        ),
    );
    write("tlv", "long", tlv(0x30, &[&[7; 300]]));
    write("tlv", "select", [0, 0xa4, 4, 0, 2, 0x3f, 0]);
    write("tlv", "response", [1, 2, 0x90, 0]);
}

/// A certificate of a card in memory, and the request of a key that it has made.
fn certificates() {
    let card = hsmux_vcard::Card::new(Profile::new("VC000001")).expect("a card");
    let mut card = Card::new(Slot::new(card).channel());
    card.select().expect("the application");
    let file = card
        .read_file(FileId::DEVICE_CERTIFICATES)
        .expect("its certificates");
    write("cvc", "device", &*file);
    let pin = || Secret::new(b"648219".to_vec());
    let how = Initialize {
        so_pin: SoPin::from_hex(b"3537363231383830").expect("digits"),
        pin: pin(),
        retries: 3,
        dkek_shares: None,
        public_keys: None,
        allow_reset: true,
        transport_pin: false,
    };
    initialise::initialise(&mut card, "VC000001", &how, "seeds", false).expect("a card with PINs");
    card.select().expect("the application");
    card.verify(&pin()).expect("the PIN");
    let kinds = [
        ("p256", KeyPairKind::Ec(&Curve::SECP256R1)),
        ("brainpool", KeyPairKind::Ec(&Curve::BRAINPOOLP256R1)),
        ("rsa", KeyPairKind::Rsa { bits: 2048 }),
    ];
    for (at, (name, kind)) in kinds.into_iter().enumerate() {
        let pair = KeyPair::new(kind, "VC000001");
        let request = card.generate_key_pair(KeyReference(1 + at as u8), &pair);
        let request = request.expect("a key");
        write("cvc", &format!("request-{name}"), &request);
        // The certificate inside, alone: one without an outer signature.
        let (outer, _) = Tlv::first(&request).expect("a request");
        let inner = outer.child(0x7F21).expect("a certificate");
        write("cvc", &format!("inner-{name}"), inner.raw);
    }
    write("cvc", "x509", [0x30, 3, 0x30, 1, 0]);
}

fn dkek_files() {
    let share = [&b"Salted__"[..], &[5; 56]].concat();
    write("dkek_files", "share", &share);
    write("dkek_files", "share-cut", &share[..63]);
    let (_, shares) = custodian::split(2, 3).expect("shares");
    for (at, share) in shares.iter().enumerate() {
        write(
            "dkek_files",
            &format!("password-{at}"),
            share.to_text().as_bytes(),
        );
    }
    // The fields of `Backup`, in CBOR: two files, no key.
    let mut content = vec![0xa5, 0, 0x61, b'A', 1, 0x61, b'B', 2, 0x48];
    content.extend([1; 8]);
    content.extend([
        3, 0x80, 4, 0x82, 0x82, 0x19, 0xcf, 1, 0x41, 9, 0x82, 0x19, 0xc9, 1, 0x40,
    ]);
    write("dkek_files", "backup-content", &content);
    let backup = hsmux_smartcard::fuzzing::parse_content(&content).expect("a backup");
    write("dkek_files", "backup", backup.encode().expect("a backup"));
}

fn journal() {
    let lines = hsmux_pool::replicate::fuzzing::example();
    let all = lines.split_inclusive(|byte| *byte == b'\n');
    for (at, line) in all.clone().enumerate() {
        write("journal", &format!("line-{at}"), line);
    }
    let until: Vec<&[u8]> = all.take(4).collect();
    for (name, lines) in [("all", &lines), ("undecided", &until.concat())] {
        write("journal", name, lines);
        let one = hsmux_pool::replicate::fuzzing::compacted(lines).expect("a journal");
        write("journal", &format!("{name}-compacted"), one);
    }
    write("journal", "torn", &lines[..lines.len() - 9]);
}

/// A trail of two runs, whose state folder is forgotten; the target knows its lines and its public key.
fn trail() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        file: folder.path().join("audit.log"),
        state: folder.path().to_owned(),
        uses: true,
        on_failure: OnFailure::Stop,
        checkpoint: Duration::from_millis(50),
    };
    let actor = Arc::new(Actor::process(1000, 7, "openssl"));
    for run in 0..2 {
        let trail = Trail::open(&settings).expect("a trail");
        for _ in 0..=run {
            let used = Event::key_use(&actor, "C_Sign", "00ff").mechanism(Some("CKM_ECDSA".into()));
            trail.commit(used.took(250)).expect("a line");
        }
        trail.close();
    }
    let lines = fs::read(&settings.file).expect("the trail");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    fs::write(data.join("trail.jsonl"), &lines).expect("the trail");
    let key = Keeper::of(&settings.state).public_key().expect("its key");
    fs::write(data.join("trail.pub"), key.to_string()).expect("its key");
    let all: Vec<_> = lines.split_inclusive(|byte| *byte == b'\n').collect();
    for (at, line) in all.iter().enumerate() {
        write("audit_lines", &format!("line-{at}"), line);
    }
    write("audit_lines", "all", &lines);
    write("audit_lines", "torn", &lines[..lines.len() - 9]);
    write(
        "audit_lines",
        "without-the-second",
        [&all[..1], &all[2..]].concat().concat(),
    );
    write(
        "audit_lines",
        "from-the-middle",
        all[all.len() / 2..].concat(),
    );
    write(
        "audit_lines",
        "older-lines",
        [b"{\"old\":1}\n", &lines[..]].concat(),
    );
}

fn configuration() {
    write("configuration", "example", hsmux_pool::config::example());
    // Each section by itself, with all of its keys.
    let text = hsmux_pool::config::full_example();
    let lines = text
        .lines()
        .map(|line| line.strip_prefix('#').unwrap_or(line));
    let mut sections = vec![String::new()];
    for line in lines.filter(|line| !line.starts_with(' ')) {
        if line.starts_with('[') {
            sections.push(String::new());
        }
        let last = sections.last_mut().expect("a section");
        last.push_str(line);
        last.push('\n');
    }
    for (at, section) in sections
        .iter()
        .enumerate()
        .filter(|(_, section)| !section.is_empty())
    {
        write("configuration", &format!("section-{at}"), section);
    }
    write("configuration", "everything", sections.concat());
}

fn text() {
    let uris = [
        "pkcs11:token=hsm1;object=web;type=private;id=%01%02",
        "pkcs11:model=SoftHSM%20v2;manufacturer=A;serial=12;library-version=2.6;slot-id=3",
        "pkcs11:library-manufacturer=a;library-description=b;slot-manufacturer=c;slot-description=d",
        "PKCS11:?pin-source=file:/etc/pin&module-name=softhsm2&module-path=/usr/lib/x.so",
        "pkcs11:object=a%3bb%2Fc?pin-value=123456",
        "pkcs11:type=secret-key;type=cert",
        "pkcs11:",
        "pkcs11:object=%ff",
    ];
    for (at, uri) in uris.iter().enumerate() {
        write("uris", &format!("uri-{at}"), uri);
    }
    let vault = [
        "vault:v1:YWJj",
        "vault:v12:YWJjZA==",
        "vault:v4294967295:",
        "vault:v0:YQ==",
        "orders-2026",
        "label:web",
        "id:0102ff",
        "pkcs11:object=web?pin-value=1234",
    ];
    for (at, one) in vault.iter().enumerate() {
        write("vault", &format!("text-{at}"), one);
    }
    write(
        "vault",
        "signature",
        [0x30, 10, 2, 3, 0, 0x80, 1, 2, 3, 0x7f, 2, 3],
    );
    let batches = [
        r#"{"plaintext":"YWJj","associated_data":"YQ==","key_version":"1"}"#,
        r#"{"batch_input":[{"plaintext":"YQ==","reference":"r"},{"ciphertext":"vault:v1:YWJj"}],"partial_failure_response_code":207}"#,
        r#"{"batch_input":[{"input":"YQ==","prehashed":true,"salt_length":"hash"},{}],"hash_algorithm":"sha2-384"}"#,
        r#"{"batch_input":[{"input":"YQ==","signature":"vault:v1:YQ=="}],"marshaling_algorithm":"jws","x":{"y":[1,null]}}"#,
        r#"{"key_version":null,"batch_input":null}"#,
        r#"{"batch_input":[]}"#,
    ];
    for (at, one) in batches.iter().enumerate() {
        write("batches", &format!("body-{at}"), one);
    }
    let hosts = [
        "a.example:443\n",
        "\na.example",
        "https://a.example/path\na.example",
        "\nb.example:\u{e9}",
        "a.example\na.example\nb.example",
        "\n[2001:db8::1]:443",
        "b.example:443:",
        "\nb.example:abc",
        "\nA.EXAMPLE.:0443",
        "user@a.example",
    ];
    for (at, one) in hosts.iter().enumerate() {
        write("hosts", &format!("host-{at}"), one);
    }
    for (at, client) in ["1.2.3.4:5", "[2001:db8::1]:65535"].iter().enumerate() {
        let client = client.parse().expect("an address");
        for (version, header) in hsmux_gateway::fuzzing::write_proxy(client)
            .iter()
            .enumerate()
        {
            write(
                "proxy",
                &format!("v{}-{at}", version + 1),
                [header, &b"GET /"[..]].concat(),
            );
        }
    }
    write(
        "proxy",
        "unknown",
        "PROXY UNKNOWN ffff::1 ffff::2 1 2\r\nhello",
    );
    write("proxy", "local", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0hello");
    write("proxy", "with-tlv", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10\x01\x02\x03\x04\x05\x06\x07\x08\0\x09\x01\xbb\x04\0\x01\0");
}
