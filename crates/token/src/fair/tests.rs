use proptest::prelude::*;

use super::*;

#[test]
fn owners_take_turns_and_keep_their_own_order() {
    let mut queue = FairQueue::new(10);
    for entry in ["a1", "a2", "a3", "b1", "b2"] {
        assert_eq!(queue.push(entry.as_bytes()[0], entry), None);
    }
    assert_eq!(queue.drain(), ["a1", "b1", "a2", "b2", "a3"]);
    assert!(queue.is_empty() && queue.lines.is_empty());
}

#[test]
fn a_full_queue_takes_from_the_owner_with_the_most() {
    let mut queue = FairQueue::new(4);
    for entry in 1..=4 {
        assert_eq!(queue.push('a', entry), None);
    }
    assert_eq!(queue.push('a', 5), Some(Displaced(5)));
    assert_eq!(queue.push('b', 6), Some(Displaced(4)));
    assert_eq!(queue.push('b', 7), Some(Displaced(3)));
    // Both have two by now.
    assert_eq!(queue.push('b', 8), Some(Displaced(8)));
    assert_eq!(queue.push('a', 9), Some(Displaced(9)));
    assert_eq!(
        queue.push('c', 10).map(|Displaced(entry)| entry > 10),
        Some(false)
    );
    assert_eq!(queue.len(), 4);
}

#[test]
fn an_owner_that_was_away_has_saved_nothing() {
    let mut shares = FairShares::default();
    (0..1000).for_each(|_| shares.charge('a', 7));
    assert_eq!(shares.had('b'), 999 * 7);
    shares.charge('b', 7);
    shares.charge('b', 7);
    assert!(shares.had('b') > shares.had('a'));
}

#[test]
fn owners_that_are_gone_are_forgotten() {
    let mut shares = FairShares::default();
    for owner in 0..100_000 {
        shares.charge(owner, 1 + owner % 3);
        assert!(shares.had.len() <= 2 * MOST_REMEMBERED);
    }
    // While others work, owners that have left are soon forgotten.
    let mut shares = FairShares::default();
    for owner in 1..10_000 {
        shares.charge(owner, 5);
        (0..10).for_each(|_| shares.charge(0, 1));
        assert!(shares.had.len() <= 2 * REMEMBERED);
    }
}

proptest! {
    /// Owners that always want something have had the same, but for the cost of one piece of work each.
    #[test]
    fn owners_that_always_wait_have_equal_shares(costs in prop::collection::vec(1..1000_u64, 1..8), rounds in 1..2000) {
        let mut shares = FairShares::default();
        let mut had = vec![0_u64; costs.len()];
        for _ in 0..rounds {
            let owner = (0..costs.len()).min_by_key(|owner| shares.had(*owner)).unwrap();
            shares.charge(owner, costs[owner]);
            had[owner] += costs[owner];
        }
        let most = costs.iter().max().unwrap();
        let (least, greatest) = (had.iter().min().unwrap(), had.iter().max().unwrap());
        prop_assert!(greatest - least <= *most, "{had:?}");
    }

    /// Whoever comes and goes: nothing is lost, and an owner that waits is served within a turn of each other one.
    #[test]
    fn nothing_is_lost_and_nobody_waits_for_ever(steps in prop::collection::vec((0..5_u8, 0..3_u8), 1..400)) {
        let mut queue = FairQueue::new(32);
        let (mut inside, mut turns) = (Vec::new(), [0_usize; 5]);
        for (entry, (owner, kind)) in steps.into_iter().enumerate() {
            if kind < 2 {
                inside.push((owner, entry));
                if let Some(Displaced(gone)) = queue.push(owner, (owner, entry)) {
                    let most = (0..5).map(|owner| of(&inside, owner)).max().unwrap();
                    prop_assert_eq!(of(&inside, gone.0), most);
                    inside.retain(|other| *other != gone);
                }
            } else if let Some((owner, entry)) = queue.pop() {
                let first = inside.iter().find(|(of, _)| *of == owner);
                prop_assert_eq!(first, Some(&(owner, entry)));
                inside.retain(|other| *other != (owner, entry));
                for other in 0..5 {
                    let waits = other != owner && of(&inside, other) > 0;
                    turns[usize::from(other)] = if waits { turns[usize::from(other)] + 1 } else { 0 };
                    prop_assert!(turns[usize::from(other)] <= 8);
                }
            } else {
                prop_assert!(inside.is_empty());
            }
            prop_assert_eq!(queue.len(), inside.len());
        }
    }
}

fn of(inside: &[(u8, usize)], owner: u8) -> usize {
    inside.iter().filter(|(of, _)| *of == owner).count()
}
