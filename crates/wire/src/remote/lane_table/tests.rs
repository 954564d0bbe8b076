use hsmux_token::{Mechanism, ObjectId, Verb, ck};

use super::*;

fn admit(table: &mut LaneTable, count: usize, bytes: usize) {
    let request = |_| Request {
        operation: Operation::Use {
            verb: Verb::Sign,
            key: ObjectId::of_certificate(b"a key").into(),
            mechanism: Mechanism::plain(ck::CKM_ECDSA),
            data: vec![0; bytes].into(),
        },
        deadline: Instant::now() + Duration::from_secs(60),
        behalf: None,
        done: Done::new(|_| ()),
    };
    let mut batch: Batch = (0..count).map(request).collect();
    table.admit(&mut batch).unwrap();
}

/// The lanes of the next frames, and how many operations each has.
fn frames(table: &mut LaneTable) -> Vec<(u16, usize)> {
    let next = || {
        table
            .next_frame()
            .map(|frame| (frame.lane, frame.items.len()))
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn short_uses_share_a_frame_before_they_take_another_lane() {
    let mut table = LaneTable::new(2, 16, true);
    // Each takes a tenth of what a frame may take.
    table.fastest = Some(FastestUse(TOGETHER / 10));
    admit(&mut table, 12, 32);
    assert_eq!(frames(&mut table), [(0, 10)], "two wait for its answer");
    admit(&mut table, 8, 32);
    assert_eq!(frames(&mut table), [(1, 10)], "another lane is worth it");
    admit(&mut table, 40, 32);
    assert_eq!(frames(&mut table), [], "each lane has a frame");
}

#[test]
fn a_lane_without_an_answer_is_not_waited_for() {
    let mut table = LaneTable::new(2, 16, true);
    table.fastest = Some(FastestUse(1));
    admit(&mut table, 1, 32);
    assert_eq!(frames(&mut table), [(0, 1)]);
    admit(&mut table, 1, 32);
    assert_eq!(frames(&mut table), [], "it shares the next frame");
    let look = table.look_again().expect("it is to look again");
    assert!(look < Instant::now() + 10 * LATE);
    assert_eq!(table.look_again(), None, "the time is set");
    table.running[0].since = Instant::now().checked_sub(2 * LATE);
    assert_eq!(frames(&mut table), [(1, 1)]);
    table.expire(look);
    assert_eq!(table.look_again(), None, "nothing waits");
}

#[test]
fn refused_uses_say_nothing_of_the_others() {
    let mut table = LaneTable::new(1, 16, true);
    for (result, fits) in [
        (Err(Error::request(Kind::Invalid, "refused")), 1),
        (Ok(Outcome::Done), 16),
    ] {
        admit(&mut table, 1, 32);
        let frame = table.next_frame().expect("a frame");
        table.running[0].since = Some(Instant::now());
        table.take_answered(frame.lane, Ok(vec![result])).unwrap();
        let fastest = table.fastest.as_ref().expect("a direct connection");
        assert!((fastest.fit(16) > 1) == (fits > 1));
    }
}

#[test]
fn long_uses_and_those_of_unknown_length_share_nothing() {
    let long = FastestUse(10 * TOGETHER);
    for fastest in [FastestUse::default(), long] {
        let mut table = LaneTable::new(2, 16, true);
        table.fastest = Some(fastest);
        admit(&mut table, 12, 32);
        assert_eq!(frames(&mut table), [(0, 1), (1, 1)]);
    }
}

#[test]
fn fast_uses_share_at_once_and_slow_ones_soon_stop() {
    let mut fastest = FastestUse::default();
    assert_eq!(fastest.fit(16), 1);
    fastest.note(Duration::from_nanos(TOGETHER / 2), 10);
    assert_eq!(fastest.fit(16), 16, "a twentieth each");
    fastest.note(Duration::from_nanos(20 * TOGETHER), 10);
    assert_eq!(fastest.fit(16), 16, "a single frame waited for a CPU");
    let slow = || fastest.note(Duration::from_nanos(20 * TOGETHER), 10);
    std::iter::repeat_with(slow).take(60).for_each(drop);
    assert_eq!(fastest.fit(16), 1);
}

#[test]
fn a_shared_frame_is_no_longer_than_a_worker_takes() {
    let mut table = LaneTable::new(1, 16, true);
    table.fastest = Some(FastestUse(1));
    admit(&mut table, 16, 5_000);
    let frame = table.next_frame().expect("a frame");
    assert!(frame.items.len() > 1);
    let mut bytes = Vec::new();
    crate::frame::encode(&crate::Call::Execute(frame.items), &mut bytes).unwrap();
    assert!(bytes.len() <= LONGEST, "{}", bytes.len());
    drop(table);
    let mut table = LaneTable::new(1, 16, true);
    table.fastest = Some(FastestUse(1));
    admit(&mut table, 16, 1);
    let frame = table.next_frame().expect("a frame");
    assert_eq!(frame.items.len(), 16);
}
