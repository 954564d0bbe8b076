//! Frames: what is written is read, and nothing that is read makes this end fall.

mod common;

use bytes::Bytes;
use common::{mutate, sign};
use hsmux_token::{
    Attributes, Error, Kind, Made, MechanismInfo, Object, ObjectId, Operation, Outcome, Scope,
    Secret, TokenInfo, ck,
};
use hsmux_wire::frame::{
    FrameBuffer, MAX_FRAME, decode, decode_call, decode_reply, encode, encode_reply,
};
use hsmux_wire::{Answer, Call, Item, Reply};

fn written(call: &Call) -> Vec<u8> {
    let mut out = Vec::new();
    encode(call, &mut out).unwrap();
    out
}

fn samples() -> Vec<Vec<u8>> {
    let template = Attributes::default()
        .with_flag(ck::CKA_TOKEN, true)
        .with(ck::CKA_LABEL, b"label".to_vec());
    let item = |operation| Item {
        behalf: None,
        operation,
        remaining_us: 1_000_000,
    };
    let made = Made {
        session: None,
        object: Object {
            id: ObjectId::of_certificate(b"x"),
            attributes: template.clone(),
        },
    };
    let reply = Reply::new(
        9,
        Answer::Results(vec![
            Ok(Outcome::Objects(vec![made])),
            Err(Error::vendor("C_Sign", ck::CKR_DEVICE_ERROR)),
            Ok(Outcome::Bytes(vec![1; 64].into())),
        ]),
    );
    let mut replies = [Vec::new(), Vec::new()];
    encode_reply(2, &reply, &mut replies[0]).unwrap();
    encode_reply(1, &reply, &mut replies[1]).unwrap();
    let mut samples = vec![
        written(&Call::Execute(vec![
            item(sign(&[5; 300])),
            item(Operation::Create {
                template,
                near: None,
            }),
            item(Operation::Random { len: 5 }),
        ])),
        written(&Call::Catalogue { known: 77 }),
        written(&Call::Login(Secret::new(b"1234".to_vec()))),
        written(&Call::Admin(b"{}".to_vec().into())),
    ];
    samples.extend(replies);
    samples
}

#[test]
fn frames_come_out_as_they_went_in_however_they_are_cut() {
    let samples = samples();
    let stream = samples.concat();
    for step in [1, 2, 3, 7, 64, stream.len()] {
        let mut buffer = FrameBuffer::default();
        let mut frames = Vec::new();
        for part in stream.chunks(step) {
            buffer.extend(part);
            while let Some(frame) = buffer.next(MAX_FRAME).unwrap() {
                frames.push(frame);
            }
        }
        let bare: Vec<_> = samples.iter().map(|sample| sample[4..].to_vec()).collect();
        assert_eq!(frames, bare, "in steps of {step}");
    }
}

#[test]
fn byte_strings_are_slices_of_their_frame() {
    let frame = Bytes::from(written(&Call::Admin(vec![3; 1000].into()))).slice(4..);
    let Call::Admin(blob) = decode(&frame).unwrap() else {
        panic!("another call");
    };
    assert!(frame.as_ptr_range().contains(&blob.0.as_ptr()));
}

#[test]
fn a_version_1_answer_is_bare_and_has_no_epoch() {
    let reply = Reply::new(12, Answer::Done);
    for (version, epoch) in [(1, 0), (2, 12)] {
        let mut out = Vec::new();
        encode_reply(version, &reply, &mut out).unwrap();
        let read = decode_reply(version, &Bytes::from(out).slice(4..)).unwrap();
        assert_eq!(read.epoch, epoch);
        assert!(matches!(read.answer, Answer::Done));
    }
}

/// As much of an answer as a client may know.
#[derive(minicbor::Decode)]
#[cbor(array)]
struct Before {
    #[n(0)]
    epoch: u64,
}

#[test]
fn a_client_that_knows_no_cpu_reads_answers_all_the_same() {
    let silent = Reply::new(12, Answer::Done);
    let telling = Reply {
        cpu: Some(7),
        ..silent.clone()
    };
    for (reply, fields) in [(&silent, 2), (&telling, 3)] {
        let mut out = Vec::new();
        encode_reply(2, reply, &mut out).unwrap();
        assert_eq!(out[4], 0x80 | fields, "an array of so many");
        let read = decode_reply(2, &Bytes::from(out.clone()).slice(4..)).unwrap();
        assert_eq!(read.cpu, reply.cpu);
        assert_eq!(minicbor::decode::<Before>(&out[4..]).unwrap().epoch, 12);
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_in_both_directions() {
    let mut buffer = FrameBuffer::default();
    buffer.extend(&u32::MAX.to_le_bytes());
    assert_eq!(buffer.next(MAX_FRAME).unwrap_err().kind(), Kind::Protocol);

    let mut out = b"before".to_vec();
    let call = Call::Admin(vec![0; MAX_FRAME].into());
    let error = encode(&call, &mut out).unwrap_err();
    assert_eq!(error.scope(), Scope::Request);
    assert_eq!(out, b"before");
}

/// Whatever the epoch is, and for a token with many mechanisms: some answers begin with the bytes of a call with a PIN.
#[test]
fn long_answers_of_all_kinds_arrive() {
    let results = || Answer::Results(vec![Ok(Outcome::Bytes(vec![7; 5000].into()))]);
    let mechanism = MechanismInfo {
        kind: 1 << 31,
        min_key: 256,
        max_key: 4096,
        flags: 1,
    };
    let info = TokenInfo {
        mechanisms: vec![mechanism; 500],
        ..TokenInfo::default()
    };
    let mut frames: Vec<_> = (0..30)
        .map(|epoch| {
            let mut out = Vec::new();
            encode_reply(2, &Reply::new(epoch, results()), &mut out).unwrap();
            out
        })
        .collect();
    for answer in [Answer::Started(info.clone()), Answer::Info(info), results()] {
        let mut out = Vec::new();
        encode(&answer, &mut out).unwrap();
        frames.push(out);
    }
    for frame in frames {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&frame);
        assert_eq!(buffer.next(MAX_FRAME).unwrap().unwrap(), frame[4..]);
    }
}

#[test]
fn what_stands_after_an_item_is_refused() {
    let mut frame = written(&Call::Info);
    frame.push(0);
    let error = decode::<Call>(&Bytes::from(frame).slice(4..)).unwrap_err();
    assert_eq!(error.kind(), Kind::Protocol);
}

#[test]
fn garbage_is_an_error_and_never_a_panic() {
    let mut seed = 1;
    for sample in samples() {
        for cut in 0..sample.len() - 4 {
            let part = Bytes::copy_from_slice(&sample[4..4 + cut]);
            assert!(decode::<Call>(&part).is_err());
            assert!(decode_reply(2, &part).is_err());
        }
        for _ in 0..5000 {
            let mut mutated = sample.clone();
            mutate(&mut seed, &mut mutated);
            let mut buffer = FrameBuffer::default();
            buffer.extend(&mutated);
            while let Ok(Some(frame)) = buffer.next(MAX_FRAME) {
                let frame = Bytes::from(frame);
                let _ = decode::<Call>(&frame);
                let _ = decode_reply(1, &frame);
                let _ = decode_reply(2, &frame);
            }
        }
    }
}

/// A PIN may come in two reads, behind the end of another frame.
#[test]
fn a_secret_in_pieces_is_put_together() {
    let first = written(&Call::Info);
    let login = written(&Call::Login(Secret::new(b"a PIN in pieces".to_vec())));
    let stream = [first.clone(), login.clone(), first.clone()].concat();
    for cut in 1..stream.len() {
        let mut buffer = FrameBuffer::of_calls();
        let mut found = Vec::new();
        for part in [&stream[..cut], &stream[cut..]] {
            buffer.extend(part);
            while let Some(frame) = buffer.next(MAX_FRAME).unwrap() {
                found.push(frame);
            }
        }
        assert_eq!(found, [&first[4..], &login[4..], &first[4..]], "{cut}");
    }
}

/// 16 MiB of operations would need a gigabyte once decoded.
#[test]
fn a_call_of_too_many_items_is_refused_before_it_is_decoded() {
    let one = Item {
        behalf: None,
        operation: Operation::Random { len: 1 },
        remaining_us: 1,
    };
    let mut item = Vec::new();
    minicbor::encode(&one, &mut item).unwrap();
    let call = |count: u32| {
        let head = [&[0x82, 0, 0x81, 0x9a][..], &count.to_be_bytes()].concat();
        [head, item.repeat(count as usize)].concat()
    };
    assert!(decode_call(call(70_000)).is_err());
    let refused = decode_call(call(1_000_000)).unwrap_err().to_string();
    assert!(refused.contains("more than 65536 data items"), "{refused}");
    let Ok(Call::Execute(items)) =
        decode_call(written(&Call::Execute(vec![one; 1024]))[4..].into())
    else {
        panic!("as many as may be");
    };
    assert_eq!(items.len(), 1024);
}
