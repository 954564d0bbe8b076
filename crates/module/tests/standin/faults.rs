//! A module with every kind of fault that we know.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use hsmux_module::{ModuleToken, Options};
use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::{
    Batch, Class, Done, Kind, Mechanism, Object, ObjectRef, Operation, Params, Request, Scope,
    Token, Verb,
};

use crate::child::{Work, succeeds};
use crate::fixture::{StandIn, private, sign, soon, until};

fn signs_right(token: &ModuleToken) -> bool {
    let known = token.objects().unwrap();
    let public = known.objects.iter().find(|object| {
        object.attributes.number(CKA_CLASS) == Some(CKO_PUBLIC_KEY)
            && object.attributes.text(CKA_LABEL).as_deref() == Some("ec")
    });
    let public = PublicKey::from_attributes(&public.unwrap().attributes).unwrap();
    (1..5).all(|n| {
        let operation = sign(private(token, "ec"), [n; 32]);
        let signature = token
            .execute(&operation, soon())
            .unwrap()
            .into_bytes()
            .unwrap();
        let raw = Mechanism::plain(CKM_ECDSA);
        public.verify(&raw, &[n; 32], &signature).is_ok()
    })
}

#[test]
fn the_stand_in_signs_right_until_it_is_told_otherwise() {
    let standin = StandIn::new("");
    let token = standin.open("1234").unwrap();
    for (settings, right) in [
        ("", true),
        ("fast_sign = true", true),
        ("wrong_key = true", false),
        ("wrong_signature_every = 3", false),
        ("stops_at_first_attribute = true", true),
        ("least_buffer = 5000", true),
        (
            "least_buffer = 5000\nsmall_buffer_ends_operation = true",
            true,
        ),
    ] {
        standin.set(settings);
        assert_eq!(signs_right(&token), right, "{settings}");
    }
}

#[test]
fn a_module_that_stops_at_an_attribute_shows_the_same_objects() {
    let standin = StandIn::new("");
    let token = standin.open("1234").unwrap();
    let all = token.objects().unwrap();
    assert_eq!(all.objects.len(), 5);
    standin.set("stops_at_first_attribute = true");
    let again = token.objects().unwrap();
    assert_eq!(again.objects, all.objects);
    assert_eq!(again.epoch, all.epoch);
}

#[test]
fn a_search_without_end_is_an_error() {
    let standin = StandIn::new("");
    let token = standin.open("1234").unwrap();
    standin.set("endless_search = true");
    let error = token.objects().unwrap_err().to_string();
    assert!(error.contains("finds more than 1048576 objects"), "{error}");
    standin.set("");
    assert_eq!(token.objects().unwrap().objects.len(), 5);
}

#[test]
fn a_buffer_that_no_answer_needs_is_an_error_of_its_own_call() {
    let standin = StandIn::new("");
    let token = standin.open("1234").unwrap();
    let operation = sign(private(&token, "ec"), [7; 32]);
    let use_ec = || token.execute(&operation, soon());
    for settings in ["least_buffer = 1000000000000", "least_buffer = 70000"] {
        standin.set(settings);
        let error = use_ec().unwrap_err();
        assert!(error.to_string().contains("asks for a buffer"), "{error}");
        assert!(!error.ends_connection(), "{error}");
    }
    standin.set("least_buffer = 60000");
    use_ec().unwrap();
}

/// A key that only its token can name has the same name for all workers of a member, and another in each member.
#[test]
fn workers_of_a_member_without_a_serial_number_name_its_keys_alike() {
    // A check value cannot be computed either, by ECB or CBC.
    let standin = StandIn::new("serial = ' '\nno_check_value = true\nlacks = [0x1081, 0x1082]");
    let key = |name: &str, member: &str| {
        let options = Options {
            name: name.into(),
            member: Some(member.into()),
            ..standin.with_pin("1234")
        };
        let token = ModuleToken::open(options).unwrap();
        assert_eq!(token.info().serial, "");
        let known = token.objects().unwrap();
        let secret = |object: &&Object| object.id.class == Class::SECRET_KEY;
        known.objects.iter().find(secret).unwrap().id
    };
    assert_eq!(key("hsm1", "hsm1"), key("hsm1#2", "hsm1"));
    assert_eq!(key("hsm1", "hsm1"), key("hsm1, looking", "hsm1"));
    assert_ne!(key("hsm1", "hsm1"), key("hsm2", "hsm2"));
}

#[test]
fn a_key_that_was_deleted_is_unknown_and_one_that_returns_is_found() {
    for dead in ["", "dead_handle_error = 5"] {
        let standin = StandIn::new("");
        let token = standin.open("1234").unwrap();
        let operation = sign(private(&token, "ec"), [7; 32]);
        token.execute(&operation, soon()).unwrap();
        let before = token.objects().unwrap().epoch;

        standin.set(&format!("keys = [\"rsa\", \"aes\"]\n{dead}"));
        for _ in 0..2 {
            let error = token.execute(&operation, soon()).unwrap_err();
            assert_eq!(error.kind(), Kind::UnknownObject, "{error}");
            assert_eq!(error.scope(), Scope::Token);
        }
        assert_eq!(token.objects().unwrap().epoch, before + 1);
        standin.set("");
        token.execute(&operation, soon()).unwrap();
    }
}

#[test]
fn an_operation_left_active_costs_one_session() {
    let standin = StandIn::new("init_error = 0x90");
    let token = standin.open("1234").unwrap();
    let operation = sign(private(&token, "ec"), [7; 32]);
    for _ in 0..5 {
        let error = token.execute(&operation, soon()).unwrap_err();
        assert_eq!(error.code(), Some(CKR_OPERATION_ACTIVE));
    }
    standin.set("");
    token.execute(&operation, soon()).unwrap();
}

#[test]
fn errors_name_the_member_the_call_and_the_code() {
    let standin = StandIn::new("sign_error = 0x30");
    let token = standin.open("1234").unwrap();
    let error = token
        .execute(&sign(private(&token, "ec"), [7; 32]), soon())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "member: C_Sign: CKR_DEVICE_ERROR (0x00000030)"
    );
    assert!(error.ends_connection());
}

#[test]
fn a_token_with_few_sessions_gets_by() {
    for (most, lanes) in [(1, 1), (2, 1), (3, 2), (0, 2)] {
        let standin = StandIn::new(&format!("sessions = {most}"));
        let token = standin.open("1234").unwrap();
        assert_eq!(token.info().lanes, lanes);
        assert!(signs_right(&token));
    }
}

/// Requests for the token's data take no session from other work.
#[test]
fn a_token_is_asked_in_the_sessions_that_it_has() {
    // A token with one session refuses mechanisms only at the following step.
    for (most, is_asked) in [(1, false), (2, true), (3, true), (0, true)] {
        let standin = StandIn::new(&format!("sessions = {most}"));
        let token = standin.open("1234").unwrap();
        let begin = |kind| {
            let begin = Operation::Begin {
                verb: Verb::Sign,
                key: private(&token, "ec").into(),
                mechanism: Mechanism::plain(kind),
            };
            token.execute(&begin, soon()).map(drop)
        };
        for _ in 0..5 {
            begin(CKM_ECDSA).unwrap();
            let refused = begin(CKM_RSA_X_509).map_err(|error| error.code());
            let expected = is_asked.then_some(Some(CKR_MECHANISM_INVALID));
            assert_eq!(refused.err(), expected, "{most} sessions");
            assert!(signs_right(&token));
        }
    }
}

#[test]
fn a_token_that_hangs_does_not_hang_who_waits_for_a_session() {
    let standin = StandIn::new("");
    let mut options = standin.with_pin("1234");
    options.sessions = 1;
    let token = ModuleToken::open(options).unwrap();
    let operation = sign(private(&token, "ec"), [7; 32]);
    standin.set("hang_in_sign = true");
    let (tell, told) = channel();
    let done = Done::new(move |result| tell.send(result.map(|_| ())).unwrap());
    token.submit(Batch::from_buf([Request {
        operation: operation.clone(),
        deadline: soon(),
        done,
    }]));
    until("it hangs", || {
        standin.folder.path().join("token/token.hang").exists()
    });
    let deadline = Instant::now() + Duration::from_millis(30);
    let error = token.execute(&operation, deadline).unwrap_err();
    assert_eq!(error.kind(), Kind::Deadline);
    assert!(Instant::now() < soon());
    token.abort("a test");
    let error = told
        .recv_timeout(Duration::from_secs(60))
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Lost);
    let error = token.execute(&operation, soon()).unwrap_err();
    assert_eq!(error.kind(), Kind::Lost);
    standin.set("");
}

#[test]
fn submitted_operations_run_side_by_side() {
    let standin = StandIn::new("");
    let token = standin.open("1234").unwrap();
    let key = private(&token, "ec");
    standin.set("hang_in_sign = true");
    let (tell, told) = channel();
    let request = |n| {
        let tell = tell.clone();
        Request {
            operation: sign(key, [n; 32]),
            deadline: soon(),
            done: Done::new(move |result| tell.send((n, result)).unwrap()),
        }
    };
    token.submit((0..5).map(request).collect());
    let hanging = standin.folder.path().join("token/token.hang");
    until("both sessions are at work", || {
        std::fs::read_to_string(&hanging).is_ok_and(|text| text.lines().count() == 2)
    });
    standin.set("");
    let answered = told
        .iter()
        .take(5)
        .map(|(n, result)| result.map(|_| n).unwrap());
    let mut answered: Vec<_> = answered.collect();
    answered.sort_unstable();
    assert_eq!(answered, [0, 1, 2, 3, 4]);
}

#[test]
fn a_service_time_is_kept_to() {
    let standin = StandIn::new("service_time_us = 2000\nfast_sign = true");
    let token = standin.open("1234").unwrap();
    let operation = sign(private(&token, "ec"), [7; 32]);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..10 {
                    token.execute(&operation, soon()).unwrap();
                }
            });
        }
    });
    // One after the other, for any caller.
    assert!(start.elapsed() >= Duration::from_millis(40));
}

#[test]
fn a_request_past_its_deadline_is_not_run() {
    let standin = StandIn::new("");
    let token = standin.open("1234").unwrap();
    let (tell, told) = channel();
    token.submit(Batch::from_buf([Request {
        operation: sign(private(&token, "ec"), [7; 32]),
        deadline: Instant::now(),
        done: Done::new(move |result| tell.send(result).unwrap()),
    }]));
    assert_eq!(told.recv().unwrap().unwrap_err().kind(), Kind::Deadline);
}

#[test]
fn a_parameter_that_is_not_of_its_mechanism_does_not_reach_the_module() {
    let standin = StandIn::new("");
    let token = standin.open("1234").unwrap();
    let used = |verb, kind, params| {
        let operation = Operation::Use {
            verb,
            key: ObjectRef::Token(private(&token, "rsa")),
            mechanism: Mechanism { kind, params },
            data: vec![0; 16].into(),
        };
        token.execute(&operation, soon()).unwrap_err().code()
    };
    for (verb, kind) in [
        (Verb::Encrypt, CKM_RSA_PKCS_OAEP),
        (Verb::Encrypt, CKM_AES_GCM),
        (Verb::Encrypt, CKM_ECDH1_DERIVE),
        (Verb::Sign, CKM_VENDOR_DEFINED),
    ] {
        let params = Params::Bytes(vec![0x41; 48].into());
        let refused = used(verb, kind, params);
        assert_eq!(refused, Some(CKR_MECHANISM_PARAM_INVALID), "{kind:x}");
    }
    // Vendor-defined mechanisms only sign.
    let refused = used(Verb::Encrypt, CKM_VENDOR_DEFINED, Params::None);
    assert_eq!(refused, Some(CKR_MECHANISM_INVALID));
}

#[test]
fn a_module_that_crashes_takes_only_its_process_along() {
    let standin = StandIn::new("crash_in_initialize = true");
    assert!(!succeeds(&standin, Work::Sign, "1234"));
    standin.set("crash_after = 0");
    assert!(!succeeds(&standin, Work::Sign, "1234"));
    standin.set("");
    assert!(succeeds(&standin, Work::Sign, "1234"));
}

#[test]
fn what_is_no_module_or_has_no_token_says_so() {
    let standin = StandIn::new("present = false");
    let problem = |options: Options| {
        let error = ModuleToken::open(options).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment, "{error}");
        error.to_string()
    };
    let with = |module: &str| Options {
        module: module.into(),
        ..standin.with_pin("1234")
    };
    let text = standin.folder.path().join("text.so");
    std::fs::write(&text, "not a library").unwrap();
    assert!(problem(with("/no/such/module.so")).contains("/no/such/module.so"));
    assert!(problem(with(text.to_str().unwrap())).contains("cannot be loaded"));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.contains("/libc."));
    assert!(problem(with(libc.unwrap())).contains("not a PKCS#11 module"));
    assert!(problem(standin.with_pin("1234")).contains("it has no token"));
}

/// dlopen(3) would find it, in an unverified folder.
#[test]
fn a_module_is_not_searched_for() {
    let options = Options {
        module: "libc.so.6".into(),
        ..StandIn::new("").with_pin("1234")
    };
    let error = ModuleToken::open(options).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment, "{error}");
    assert!(error.to_string().contains("name it by its path"), "{error}");
}

#[test]
fn a_key_that_wants_its_pin_each_time_does_not_blame_the_token() {
    let standin = StandIn::new("always_authenticate = true");
    let token = standin.open("1234").unwrap();
    let error = token
        .execute(&sign(private(&token, "ec"), [7; 32]), soon())
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert_eq!(error.scope(), Scope::Request);
}

#[test]
fn a_general_error_that_is_not_about_a_key_is_the_tokens() {
    let standin = StandIn::new("");
    let token = standin.open("1234").unwrap();
    let operation = sign(private(&token, "ec"), [7; 32]);
    standin.set("sign_error = 5");
    let error = token.execute(&operation, soon()).unwrap_err();
    assert_eq!(error.code(), Some(CKR_GENERAL_ERROR));
    standin.set("");
    token.execute(&operation, soon()).unwrap();
}
