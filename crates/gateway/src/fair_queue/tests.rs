//! Clients that use their signatures and clients that do not, before one slow token, in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;

const SERVICE: Duration = Duration::from_millis(200);
const CAPACITY: KeyCapacity = KeyCapacity {
    uses: 4,
    members: 1,
};
const HONEST: &str = "192.0.2.1";

/// A token that does one thing at a time though it has four lanes. An entry is its time of arrival and its client.
struct Sim {
    queue: FairQueue<u8, (Instant, IpAddr)>,
    now: Instant,
    /// Each with its end.
    running: VecDeque<(Grant<u8>, (Instant, IpAddr), Instant)>,
}

impl Sim {
    fn new(limits: Limits) -> Self {
        Self {
            queue: FairQueue::new(limits),
            now: Instant::now(),
            running: VecDeque::new(),
        }
    }

    /// Returns whether it is taken.
    fn ask(&mut self, client: IpAddr) -> bool {
        let work = (self.now, client);
        if let Some(grant) = self.queue.begin(&0, client, CAPACITY, self.now) {
            self.run(grant, work);
            return true;
        }
        let pushed = self.queue.push(&0, client, work, self.now);
        self.fill();
        pushed.is_ok()
    }

    fn run(&mut self, grant: Grant<u8>, work: (Instant, IpAddr)) {
        let last = self.running.back().map_or(self.now, |(_, _, end)| *end);
        self.running.push_back((grant, work, last + SERVICE));
    }

    fn fill(&mut self) {
        while let Some((grant, work)) = self.queue.next(&0, CAPACITY, self.now) {
            self.run(grant, work);
        }
    }

    /// Ends the next signature. Returns its client, and how long that has waited.
    fn step(&mut self) -> (IpAddr, Duration) {
        let (grant, (since, client), end) = self.running.pop_front().expect("it works");
        self.now = end;
        self.queue.end(&grant, true, end);
        self.fill();
        (client, end - since)
    }

    /// The waits of a client that completes so many handshakes, one after the other. Each attacker keeps `each`
    /// signatures waiting and completes none.
    fn honest(
        &mut self,
        client: &str,
        handshakes: usize,
        attackers: &[IpAddr],
        each: usize,
    ) -> Vec<Duration> {
        let client: IpAddr = client.parse().unwrap();
        for attacker in attackers {
            for _ in 0..each {
                self.ask(*attacker);
            }
        }
        let mut waits = Vec::new();
        assert!(self.ask(client), "it has a place");
        loop {
            let (signed, wait) = self.step();
            if signed == client {
                waits.push(wait);
                self.queue.completed(client, self.now);
            }
            if waits.len() == handshakes {
                break;
            }
            assert!(self.ask(signed) || signed != client, "it has a place");
        }
        waits
    }
}

fn sim() -> Sim {
    Sim::new(Limits {
        all: 1024,
        of_source: 768,
    })
}

fn addresses(count: u32) -> Vec<IpAddr> {
    let first = u32::from(std::net::Ipv4Addr::new(198, 51, 100, 0));
    (first..first + count)
        .map(|address| std::net::Ipv4Addr::from(address).into())
        .collect()
}

/// Also at the begin of the attack, and from an attacker that has completed as many handshakes as it left open.
#[test]
fn an_attacker_delays_others_by_the_rest_of_one_signature() {
    for each in [100, 300, 1000] {
        let waits = sim().honest(HONEST, 50, &addresses(1), each);
        let worst = waits.iter().max().unwrap();
        assert!(*worst <= 2 * SERVICE, "{each}: {worst:?}");
    }
    let (mut sim, attacker) = (sim(), addresses(1));
    for _ in 0..2 {
        sim.ask(attacker[0]);
        sim.step();
    }
    sim.queue.completed(attacker[0], sim.now);
    let waits = sim.honest(HONEST, 50, &attacker, 100);
    let worst = waits.iter().max().unwrap();
    assert!(*worst <= 2 * SERVICE, "{worst:?}");
}

/// A new source does not hold lanes back from those behind it.
#[test]
fn a_source_that_has_what_it_may_have_is_passed_over() {
    let mut sim = sim();
    let [attacker, ..] = addresses(1)[..] else {
        unreachable!()
    };
    for _ in 0..100 {
        sim.ask(attacker);
    }
    assert_eq!(sim.running.len(), 1);
    for client in &addresses(4)[1..] {
        sim.ask(*client);
    }
    assert_eq!(sim.running.len(), CAPACITY.uses);
}

/// Clients of one address that complete their handshakes have all lanes.
#[test]
fn a_source_that_uses_its_signatures_has_all_lanes() {
    let mut sim = sim();
    let client: IpAddr = HONEST.parse().unwrap();
    for _ in 0..20 {
        sim.ask(client);
    }
    for _ in 0..3 {
        sim.step();
        sim.queue.completed(client, sim.now);
    }
    while sim.queue.waiting > 0 {
        assert_eq!(sim.running.len(), CAPACITY.uses);
        sim.step();
        sim.queue.completed(client, sim.now);
    }
}

#[test]
fn dozens_of_attackers_have_one_turn_each_and_then_come_last() {
    let attackers = addresses(36);
    let mut sim = sim();
    let first = sim.honest(HONEST, 1, &attackers, 8)[0];
    assert!(first <= 41 * SERVICE, "{first:?}");
    let waits = sim.honest(HONEST, 50, &[], 0);
    let worst = waits[1..].iter().max().unwrap();
    assert!(*worst <= 3 * SERVICE, "{worst:?}");
    let another = sim.honest("192.0.2.2", 1, &[], 0)[0];
    assert!(another <= 3 * SERVICE, "{another:?}");
}

#[test]
fn a_subnet_waits_only_for_the_turns_of_its_own_source() {
    // All addresses of a subnet are one.
    let attackers: [IpAddr; 3] = ["bad:0::1", "bad:0::2", "bad:0::3"]
        .map(|end| format!("2001:db8:0:{end}").parse().unwrap());
    let waits = sim().honest("2001:db8::1", 50, &attackers, 300);
    let worst = waits[1..].iter().max().unwrap();
    assert!(*worst <= 4 * SERVICE, "{worst:?}");
}

/// A customer of a network may have a /48, of 65,536 subnets.
#[test]
fn all_subnets_of_a_source_have_one_share() {
    let attackers: Vec<IpAddr> = (0..64)
        .map(|subnet| format!("2001:db8:0:{subnet:x}::1").parse().unwrap())
        .collect();
    let waits = sim().honest("2001:db8:1::1", 50, &attackers, 300);
    let worst = waits.iter().max().unwrap();
    assert!(*worst <= 2 * SERVICE, "{worst:?}");
}

#[test]
fn the_source_with_the_most_loses_an_entry() {
    let mut sim = Sim::new(Limits {
        all: 20,
        of_source: 15,
    });
    let [one, other, ref first @ ..] = addresses(2 + CAPACITY.uses as u32)[..] else {
        unreachable!()
    };
    for client in first {
        sim.ask(*client);
    }
    let places = (0..40).filter(|_| sim.ask(one)).count();
    assert_eq!(places, 15);
    assert!(!sim.queue.admits(one) && sim.queue.admits(other));
    let places = (0..40).filter(|_| sim.ask(other)).count();
    assert_eq!(places, 10, "as many as the other keeps");
    assert_eq!(sim.queue.waiting_of(ClientSource::of(one)), 10);
    assert!(sim.ask(HONEST.parse().unwrap()));
    assert_eq!(sim.queue.waiting, 20);
}

#[test]
fn the_subnet_with_the_most_loses_an_entry_within_its_source() {
    let mut sim = Sim::new(Limits {
        all: 20,
        of_source: 10,
    });
    let [one, other]: [IpAddr; 2] =
        ["2001:db8::1", "2001:db8:0:1::2"].map(|ip| ip.parse().unwrap());
    for _ in 0..40 {
        sim.ask(one);
    }
    let places = (0..40).filter(|_| sim.ask(other)).count();
    assert_eq!(places, 5);
    assert_eq!(sim.queue.waiting, 10);
}

/// Nobody is in doubt: all lanes are busy while anything waits.
#[test]
fn all_lanes_are_busy_while_entries_wait() {
    let mut sim = sim();
    for client in addresses(100) {
        sim.ask(client);
    }
    while sim.queue.waiting > 0 {
        assert_eq!(sim.running.len(), CAPACITY.uses);
        let (client, _) = sim.step();
        sim.queue.completed(client, sim.now);
    }
}

#[test]
fn a_source_in_doubt_is_not_starved() {
    let mut sim = sim();
    let doubted = addresses(1)[0];
    sim.ask(doubted);
    sim.step();
    sim.ask(doubted);
    sim.ask(doubted);
    let trusted: Vec<IpAddr> = addresses(40)[1..].to_vec();
    for client in &trusted {
        sim.ask(*client);
    }
    // The others come again and again: a round for each of the two, and the turns of others in its place.
    for steps in 0.. {
        assert!(steps < 2 * (trusted.len() + 10), "it waits for ever");
        let (client, _) = sim.step();
        if client == doubted {
            if sim.queue.waiting_of(ClientSource::of(doubted)) == 0 {
                break;
            }
            continue;
        }
        sim.queue.completed(client, sim.now);
        sim.ask(client);
    }
}

#[test]
fn cancelled_entries_are_removed() {
    let mut sim = sim();
    let clients = addresses(CAPACITY.uses as u32 + 1);
    for client in &clients[1..] {
        sim.ask(*client);
    }
    let client = clients[0];
    let now = sim.now;
    let (first, _) = sim.queue.push(&0, client, (now, client), now).unwrap();
    let (second, _) = sim.queue.push(&0, client, (now, client), now).unwrap();
    assert_eq!(sim.queue.before(&0, client, now), 2);
    assert!(sim.queue.cancel(first).is_some() && sim.queue.cancel(first).is_none());
    assert_eq!(sim.queue.waiting, 1);
    assert!(sim.queue.cancel(second).is_some());
    assert_eq!(sim.queue.before(&0, client, now), 0);
    assert!(sim.queue.groups[&0].order.is_empty() && sim.queue.groups[&0].queues.is_empty());
}

/// A client's place in the queue depends on its own source, not on how many entries others have.
#[test]
fn entries_of_other_sources_do_not_lengthen_a_wait() {
    let mut sim = sim();
    let [attacker, other] = addresses(2)[..] else {
        unreachable!()
    };
    for _ in 0..300 {
        sim.ask(attacker);
    }
    sim.step();
    assert_eq!(sim.queue.before(&0, other, sim.now), 0);
    assert!(sim.queue.before(&0, attacker, sim.now) > 290);
}
