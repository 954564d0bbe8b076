use super::*;

const QUARTER: usize = USER / 4;

#[derive(Default)]
struct PausableConnection {
    paused: AtomicBool,
}

impl Reader for PausableConnection {
    fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
    }

    fn resume(&self) {
        self.paused.store(false, Ordering::Relaxed);
    }
}

type Mine = (Charge, Arc<PausableConnection>);

/// A connection of this user.
fn connection(budgets: &Budgets, uid: u32) -> Mine {
    (budgets.of(uid), Arc::default())
}

fn is_paused((_, reader): &Mine) -> bool {
    reader.paused.load(Ordering::Relaxed)
}

fn asks((charge, reader): &Mine, bytes: usize) -> Room {
    charge.ask(bytes, 0, reader)
}

#[test]
fn a_user_waits_for_room_and_others_do_not() {
    let budgets = Budgets::default();
    let mut mine: Vec<_> = (0..6).map(|_| connection(&budgets, 7)).collect();
    for connection in &mine[..4] {
        assert_eq!(asks(connection, QUARTER), Room::Granted);
    }
    assert_eq!(asks(&mine[4], FREE), Room::Granted);
    for waiting in [4, 5] {
        assert_eq!(asks(&mine[waiting], QUARTER), Room::Waits);
        assert!(is_paused(&mine[waiting]) && mine[waiting].0.waits());
    }
    assert_eq!(asks(&connection(&budgets, 8), QUARTER), Room::Granted);
    assert!(mine[0].0.granted_since().is_some() && mine[5].0.granted_since().is_none());
    // One whose answer is read leaves the room to the first that waits.
    mine[0].0.set(0).resume();
    assert!(!is_paused(&mine[4]));
    assert_eq!(asks(&mine[4], QUARTER), Room::Granted);
    assert_eq!(asks(&mine[5], QUARTER), Room::Waits);
    assert!(is_paused(&mine[5]));
    // So does one that has ended.
    drop(mine.remove(1));
    assert!(!is_paused(&mine[4]));
    assert_eq!(asks(&mine[4], QUARTER), Room::Granted);
    drop(mine);
    assert!(budgets.long.lock().is_empty());
}

#[test]
fn short_frames_of_a_user_have_a_limit_and_others_have_theirs() {
    let budgets = Budgets::default();
    let fit = SHORT / FREE;
    let mut mine: Vec<_> = (0..=fit).map(|_| connection(&budgets, 7)).collect();
    for connection in &mine[..fit] {
        assert_eq!(asks(connection, FREE), Room::Granted);
    }
    assert_eq!(asks(&mine[fit], FREE), Room::Full);
    assert_eq!(asks(&connection(&budgets, 8), FREE), Room::Granted);
    // Less than is held fits always, and leaves room.
    assert_eq!(asks(&mine[0], 1), Room::Granted);
    assert_eq!(asks(&mine[fit], FREE), Room::Granted);
    // So does what has ended, and an answer that is there counts whether there is room or not.
    drop(mine.remove(1));
    mine[0].0.set(FREE).resume();
    assert_eq!(asks(&connection(&budgets, 7), FREE), Room::Full);
    mine[0].0.set(0).resume();
    assert_eq!(asks(&connection(&budgets, 7), FREE), Room::Granted);
    drop(mine);
    drop(budgets.of(7));
    assert_eq!(budgets.of(7).short_of_user.load(Ordering::Relaxed), 0);
    assert_eq!(budgets.short.lock().len(), 1, "others are forgotten");
}

#[test]
fn a_frame_that_waits_for_room_is_counted() {
    let budgets = Budgets::default();
    let mine: Vec<_> = (0..2).map(|_| connection(&budgets, 7)).collect();
    assert_eq!(asks(&mine[0], USER), Room::Granted);
    let short = || mine[0].0.short_of_user.load(Ordering::Relaxed);
    let (charge, reader) = &mine[1];
    assert_eq!(charge.ask(QUARTER, FREE, reader), Room::Waits);
    assert_eq!(short(), FREE);
    mine[0].0.set(0).resume();
    assert_eq!(charge.ask(QUARTER, FREE, reader), Room::Granted);
    assert_eq!(short(), 0);
    // What has room already needs none of the short ones.
    let others: Vec<_> = (0..SHORT / FREE).map(|_| connection(&budgets, 7)).collect();
    for other in &others {
        assert_eq!(asks(other, FREE), Room::Granted);
    }
    assert_eq!(charge.ask(QUARTER, FREE, reader), Room::Granted);
}

#[test]
fn one_that_has_ended_does_not_wait_before_others() {
    let budgets = Budgets::default();
    let mut mine: Vec<_> = (0..7).map(|_| connection(&budgets, 7)).collect();
    for connection in &mine {
        asks(connection, QUARTER);
    }
    drop(mine.remove(4));
    drop(mine.remove(0));
    assert!(!is_paused(&mine[3]) && is_paused(&mine[4]));
    // Nor one whose room was granted, and never used.
    drop(mine.remove(3));
    assert!(!is_paused(&mine[3]));
}

#[test]
fn one_that_is_read_nevertheless_is_paused_again() {
    let budgets = Budgets::default();
    let mine: Vec<_> = (0..5).map(|_| connection(&budgets, 7)).collect();
    for connection in &mine {
        asks(connection, QUARTER);
    }
    mine[4].1.resume();
    assert_eq!(asks(&mine[4], QUARTER), Room::Waits);
    assert!(is_paused(&mine[4]));
}

#[test]
fn one_that_holds_something_does_not_wait_for_more() {
    let budgets = Budgets::default();
    let mine: Vec<_> = (0..4).map(|_| connection(&budgets, 7)).collect();
    for connection in &mine {
        assert_eq!(asks(connection, QUARTER), Room::Granted);
    }
    assert_eq!(asks(&mine[0], QUARTER + 1), Room::Full);
    assert_eq!(asks(&mine[1], QUARTER - 1), Room::Granted);
    assert_eq!(asks(&mine[0], QUARTER + 1), Room::Granted);
    // An answer that is there counts, and others wait for it.
    mine[2].0.set(2 * QUARTER).resume();
    mine[3].0.set(0).resume();
    assert_eq!(asks(&mine[3], QUARTER), Room::Waits);
    mine[2].0.set(QUARTER / 2).resume();
    assert!(!is_paused(&mine[3]));
}

#[test]
fn a_call_longer_than_the_budget_has_it_alone() {
    let budgets = Budgets::default();
    let mine: Vec<_> = (0..2).map(|_| connection(&budgets, 7)).collect();
    for connection in &mine {
        let room = asks(connection, USER + 1);
        let first = Arc::ptr_eq(&connection.1, &mine[0].1);
        assert_eq!(room, if first { Room::Granted } else { Room::Waits });
    }
    mine[0].0.set(0).resume();
    assert_eq!(asks(&mine[1], USER + 1), Room::Granted);
}
