//! One run of the simulation: a trail from its first start, through failures and deaths, to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use super::clients::Asked;
use super::disk::{DiskActivity, DiskFaults, SimulatedDisk, StateFault};
use super::log_files::LogFiles;
use super::model::Model;
use super::plan::SimulationPlan;
use super::{HERE, Here, age, on_disk};
use crate::audit_folder::AuditFolder;
use crate::writer::TrailWriter;
use crate::{OnFailure, SealKey, Settings, Trail};
use hsmux_token::fake::Random;

pub struct TrailRun {
    pub seed: u64,
    pub step: u64,
    pub random: Random,
    pub plan: SimulationPlan,
    pub settings: Settings,
    pub folder: AuditFolder,
    pub logs: LogFiles,
    pub model: Model,
    /// The trail and its writer, while the daemon lives.
    pub daemon: Option<(Trail, TrailWriter)>,
    /// The seal key of the beginning: it proves all later lines.
    pub seal: Option<SealKey>,
    /// Uses of keys that a token works on.
    pub uses: usize,
    /// Acts that are being done.
    pub acts: usize,
    /// Callers that wait for their line.
    pub asked: Vec<Asked>,
    pub trouble: Trouble,
    /// The time of the last recovery.
    pub calm_since: Duration,
    /// The time since which a line waits, or the writer's last turn.
    pub waits_since: Option<Duration>,
    /// The time of the first written line that is not synced.
    pub unsynced_since: Option<Duration>,
    /// What the trail's observer has seen.
    seen: Arc<AtomicBool>,
    pub deaths: u64,
    /// True if a run has ended otherwise than in order.
    pub was_unclean: bool,
    pub has_lost: bool,
    trace: u64,
    is_told: bool,
    _files: tempfile::TempDir,
}

/// What keeps the trail from being written.
#[derive(Default)]
pub struct Trouble {
    trail_fails: bool,
    state_fails: bool,
    /// True from a full queue to the next success.
    pub is_full: bool,
}

impl Trouble {
    pub fn is_broken(&self) -> bool {
        self.trail_fails || self.state_fails
    }

    fn note(&mut self, activity: DiskActivity) {
        if let Some(failed) = activity.trail_failed {
            // Only a write shows that writing works again.
            self.trail_fails = failed || self.trail_fails && !activity.wrote;
        }
        self.state_fails = activity.state_failed.unwrap_or(self.state_fails);
        self.is_full &= self.is_broken();
    }
}

impl TrailRun {
    pub fn new(seed: u64) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut random = Random::new(seed);
        let plan = SimulationPlan::new(&mut random);
        let path = files.path().join("audit.log");
        HERE.set(Some(Here {
            base: Instant::now(),
            age: Duration::ZERO,
            disk: SimulatedDisk::new(seed),
        }));
        Self {
            seed,
            step: 0,
            random,
            settings: Settings {
                file: path.clone(),
                state: files.path().to_owned(),
                uses: true,
                on_failure: OnFailure::Stop,
                checkpoint: plan.checkpoint,
            },
            plan,
            folder: AuditFolder::of(files.path()),
            logs: LogFiles::new(path),
            model: Model::default(),
            daemon: None,
            seal: None,
            uses: 0,
            acts: 0,
            asked: Vec::new(),
            trouble: Trouble::default(),
            calm_since: Duration::ZERO,
            waits_since: None,
            unsynced_since: None,
            seen: Arc::default(),
            deaths: 0,
            was_unclean: false,
            has_lost: false,
            trace: 0,
            is_told: std::env::var_os("TRACE").is_some(),
            _files: files,
        }
    }

    /// So many steps, then the end. Answers all of them, and the trace.
    pub fn go(mut self, steps: u64) -> (u64, u64) {
        self.start();
        while self.step < steps {
            self.step += 1;
            self.act();
            self.check();
        }
        on_disk(|disk| disk.dies_in = None);
        self.settle();
        self.stop();
        HERE.set(None);
        (self.step, self.trace)
    }

    pub fn fail(&self, why: &str) -> ! {
        let (seed, step, age) = (self.seed, self.step, age());
        HERE.set(None);
        if self.is_told {
            self.logs.print();
        }
        panic!("seed {seed}, step {step}, after {age:?}: invariant 6: {why}");
    }

    pub fn must(&self, result: Result<(), String>) {
        if let Err(why) = result {
            self.fail(&why);
        }
    }

    /// An event of the simulation, for people and for the comparison of runs.
    pub fn trace(&mut self, what: &str, number: u64) {
        if self.is_told {
            println!("{:6} {:?} {what} {number}", self.step, age());
        }
        let word = what
            .bytes()
            .fold(number, |sum, byte| sum * 31 % (1 << 40) + u64::from(byte));
        let mixed = self.trace.rotate_left(5) ^ word ^ age().as_nanos() as u64;
        self.trace = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn advance(time: Duration) {
        HERE.with_borrow_mut(|here| here.as_mut().expect("it is here").age += time);
    }

    pub fn trail(&self) -> &Trail {
        &self.daemon.as_ref().expect("it runs").0
    }

    /// One step.
    fn act(&mut self) {
        let plan = &self.plan;
        let random = &mut self.random;
        let rare = [
            random.one_in(plan.faults),
            random.one_in(plan.repairs),
            random.one_in(plan.rotations),
            random.one_in(plan.settings),
            random.one_in(plan.floods),
            random.one_in(plan.stops),
            random.one_in(plan.deaths),
            random.one_in(250),
        ];
        match rare.iter().position(|it| *it) {
            Some(0) => self.fault(),
            Some(1) => self.repair(),
            Some(2) => self.rotate(),
            Some(3) => self.change_settings(),
            Some(4) => self.flood(),
            Some(5) if self.random.one_in(2) => self.settle(),
            Some(5) => {
                if self.stop() {
                    self.start();
                }
            }
            Some(6) => self.die_soon(),
            Some(_) => self.verify(),
            None => match self.random.below(16) {
                0..3 if self.uses < self.plan.uses => self.begin_use(),
                3..6 if self.uses > 0 => self.end_use(),
                6 => self.begin_act(),
                7 if self.acts > 0 => self.end_act(),
                8..12 if self.pass_time() => {}
                _ => _ = self.write() || self.pass_time(),
            },
        }
    }

    fn rotate(&mut self) {
        let is_moved = !self.random.one_in(4);
        self.trace("rotation", u64::from(is_moved));
        if is_moved {
            on_disk(|disk| self.logs.rotate(disk));
        }
        // The signal may be forgotten.
        if !self.random.one_in(8) && self.asked.iter().all(|asked| asked.kind.is_some()) {
            let (ticket, answer) = sync_channel(1);
            self.trail().shared.queue.reopen(ticket);
            self.asked.push(Asked {
                number: 0,
                kind: None,
                answer,
            });
        }
    }

    fn change_settings(&mut self) {
        let stops = self.random.one_in(2);
        self.settings.on_failure = OnFailure::which(stops);
        let checkpoint = *self.random.pick(&[20, 1_000, 60_000]);
        self.settings.checkpoint = Duration::from_millis(checkpoint);
        self.trace("settings", u64::from(stops));
        self.trail().change(&self.settings);
    }

    fn fault(&mut self) {
        let what = self.random.below(6);
        self.trace("fault", what);
        let room = self.random.below(2) * self.random.below(2000);
        on_disk(|disk| {
            let faults = &mut disk.faults;
            match what {
                0 | 1 => faults.room = Some(room),
                2 => faults.syncs = true,
                3 => faults.opens = true,
                4 => faults.state = Some(StateFault::Before),
                _ => faults.state = Some(StateFault::After),
            }
        });
    }

    pub fn repair(&mut self) {
        self.trace("repair", 0);
        on_disk(|disk| disk.faults = DiskFaults::default());
    }

    /// The daemon dies now, or at one of its next operations.
    fn die_soon(&mut self) {
        if self.random.one_in(3) {
            return self.die();
        }
        let operations = self.random.below(8);
        self.trace("death comes", operations);
        on_disk(|disk| disk.dies_in = Some(operations));
    }

    /// Time passes, until shortly after the writer has work.
    fn pass_time(&mut self) -> bool {
        let (scale, share) = (self.random.below(26), self.random.below(1_000_000));
        let share = Duration::from_nanos(share);
        let (trail, writer) = self.daemon.as_ref().expect("it runs");
        let wake = match trail.waiting() {
            0 => writer.deadline(),
            _ => Some(writer.not_before()),
        };
        let wake = wake.map(|wake| wake.max(writer.not_before()));
        let limit = wake.map(|wake| wake.saturating_duration_since(crate::clock::now()));
        if !self.asked.is_empty() || limit == Some(Duration::ZERO) {
            return false;
        }
        let time = Duration::from_nanos(100 << scale);
        Self::advance(limit.map_or(time, |limit| limit.min(time)) + share);
        self.trace("time", 0);
        self.check_times();
        true
    }

    /// A turn of the writer, if it has work.
    pub fn write(&mut self) -> bool {
        let (trail, writer) = self.daemon.as_mut().expect("it runs");
        let (not_before, deadline) = (writer.not_before(), writer.deadline());
        let Some(work) = trail.shared.queue.try_take(not_before, deadline) else {
            return false;
        };
        let count = work.entries.len() as u64;
        self.trace("turn", count);
        self.turn(|writer| writer.turn(work));
        true
    }

    /// The writer works. False if it has ended, or the daemon has died.
    pub fn turn(&mut self, work: impl FnOnce(&mut TrailWriter) -> bool) -> bool {
        on_disk(|disk| disk.since_asked = DiskActivity::default());
        let (_, writer) = self.daemon.as_mut().expect("it runs");
        let goes_on = work(writer);
        if on_disk(|disk| disk.is_dead) {
            self.die();
            return false;
        }
        self.note_activity();
        self.read_lines();
        self.hear_answers();
        goes_on
    }

    /// What became of the turn on the disk.
    fn note_activity(&mut self) {
        let activity = on_disk(|disk| disk.since_asked);
        let was_broken = self.trouble.is_broken();
        self.trouble.note(activity);
        let is_broken = self.trouble.is_broken();
        if was_broken && !is_broken {
            self.calm_since = age();
        }
        let problem = self.trail().status().problem;
        if problem.is_some() != is_broken {
            self.fail(&format!("the status has {problem:?} after {activity:?}"));
        }
    }

    /// Lets an observer of the trail note what it sees.
    pub fn observe(&self) {
        let (shared, seen) = (Arc::downgrade(&self.trail().shared), Arc::clone(&self.seen));
        seen.store(self.trail().admits(), Ordering::Relaxed);
        self.trail().observe(Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                seen.store(shared.queue.admits(), Ordering::Relaxed);
            }
        }));
    }

    pub fn has_seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// Passes the time to the next work of the writer.
    pub fn wait_for_work(&mut self) {
        let (trail, writer) = self.daemon.as_ref().expect("it runs");
        let wake = match trail.waiting() {
            0 => writer.deadline(),
            _ => Some(writer.not_before()),
        };
        let wake = wake.unwrap_or_else(|| writer.not_before());
        Self::advance(
            wake.max(writer.not_before())
                .saturating_duration_since(crate::clock::now()),
        );
    }
}
