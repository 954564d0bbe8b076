//! Streams of frames, of either direction.

use hsmux_token::{
    Class, Error, Estimate, KeyCapacity, Kind, Made, Mechanism, Object, ObjectChanges, ObjectRef,
    Operation, Outcome, Secret, SessionObject, Snapshot, Times, TokenInfo, Verb,
};
use hsmux_wire::frame::encode_reply;
use hsmux_wire::{Answer, Call, Hello, Item, Reply, View, Welcome};
// The numbers of PKCS#11 carry their own prefixes.
#[allow(clippy::wildcard_imports)]
use hsmux_token::ck::*;

use super::operations::{KEY, item, operations, template, uses};
use super::{BIT, IN_PIECES, WHOLE, after, framed, write};

pub fn frames() {
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
        Call::Estimates(vec![KEY]),
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
            is_partial: false,
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
        Answer::Seen(ObjectChanges {
            is_partial: false,
            made: vec![object],
            gone: vec![KEY],
        }),
        Answer::Pace(Vec::new()),
        Answer::Linked(info, 2),
        Answer::Estimates(vec![Estimate {
            members: [1, 0, 0, 0],
            capacity: KeyCapacity {
                uses: 2,
                members: 1,
            },
            is_awaited: true,
            times: Some(Times {
                result_us: 5,
                each_us: 3,
            }),
        }]),
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

pub fn handed() {
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
    let of_other = framed(&Call::Execute(vec![item(other.clone())]));
    write("direct", "other-key", after(WHOLE, &of_other));
    let two = uses().into_iter().take(2).map(item).collect();
    write("direct", "two", after(WHOLE, &framed(&Call::Execute(two))));
    shared_frames(item(other));
    let login = framed(&Call::Login(Secret::new(b"1234".to_vec())));
    write("direct", "login", after(IN_PIECES, &login));
}

/// Several uses in one frame: as many as it may have, one more, a refused one among them, and a frame that is cut.
fn shared_frames(refused: Item) {
    let several = |count| uses().into_iter().cycle().take(count).map(item).collect();
    let write = |name: &str, uses: Vec<Item>| {
        let frame = framed(&Call::Execute(uses));
        for (how, kind) in [(WHOLE, "whole"), (IN_PIECES, "pieces"), (BIT, "shared")] {
            write("direct", &format!("{name}-{kind}"), after(how, &frame));
        }
        let cut = after(BIT, &frame[..frame.len() * 2 / 3]);
        write("direct", &format!("{name}-cut"), cut);
    };
    write("most-uses", several(16));
    write("too-many-uses", several(17));
    let mut mixed: Vec<Item> = several(15);
    mixed.insert(7, refused);
    write("one-refused", mixed);
}
