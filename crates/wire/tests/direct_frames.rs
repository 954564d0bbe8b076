//! Frames with several uses on direct connections.

mod common;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::workers::{Workers, one_by_one, pair_of};
use common::*;
use hsmux_token::{Kind, Operation, Token};
use hsmux_wire::{Answer, Call, Item, Reply, decode, frame};

/// A call with so many uses, which sign these numbers.
fn several(numbers: std::ops::Range<u8>) -> Call {
    let item = |number: u8| Item {
        behalf: None,
        operation: sign(&[number]),
        remaining_us: LONG.as_micros() as u64,
    };
    Call::Execute(numbers.map(item).collect())
}

#[test]
fn uses_of_one_frame_have_one_answer_in_their_order() {
    let workers = Workers::of([(); 2].map(|()| Arc::new(Echo) as Arc<dyn Token>));
    let mut connection = workers.connect(1);
    for most in [1, 2, 16, 16] {
        let answer = connection
            .exchange(&several(0..most), Some(soon()))
            .unwrap();
        let Answer::Results(results) = decode::<Reply>(answer).unwrap().answer else {
            panic!("no results");
        };
        let signed: Vec<_> = results
            .into_iter()
            .map(|result| result.unwrap().into_bytes().unwrap().to_vec())
            .collect();
        assert_eq!(signed, (0..most).map(|n| vec![n]).collect::<Vec<_>>());
    }
    let too_many = connection.exchange(&several(0..17), Some(soon()));
    assert!(too_many.is_err(), "the connection has ended");
    workers.stop();
}

#[test]
fn a_deadline_is_a_day_away_at_most() {
    let (tell, told) = mpsc::channel();
    let workers = Workers::of([Doing::arc(move |operation, deadline| {
        tell.send(deadline).unwrap();
        Echo.execute(operation, deadline)
    })]);
    let mut connection = workers.connect(1);
    let Call::Execute(mut items) = several(0..1) else {
        unreachable!("uses");
    };
    items[0].remaining_us = u64::MAX;
    let answer = connection.exchange(&Call::Execute(items), Some(soon()));
    answer.unwrap();
    let day = Duration::from_secs(24 * 3600);
    assert!(told.recv_timeout(LONG).unwrap() <= Instant::now() + day);
    workers.stop();
}

#[test]
fn a_refused_use_of_a_frame_harms_none_of_the_others() {
    let workers = Workers::of([Arc::new(Echo) as Arc<dyn Token>]);
    let mut connection = workers.connect(1);
    let item = |operation| Item {
        behalf: None,
        operation,
        remaining_us: LONG.as_micros() as u64,
    };
    let random = || item(Operation::Random { len: 8 });
    for (items, expected) in [
        (
            vec![item(sign(b"a")), random(), item(sign(b"b"))],
            "ok refused ok",
        ),
        (vec![random(), random()], "refused refused"),
        (vec![item(sign(b"c"))], "ok"),
    ] {
        let answer = connection.exchange(&Call::Execute(items), Some(soon()));
        let Answer::Results(results) = decode::<Reply>(answer.unwrap()).unwrap().answer else {
            panic!("no results");
        };
        let said: Vec<_> = results
            .into_iter()
            .map(|result| match result {
                Ok(_) => "ok",
                Err(error) if error.kind() == Kind::Forbidden => "refused",
                Err(error) => panic!("{error}"),
            })
            .collect();
        assert_eq!(said.join(" "), expected);
    }
    workers.stop();
}

#[test]
fn a_frame_with_many_uses_has_a_users_turn_for_each() {
    let (workers, begun, end) = one_by_one();
    let mut many = [1, 2].map(|number| workers.connect_over(number, pair_of(20_001)));
    let mut one = workers.connect_over(99, pair_of(20_002));
    for (connection, numbers) in many.iter_mut().zip([0..16, 16..32]) {
        connection.write(&several(numbers), Some(soon())).unwrap();
    }
    let next = || begun.recv_timeout(LONG).unwrap();
    let mut of_many = vec![next()];
    for _ in 0..8 {
        one.write(&several(99..100), Some(soon())).unwrap();
        end.send(()).unwrap();
        assert_eq!(next(), 99, "after {of_many:?}");
        end.send(()).unwrap();
        one.read(frame::MAX_FRAME, Some(soon())).unwrap();
        of_many.push(next());
    }
    while of_many.len() < 32 {
        end.send(()).unwrap();
        of_many.push(next());
    }
    end.send(()).unwrap();
    for connection in &mut many {
        connection.read(frame::MAX_FRAME, Some(soon())).unwrap();
    }
    of_many.sort_unstable();
    assert_eq!(of_many, (0..32).collect::<Vec<_>>());
    workers.stop();
}

#[test]
fn a_frame_that_has_begun_comes_before_others_of_its_user() {
    let (workers, begun, end) = one_by_one();
    let mut many = workers.connect_over(1, pair_of(20_001));
    let mut rivals = [2, 3].map(|number| workers.connect_over(number, pair_of(20_001)));
    let _another_user = workers.connect_over(99, pair_of(20_002));
    many.write(&several(0..8), Some(soon())).unwrap();
    let next = || begun.recv_timeout(LONG).unwrap();
    assert_eq!(next(), 0);
    for (rival, number) in rivals.iter_mut().zip(100..) {
        rival
            .write(&several(number..number + 1), Some(soon()))
            .unwrap();
    }
    for number in (1..8).chain([100, 101]) {
        end.send(()).unwrap();
        assert_eq!(next(), number);
    }
    end.send(()).unwrap();
    many.read(frame::MAX_FRAME, Some(soon())).unwrap();
    workers.stop();
}

#[test]
fn a_frame_whose_program_has_gone_or_waited_too_long_is_not_done() {
    let (workers, begun, end) = one_by_one();
    let mut gone = workers.connect_over(1, pair_of(20_001));
    let mut other = workers.connect_over(99, pair_of(20_002));
    let next = || begun.recv_timeout(LONG).unwrap();
    gone.write(&several(0..8), Some(soon())).unwrap();
    assert_eq!(next(), 0);
    drop(gone);
    end.send(()).unwrap();
    let Call::Execute(mut items) = several(20..23) else {
        unreachable!("several uses");
    };
    items[1].remaining_us = 0;
    other.write(&Call::Execute(items), Some(soon())).unwrap();
    // The next of the frame that was left may have begun before the end was seen.
    let mut first = next();
    if first == 1 {
        end.send(()).unwrap();
        first = next();
    }
    assert_eq!(first, 20);
    end.send(()).unwrap();
    assert_eq!(next(), 22, "the second came too late");
    end.send(()).unwrap();
    let answer = other.read(frame::MAX_FRAME, Some(soon())).unwrap();
    let Answer::Results(results) = decode::<Reply>(answer).unwrap().answer else {
        panic!("no results");
    };
    let failed: Vec<_> = results.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false]);
    workers.stop();
}

#[test]
fn a_connection_ends_after_the_frame_with_the_eighth_slow_use() {
    let workers = Workers::of([Doing::arc(|operation, deadline| {
        thread::sleep(Duration::from_millis(3));
        Echo.execute(operation, deadline)
    })]);
    for uses in [16, 8] {
        let mut connection = workers.connect(u64::from(uses));
        let answer = connection.exchange(&several(0..uses), Some(soon()));
        let Answer::Results(results) = decode::<Reply>(answer.unwrap()).unwrap().answer else {
            panic!("no results");
        };
        assert_eq!(results.len(), usize::from(uses));
        assert!(connection.read(frame::MAX_FRAME, Some(soon())).is_err());
    }
    workers.stop();
}

#[test]
fn frames_that_have_come_together_leave_another_user_a_turn() {
    let (workers, begun, end) = one_by_one();
    let next = || begun.recv_timeout(LONG).unwrap();
    let connect = |number, user, uses| {
        let (mut connection, _) = workers.connect_first(number, pair_of(user));
        connection.write(&several(uses), Some(soon())).unwrap();
        connection
    };
    // While its use is done, the frames of all others come.
    let first = connect(1, 20_001, 0..1);
    next();
    let many = (2..=65).map(|number| connect(number, 20_001, 0..16));
    let mut all: Vec<_> = std::iter::once(first).chain(many).collect();
    end.send(()).unwrap();
    next();
    let _other = connect(99, 20_002, 99..100);
    let before = std::iter::repeat_with(|| {
        end.send(()).unwrap();
        next()
    });
    let before = before.take_while(|number| *number != 99).count();
    assert!(before <= 65, "{before} uses before that of another user");
    // All that is left ends at once.
    for _ in 0..64 * 16 {
        end.send(()).unwrap();
    }
    for connection in &mut all {
        connection.read(frame::MAX_FRAME, Some(soon())).unwrap();
    }
    workers.stop();
}
