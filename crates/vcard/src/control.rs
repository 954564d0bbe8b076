//! Pulling a card, and breaking it, while it works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::fault::{Fault, Order, Trigger};

/// A hand on a card: pulls it, plugs it in, orders faults. Cheap to clone, usable from any thread
/// while the card works, and also when it is stuck.
#[derive(Clone, Default)]
pub struct Control(Arc<Shared>);

#[derive(Default)]
struct Shared {
    hand: Mutex<Hand>,
    moved: Condvar,
}

#[derive(Default)]
struct Hand {
    pulled: bool,
    /// How often it was pulled: a card that was pulled and plugged has lost its power.
    pulls: u64,
    faults: Vec<Trigger>,
    worked: Work,
}

/// What a card has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Commands that it was given.
    pub commands: u64,
    /// The time that it was at work on them, each from its arrival to the answer.
    pub time: Duration,
}

impl Work {
    /// What was done after `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(before.commands),
            time: self.time.saturating_sub(before.time),
        }
    }
}

impl Control {
    /// Follows an order.
    pub fn obey(&self, order: Order) {
        match order {
            Order::Unplug => self.unplug(),
            Order::Plug => self.plug(),
            Order::Fault(trigger) => self.order(trigger),
            Order::Clear => self.0.hand.lock().faults.clear(),
        }
    }

    /// Pulls the card, in the middle of a command if there is one.
    pub fn unplug(&self) {
        let mut hand = self.0.hand.lock();
        hand.pulls += u64::from(!hand.pulled);
        hand.pulled = true;
        self.0.moved.notify_all();
    }

    /// Plugs it in.
    pub fn plug(&self) {
        self.0.hand.lock().pulled = false;
        self.0.moved.notify_all();
    }

    /// Orders a fault.
    pub fn order(&self, trigger: Trigger) {
        self.0.hand.lock().faults.push(trigger);
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.obey(Order::Clear);
    }

    /// Is the card in its reader?
    pub fn plugged(&self) -> bool {
        !self.0.hand.lock().pulled
    }

    /// What the card has done so far.
    pub fn worked(&self) -> Work {
        self.0.hand.lock().worked
    }

    /// Counts a command.
    pub(crate) fn work(&self, time: Duration) {
        let worked = &mut self.0.hand.lock().worked;
        worked.commands += 1;
        worked.time += time;
    }

    /// Waits until the card is (`plugged`), or is not, in its reader; `false` if `timeout` passes first.
    pub fn wait_for(&self, plugged: bool, timeout: Duration) -> bool {
        let mut hand = self.0.hand.lock();
        let elsewhere = |hand: &mut Hand| hand.pulled == plugged;
        !self
            .0
            .moved
            .wait_while_for(&mut hand, elsewhere, timeout)
            .timed_out()
    }

    /// How often the card was pulled so far.
    pub(crate) fn pulls(&self) -> u64 {
        self.0.hand.lock().pulls
    }

    /// Waits until then; `false` as soon as the card is pulled for the `pulls`th time or later.
    pub(crate) fn sleep_until(&self, end: Instant, pulls: u64) -> bool {
        let mut hand = self.0.hand.lock();
        while hand.pulls == pulls {
            if self.0.moved.wait_until(&mut hand, end).timed_out() {
                break;
            }
        }
        hand.pulls == pulls
    }

    /// The faults that a command with this instruction byte meets, counted.
    pub(crate) fn meet(&self, ins: u8) -> Vec<Fault> {
        let mut met = Vec::new();
        self.0.hand.lock().faults.retain_mut(|trigger| {
            if trigger.ins.is_none_or(|only| only == ins) {
                met.push(trigger.fault);
                trigger.times = trigger.times.map(|times| times.saturating_sub(1));
            }
            trigger.times != Some(0)
        });
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_meets_its_commands_and_is_over() {
        let control = Control::default();
        control.order(Fault::Mute.times(2).on(0x68));
        control.order(Fault::Slow(5).always());
        assert_eq!(control.meet(0x20), [Fault::Slow(5)]);
        assert_eq!(control.meet(0x68), [Fault::Mute, Fault::Slow(5)]);
        assert_eq!(control.meet(0x68), [Fault::Mute, Fault::Slow(5)]);
        assert_eq!(control.meet(0x68), [Fault::Slow(5)]);
        control.clear();
        assert_eq!(control.meet(0x68), []);
    }

    #[test]
    fn who_waits_hears_of_a_pull() {
        let control = Control::default();
        assert!(control.wait_for(true, Duration::ZERO));
        let hand = control.clone();
        let puller = std::thread::spawn(move || hand.unplug());
        let far = Instant::now() + Duration::from_secs(60);
        assert!(!control.sleep_until(far, 0));
        assert!(control.wait_for(false, Duration::from_secs(60)));
        puller.join().unwrap();
        control.plug();
        assert!(control.plugged() && control.pulls() == 1);
    }
}
