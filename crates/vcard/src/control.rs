//! Pulls a card and orders faults while it works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::fault::{Fault, Order, Trigger};

/// Controls a card: pulls it, plugs it in, orders faults. Clones are cheap.
/// Any thread may use it while the card works or hangs.
#[derive(Clone, Default)]
pub struct Control(Arc<ControlInner>);

#[derive(Default)]
struct ControlInner {
    state: Mutex<ControlState>,
    moved: Condvar,
}

#[derive(Default)]
struct ControlState {
    pulled: bool,
    /// How often it was pulled: a card that was pulled and plugged in has lost power.
    pulls: u64,
    faults: Vec<Trigger>,
    worked: CardWork,
}

/// The work of a card since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardWork {
    /// Number of commands.
    pub commands: u64,
    /// Time of the commands, each from its arrival to the answer.
    pub time: Duration,
}

impl CardWork {
    /// The difference to `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(before.commands),
            time: self.time.saturating_sub(before.time),
        }
    }
}

impl Control {
    /// Executes an order.
    pub fn obey(&self, order: Order) {
        match order {
            Order::Unplug => self.unplug(),
            Order::Plug => self.plug(),
            Order::Fault(trigger) => self.order(trigger),
            Order::Clear => self.0.state.lock().faults.clear(),
        }
    }

    /// Pulls the card, even during a command.
    pub fn unplug(&self) {
        let mut state = self.0.state.lock();
        state.pulls += u64::from(!state.pulled);
        state.pulled = true;
        self.0.moved.notify_all();
    }

    /// Plugs it in.
    pub fn plug(&self) {
        self.0.state.lock().pulled = false;
        self.0.moved.notify_all();
    }

    /// Orders a fault.
    pub fn order(&self, trigger: Trigger) {
        self.0.state.lock().faults.push(trigger);
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.obey(Order::Clear);
    }

    /// Whether the card is in its reader.
    pub fn plugged(&self) -> bool {
        !self.0.state.lock().pulled
    }

    /// The card's work so far.
    pub fn worked(&self) -> CardWork {
        self.0.state.lock().worked
    }

    /// Counts a command.
    pub(crate) fn work(&self, time: Duration) {
        let worked = &mut self.0.state.lock().worked;
        worked.commands += 1;
        worked.time += time;
    }

    /// Waits until the card is in its reader (`plugged`), or not; `false` after `timeout`.
    pub fn wait_for(&self, plugged: bool, timeout: Duration) -> bool {
        let mut state = self.0.state.lock();
        let elsewhere = |state: &mut ControlState| state.pulled == plugged;
        !self
            .0
            .moved
            .wait_while_for(&mut state, elsewhere, timeout)
            .timed_out()
    }

    /// How often the card was pulled so far.
    pub(crate) fn pulls(&self) -> u64 {
        self.0.state.lock().pulls
    }

    /// Waits until `end`; returns `false` as soon as the card has been pulled more than `pulls` times.
    pub(crate) fn sleep_until(&self, end: Instant, pulls: u64) -> bool {
        let mut state = self.0.state.lock();
        while state.pulls == pulls {
            if self.0.moved.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.pulls == pulls
    }

    /// The faults that affect a command with this instruction byte; counts them.
    pub(crate) fn meet(&self, ins: u8) -> Vec<Fault> {
        let mut met = Vec::new();
        self.0.state.lock().faults.retain_mut(|trigger| {
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
        let remote = control.clone();
        let puller = std::thread::spawn(move || remote.unplug());
        let far = Instant::now() + Duration::from_secs(60);
        assert!(!control.sleep_until(far, 0));
        assert!(control.wait_for(false, Duration::from_secs(60)));
        puller.join().unwrap();
        control.plug();
        assert!(control.plugged() && control.pulls() == 1);
    }
}
