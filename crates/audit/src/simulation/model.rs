//! The events that were given to the trail, and the lines that they must have.

use std::collections::{BTreeMap, BTreeSet};

use super::log_files::ReadLine;

/// The events that one run of the daemon gives to the trail.
#[derive(Default)]
pub struct Model {
    numbers: u64,
    given: BTreeMap<u64, GivenEvent>,
    /// The last event in the files.
    last: u64,
    /// Lost lines and refusals that lines of gaps have told.
    pub told: (u64, u64),
    pub refused: u64,
    /// Acts that began without their line.
    lost_acts: u64,
}

struct GivenEvent {
    kind: EventKind,
    state: EventState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A use of a key: nobody waits for its line.
    Use,
    Announcement,
    /// An announcement that `on_failure` decides about.
    ByPolicy,
    Commit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EventState {
    Waits,
    Written,
    /// The caller got an error: the event has no line.
    Withdrawn,
}

impl Model {
    /// The number of the next event, which is given to the trail now.
    pub fn give(&mut self, kind: EventKind) -> u64 {
        self.numbers += 1;
        let state = EventState::Waits;
        let event = GivenEvent { kind, state };
        self.given.insert(self.numbers, event);
        self.numbers
    }

    /// Each event has one line, in the order in which they were given. One that was withdrawn has none.
    pub fn read(&mut self, line: &ReadLine) -> Result<(), String> {
        if let Some(gap) = &line.gap {
            self.told.0 += gap.lost;
            self.told.1 += gap.refused;
        }
        let Some(number) = line.event else {
            return Ok(());
        };
        if number <= self.last {
            let last = self.last;
            return Err(format!(
                "event {number} has a line after that of event {last}"
            ));
        }
        self.last = number;
        let Some(event) = self.given.get_mut(&number) else {
            return Err(format!("event {number} has a line again"));
        };
        if event.state == EventState::Withdrawn {
            return Err(format!(
                "{:?} {number} was refused, and has a line",
                event.kind
            ));
        }
        event.state = EventState::Written;
        Ok(())
    }

    /// The caller has the trail's error.
    pub fn withdraw(&mut self, number: u64) -> Result<(), String> {
        let event = self.given.get_mut(&number).expect("it was given");
        if event.state == EventState::Written {
            return Err(format!(
                "{:?} {number} is refused, and has a line",
                event.kind
            ));
        }
        event.state = EventState::Withdrawn;
        Ok(())
    }

    /// The act of a withdrawn line begins all the same: the line is counted as lost.
    pub fn lose_act(&mut self) {
        self.lost_acts += 1;
    }

    /// All that could be written is written: answers an event that is neither on the trail nor counted as lost.
    pub fn settle(&mut self, lost: u64, refused: u64) -> Result<(), String> {
        let mut without_line = 0;
        for (number, event) in &self.given {
            match (event.state, event.kind) {
                (EventState::Waits, EventKind::Use) => without_line += 1,
                (EventState::Waits, kind) => {
                    return Err(format!("{kind:?} {number} has no line"));
                }
                (EventState::Written | EventState::Withdrawn, _) => {}
            }
        }
        let expected = self.lost_acts + without_line;
        // Later settlements compare with the same sum.
        self.lost_acts = expected;
        self.given.clear();
        let counts = [(lost, refused), self.told];
        if counts != [(expected, self.refused); 2] {
            let refused = self.refused;
            return Err(format!(
                "{expected} lines are lost and {refused} refused; the status and the gaps count {counts:?}"
            ));
        }
        Ok(())
    }

    /// The daemon has died, or ended. These events have lines, in this order.
    pub fn end(&mut self, events: impl Iterator<Item = u64>) -> Result<(), String> {
        let mut last = 0;
        for event in events {
            if event <= last {
                return Err(format!(
                    "event {event} has a line after that of event {last}"
                ));
            }
            last = event;
        }
        *self = Self {
            numbers: self.numbers,
            last: last.max(self.last),
            ..Self::default()
        };
        Ok(())
    }
}

/// True if a file may have these events after a death: as many as are on disk, then more of those that
/// were written, then perhaps some of a block that was not written to its end.
pub fn is_possible(
    now: &[u64],
    before: &[u64],
    on_disk: usize,
    half_written: &BTreeSet<u64>,
) -> bool {
    let same = now.iter().zip(before).take_while(|(now, then)| now == then);
    let same = same.count();
    same >= on_disk && now[same..].iter().all(|event| half_written.contains(event))
}
