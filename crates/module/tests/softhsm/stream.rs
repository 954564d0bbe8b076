//! Operations of several callers at once, and in sequence.

use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_module::{ModuleToken, Options};
use hsmux_token::ck::*;
use hsmux_token::{Kind, Mechanism, ObjectId, ObjectRef, Operation, Result, Token, Verb};

use crate::fixture::{MODULE, PIN, Run, aes, create, ec_pair, options, soon, token};
use crate::keys::with;
use crate::objects::calls_of;

fn all(token: &ModuleToken, operations: Vec<Operation>) -> Vec<Result<Bytes>> {
    let timed: Vec<(Operation, Instant)> = operations.into_iter().map(|o| (o, soon())).collect();
    let mut answers: Vec<_> = timed.iter().map(|_| None).collect();
    token.execute_all(&timed, &mut |place, result| {
        let bytes = result.and_then(hsmux_token::Outcome::into_bytes);
        assert!(answers[place].replace(bytes).is_none(), "told twice");
    });
    answers.into_iter().map(Option::unwrap).collect()
}

/// Lengths around a block, different IVs, both mechanisms, two keys, and other operations in between.
#[test]
fn together_they_get_what_each_gets_alone() {
    let token = token("together");
    let keys = [1, 2].map(|id| token.made(aes(id)).remove(0).object.id);
    let signing = token.made(ec_pair(3)).remove(1).object.id;
    let mut clear = Vec::new();
    for (n, len) in [0, 1, 15, 16, 17, 31, 32, 256, 300, 4096, 5000_usize]
        .into_iter()
        .enumerate()
    {
        for (key, kind) in [(keys[0], CKM_AES_CBC_PAD), (keys[n % 2], CKM_AES_CBC)] {
            let mechanism = Mechanism::with_bytes(kind, vec![n as u8 * 17 + 1; 16]);
            clear.push((key, mechanism, vec![n as u8; len]));
        }
    }
    let operations = |verb: Verb, texts: &[(ObjectId, Mechanism, Vec<u8>)]| -> Vec<_> {
        let texts = texts.iter().cloned();
        let texts = texts.map(|(key, mechanism, data)| with(verb, key, mechanism, &data));
        texts.collect()
    };
    let mut encrypt = operations(Verb::Encrypt, &clear);
    let sign = with(Verb::Sign, signing, Mechanism::plain(CKM_ECDSA), &[7; 32]);
    encrypt.insert(3, sign);
    let mut sealed = Vec::new();
    let updates = calls_of("C_EncryptUpdate", || sealed = all(&token, encrypt.clone()));
    assert!(updates > clear.len() / 2, "{updates}");
    assert_eq!(sealed.remove(3).unwrap().len(), 64);
    encrypt.remove(3);
    let mut texts = Vec::new();
    for ((operation, sealed), (key, mechanism, _)) in encrypt.into_iter().zip(&sealed).zip(&clear) {
        match (token.bytes(operation), sealed) {
            (Ok(alone), Ok(together)) => {
                assert_eq!(alone, together);
                texts.push((*key, mechanism.clone(), together.to_vec()));
            }
            (alone, together) => {
                let code = alone.unwrap_err().code();
                assert_eq!(code, together.as_ref().unwrap_err().code());
                texts.push((*key, mechanism.clone(), vec![9; 3]));
            }
        }
    }
    let opened = all(&token, operations(Verb::Decrypt, &texts));
    for ((opened, sealed), (.., clear)) in opened.into_iter().zip(&sealed).zip(&clear) {
        assert_eq!(opened.is_ok(), sealed.is_ok());
        assert!(opened.is_err() || opened.unwrap() == clear);
    }
}

fn encrypt(key: ObjectId, iv: u8, data: &[u8]) -> Operation {
    let mechanism = Mechanism::with_bytes(CKM_AES_CBC_PAD, vec![iv; 16]);
    with(Verb::Encrypt, key, mechanism, data)
}

/// Streams continue over rounds, whatever comes in between, also with one session.
#[test]
fn a_text_that_comes_alone_joins_a_stream() {
    for sessions in [1, 2] {
        let label = format!("streams-{sessions}");
        create(&label);
        let token = ModuleToken::open(Options {
            sessions,
            ..options(&label)
        });
        let token = token.unwrap();
        let keys = [1, 2].map(|id| token.made(aes(id)).remove(0).object.id);
        let signing = token.made(ec_pair(3)).remove(1).object.id;
        let (rounds, pairs) = (400, 100);
        let updates = calls_of("C_EncryptUpdate", || {
            for round in 0..rounds {
                let texts = 1 + usize::from(round % (rounds / pairs) == 0);
                let key = keys[usize::from(round % 40 == 39)];
                let text = |n: usize| vec![n as u8; 100 + n];
                let each = |n| encrypt(key, round as u8, &text(n));
                let sealed = all(&token, (0..texts).map(each).collect());
                if round % 10 != 0 {
                    continue;
                }
                let mechanism = Mechanism::with_bytes(CKM_AES_CBC_PAD, vec![round as u8; 16]);
                for (n, sealed) in sealed.into_iter().enumerate() {
                    let open = with(Verb::Decrypt, key, mechanism.clone(), &sealed.unwrap());
                    assert_eq!(token.bytes(open).unwrap(), text(n), "round {round}");
                }
                let sign = with(Verb::Sign, signing, Mechanism::plain(CKM_ECDSA), &[7; 32]);
                assert_eq!(all(&token, vec![sign]).remove(0).unwrap().len(), 64);
            }
        });
        // A single text has joined a stream.
        assert!(updates > 2 * pairs, "{updates} with {sessions} sessions");
    }
}

/// Texts in quick succession start a stream; an occasional text runs alone.
#[test]
fn a_text_that_soon_follows_another_begins_a_stream() {
    let token = token("streams-alone");
    let key = token.made(aes(1)).remove(0).object.id;
    let end = soon();
    let pair = || {
        for n in 0..2 {
            all(&token, vec![encrypt(key, n, &[n; 100])])
                .remove(0)
                .unwrap();
        }
    };
    while calls_of("C_EncryptUpdate", pair) == 0 {
        assert!(Instant::now() < end, "no stream has begun");
    }
}

/// Single texts start the next stream when the previous one has expired.
#[test]
fn a_stream_is_followed_by_another() {
    let token = token("streams-follow");
    let key = token.made(aes(1)).remove(0).object.id;
    let texts = |count| (0..count).map(|n| encrypt(key, n, &[n; 100])).collect();
    assert!(all(&token, texts(2)).iter().all(Result::is_ok));
    let one_by_one = || {
        for text in texts(20) {
            all(&token, vec![text]).remove(0).unwrap();
        }
    };
    let (mut ended, end) = (0, soon());
    while ended < 3 {
        assert!(Instant::now() < end, "only {ended} have ended");
        ended += calls_of("C_EncryptFinal", one_by_one);
        assert_eq!(calls_of("C_EncryptUpdate", one_by_one), 20);
    }
}

#[test]
fn a_key_that_another_process_deletes_is_used_no_longer_than_a_stream() {
    let label = "stream-ends";
    let token = token(label);
    let key = token.made(aes(1)).remove(0).object.id;
    let both = || {
        all(
            &token,
            vec![encrypt(key, 1, b"one"), encrypt(key, 2, b"two")],
        )
    };
    assert!(both().iter().all(Result::is_ok));
    let pin = format!("--login --pin {PIN}");
    let line = format!(
        "--module {MODULE} --token-label {label} {pin} --delete-object --type secrkey --id 01"
    );
    let tool = Command::new("pkcs11-tool").args(line.split(' ')).status();
    assert!(tool.unwrap().success());
    let end = soon();
    while both().iter().any(Result::is_ok) {
        assert!(Instant::now() < end, "it is still used");
        std::thread::sleep(Duration::from_millis(10));
    }
    let error = both().remove(0).unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownObject, "{error}");
}

/// Not even for the life of a stream.
#[test]
fn a_key_that_is_destroyed_here_is_used_no_more() {
    let token = token("stream-of-a-key");
    let made = token.made(aes(1)).remove(0).object;
    let both = || {
        all(
            &token,
            vec![encrypt(made.id, 1, b"one"), encrypt(made.id, 2, b"two")],
        )
    };
    assert!(both().iter().all(Result::is_ok));
    let object = ObjectRef::Token(made.id);
    token.run(Operation::Destroy { object }).unwrap();
    for error in both() {
        assert_eq!(error.unwrap_err().kind(), Kind::UnknownObject);
    }
}

#[test]
fn one_bad_padding_is_the_affair_of_one() {
    let token = token("paddings");
    let key = token.made(aes(1)).remove(0).object.id;
    let iv = |n: u8| vec![n; 16];
    let raw = |last: [u8; 2]| {
        let mut block = vec![0x20; 16];
        block[14..].copy_from_slice(&last);
        let mechanism = Mechanism::with_bytes(CKM_AES_CBC, iv(1));
        let sealed = token
            .bytes(with(Verb::Encrypt, key, mechanism, &block))
            .unwrap();
        let mechanism = Mechanism::with_bytes(CKM_AES_CBC_PAD, iv(1));
        with(Verb::Decrypt, key, mechanism, &sealed)
    };
    let endings = [
        [7, 1],
        [2, 2],
        [7, 0],
        [1, 2],
        [7, 17],
        [7, 255],
        [16, 16],
        [7, 1],
    ];
    let operations: Vec<_> = endings.into_iter().map(raw).collect();
    let answers = all(&token, operations.clone());
    for ((operation, together), ending) in operations.into_iter().zip(answers).zip(endings) {
        match (token.bytes(operation), together) {
            (Ok(alone), Ok(together)) => assert_eq!(alone, together, "{ending:?}"),
            (Err(alone), Err(together)) => assert_eq!(alone.code(), together.code(), "{ending:?}"),
            (alone, together) => panic!("{ending:?}: {alone:?}, but {together:?}"),
        }
    }
}
