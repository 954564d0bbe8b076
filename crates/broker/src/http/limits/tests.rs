use super::*;

fn usage(each: Allowance) -> UsageLimits {
    UsageLimits::new(Limits {
        each,
        ..Limits::default()
    })
}

fn admit(usage: &UsageLimits, name: &str) -> Result<AdmittedRequest, Refusal> {
    usage.admit(&ClientIdentity::new(vec![name.into()]), name)
}

#[test]
fn a_client_has_so_many_requests_at_once_whatever_others_do() {
    let usage = usage(Allowance {
        in_flight: 2,
        ..Allowance::default()
    });
    let first = admit(&usage, "a").ok();
    let _second = admit(&usage, "a").ok();
    let refused = admit(&usage, "a").err().unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.retry_after.is_some());
    assert!(admit(&usage, "b").is_ok());
    drop(first);
    assert!(admit(&usage, "a").is_ok());
}

#[test]
fn a_client_has_so_many_requests_in_a_second() {
    let usage = usage(Allowance {
        rate: NonZeroU32::new(1),
        burst: NonZeroU32::new(3),
        ..Allowance::default()
    });
    let admitted = (0..1000).filter(|_| admit(&usage, "a").is_ok()).count();
    assert!((3..500).contains(&admitted), "{admitted}");
    assert!(admit(&usage, "b").is_ok());
}

#[test]
fn bodies_have_so_much_room_together() {
    let each = Allowance {
        max_body: 60,
        ..Allowance::default()
    };
    let usage = UsageLimits::new(Limits {
        each,
        max_bodies: 100,
        ..Limits::default()
    });
    let [first, second, third] = ["a", "b", "c"].map(|name| admit(&usage, name).ok().unwrap());
    assert!(first.hold(30).is_ok() && first.hold(30).is_ok() && second.hold(40).is_ok());
    let refused = second.hold(1).unwrap_err();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.retry_after.is_some());
    assert!(third.hold(40).is_ok(), "it has given back all that it had");
    drop(first);
    assert!(second.hold(19).is_ok());
}

#[test]
fn no_client_takes_the_room_for_all_bodies() {
    let each = Allowance {
        max_body: 30,
        ..Allowance::default()
    };
    let usage = UsageLimits::new(Limits {
        each,
        max_bodies: 100,
        ..Limits::default()
    });
    let [one, same, other] = ["a", "a", "b"].map(|name| admit(&usage, name).ok().unwrap());
    assert!(one.hold(30).is_ok() && same.hold(20).is_ok());
    let refused = same.hold(1).unwrap_err();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    drop(same);
    assert!(other.hold(30).is_ok());
    let again = admit(&usage, "a").ok().unwrap();
    assert!(again.hold(20).is_ok());
}

#[test]
fn strangers_are_told_apart_by_their_networks() {
    let usage = UsageLimits::new(Limits {
        stranger_rate: const { NonZeroU32::new(1).unwrap() },
        ..Limits::default()
    });
    let from = |text: &str| usage.stranger(Some(text.parse().unwrap()));
    let spent = |text: &str| (0..1000).any(|_| from(text).is_err());
    assert!(spent("192.0.2.1"));
    assert!(from("192.0.2.2").is_ok());
    assert!(spent("2001:db8::1"));
    assert!(from("2001:db8:0:1::1").is_ok());
}

#[test]
fn who_is_known_is_no_stranger_for_a_token_that_is_not() {
    let usage = UsageLimits::new(Limits {
        stranger_rate: const { NonZeroU32::new(1).unwrap() },
        ..Limits::default()
    });
    let spent = |name: &str| (0..1000).any(|_| usage.unknown_token(name).is_err());
    assert!(spent("uid:7"));
    assert!(usage.unknown_token("uid:8").is_ok());
    assert!(usage.stranger(None).is_ok());
}

#[test]
fn forgotten_is_who_uses_nothing() {
    let usage = usage(Allowance::default());
    let kept = admit(&usage, "kept").ok();
    for n in 0..=MANY {
        assert!(admit(&usage, &n.to_string()).is_ok());
    }
    assert!(usage.classes[0].clients.lock().len() < MANY);
    assert!(usage.classes[0].clients.lock().contains_key("kept"));
    drop(kept);
}

#[test]
fn the_first_limit_that_means_a_client_counts() {
    let limit = |who: &str, in_flight| Limit {
        clients: vec![who.into()],
        allowance: Allowance {
            in_flight,
            max_body: 1000 * in_flight,
            ..Allowance::default()
        },
    };
    let usage = UsageLimits::new(Limits {
        special: vec![limit("token:big", 3), limit("dns:app", 1), limit("*", 2)],
        ..Limits::default()
    });
    for (identities, most) in [
        (vec!["token:big", "dns:app"], 3),
        (vec!["token:small", "dns:app"], 1),
        (vec!["token:small"], 2),
    ] {
        let client = ClientIdentity::new(identities.iter().map(|&one| one.into()).collect());
        let admit = || usage.admit(&client, client.name());
        let admitted: Vec<_> = (0..most).map(|_| admit().ok().unwrap()).collect();
        assert_eq!(admitted[0].max_body(), 1000 * most);
        assert!(admit().is_err(), "{identities:?}");
    }
}

/// An unread page of metrics takes no memory of clients, and none of other networks.
#[test]
fn those_who_are_nobody_take_memory_from_their_own_network() {
    let usage = usage(Allowance::default());
    let all = usage.limits().max_bodies / SHARE_OF_NOBODY;
    let ask = |from: &str| {
        let admitted = usage.admit_nobody(from.parse().ok()).ok().unwrap();
        admitted.hold_answer(all / 4).map(|()| admitted)
    };
    let held = [(); 2].map(|()| ask("192.0.2.1").ok().unwrap());
    assert!(ask("192.0.2.1").is_err());
    let _other = ask("192.0.2.2").ok().unwrap();
    let client = admit(&usage, "a").ok().unwrap();
    client
        .hold_answer(usage.limits().max_bodies / 2)
        .ok()
        .unwrap();
    drop(held);
    assert!(ask("192.0.2.1").is_ok());
}
