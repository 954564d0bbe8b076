//! The engine's counts.

mod common;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::quiet;
use hsmux_bench::engine::{self, AsyncCaller, CallerFuture, Check, Ending};
use hsmux_bench::{LoadModel, Phase, Plan, Progress, RunControl, Until};
use hsmux_token::{Error, Result};

fn plan(load: LoadModel, until: Until) -> Plan {
    Plan {
        load,
        until,
        warm_up: Duration::ZERO,
        processes: Vec::new(),
    }
}

fn closed(workers: usize, count: u64) -> Plan {
    plan(LoadModel::Closed { workers }, Until::Count(count))
}

#[test]
fn a_count_is_kept_exactly_and_every_answer_is_checked() {
    let (ran, checked) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = |worker: usize| {
        ran.fetch_add(1, Ordering::Relaxed);
        Ok(Bytes::copy_from_slice(&[worker as u8; 3]))
    };
    let check = |worker: usize, answer: &[u8]| {
        checked.fetch_add(1, Ordering::Relaxed);
        assert_eq!(answer, [worker as u8; 3]);
        Ok(())
    };
    let found = engine::measure(&closed(7, 1001), quiet(), &run, Some(&check));
    assert_eq!(
        (found.ops, found.verified, found.failed, found.wrong),
        (1001, 1001, 0, 0)
    );
    assert_eq!((ran.into_inner(), checked.into_inner()), (1001, 1001));
    assert!(found.is_clean() && found.per_second > 0.0);
}

#[test]
fn failures_and_wrong_answers_are_counted_by_what_they_say() {
    let count = AtomicU64::new(0);
    let run = |_| match count.fetch_add(1, Ordering::Relaxed) % 4 {
        0 => Err(Error::vendor("C_Sign", 0x30)),
        other => Ok(Bytes::copy_from_slice(&[other as u8])),
    };
    let check = |_, answer: &[u8]| -> Result<()> {
        if answer == [3] {
            Err(Error::vendor("C_Verify", 0xc0))
        } else {
            Ok(())
        }
    };
    let found = engine::measure(&closed(3, 400), quiet(), &run, Some(&check));
    assert_eq!((found.ops, found.failed), (300, 100));
    assert_eq!((found.verified, found.wrong), (200, 100));
    assert!(!found.is_clean());
    let messages: Vec<&str> = found
        .faults
        .iter()
        .map(|fault| fault.message.as_str())
        .collect();
    assert!(
        messages
            .iter()
            .any(|message| message.contains("CKR_DEVICE_ERROR")),
        "{messages:?}"
    );
    assert!(
        messages
            .iter()
            .any(|message| message.starts_with("wrong answer: C_Verify"))
    );
}

#[test]
fn checking_is_not_in_the_time() {
    let run = |_| Ok(Bytes::new());
    let check = |_, _: &[u8]| {
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        Ok(())
    };
    let began = Instant::now();
    let found = engine::measure(&closed(1, 20), quiet(), &run, Some(&check));
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert!(found.elapsed_s < 1.0, "{}", found.elapsed_s);
    let own = &found.processes[0];
    assert_eq!(own.pid, std::process::id());
    assert!(
        own.cpu_s < 1.0 && own.peak_memory_bytes > 100_000,
        "{own:?}"
    );
}

/// A target that stalls once: the closed loop sees one slow operation, the open loop all that waited.
#[test]
fn the_open_loop_counts_from_the_intended_start() {
    let stall = Duration::from_millis(300);
    let measure = |load| {
        let first = AtomicBool::new(true);
        let run = |_| {
            if first.swap(false, Ordering::Relaxed) {
                std::thread::sleep(stall);
            }
            Ok(Bytes::new())
        };
        engine::measure(&plan(load, Until::Count(100)), quiet(), &run, None)
    };
    let open = measure(LoadModel::Open {
        per_second: 200.0,
        workers: 1,
    });
    let closed = measure(LoadModel::Closed { workers: 1 });
    let (open_us, closed_us) = (open.latency_us.unwrap(), closed.latency_us.unwrap());
    assert!(
        closed_us.p90 < 50_000.0 && closed_us.max >= 300_000.0,
        "{closed_us:?}"
    );
    // 100 operations start in 500 ms. Those of the first 300 ms wait; the 30th waits half the stall.
    assert!(
        open_us.p50 > 10_000.0 && open_us.p90 > 200_000.0,
        "{open_us:?}"
    );
    assert_eq!((open.ops, open.intended_per_second), (100, Some(200.0)));
    assert!(open.elapsed_s >= 0.49);
}

#[test]
fn the_open_loop_keeps_its_rate() {
    let load = LoadModel::Open {
        per_second: 500.0,
        workers: 4,
    };
    let until = Until::Elapsed(Duration::from_millis(600));
    let found = engine::measure(&plan(load, until), quiet(), &|_| Ok(Bytes::new()), None);
    assert_eq!(found.ops, 300);
    assert!(found.elapsed_s >= 0.6);
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    let stop = AtomicBool::new(false);
    let run = |_| {
        std::thread::sleep(Duration::from_millis(1));
        Ok(Bytes::new())
    };
    let progress = |progress: &Progress| {
        if progress.done >= 50 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let control = RunControl {
        stop: &stop,
        progress: &progress,
    };
    let check: &Check<'_> = &|_, _| Ok(());
    let found = engine::measure(&closed(2, 1_000_000), control, &run, Some(check));
    assert!(found.interrupted && !found.is_clean());
    assert!(found.ops >= 50 && found.ops < 1_000_000);
    assert_eq!(found.verified, found.ops);
}

#[test]
fn warm_up_and_progress_are_told_and_not_counted() {
    let seen = RefCell::new(Vec::new());
    let progress = |progress: &Progress| seen.borrow_mut().push(*progress);
    let never = AtomicBool::new(false);
    let control = RunControl {
        stop: &never,
        progress: &progress,
    };
    let warm_up = Duration::from_millis(250);
    let plan = Plan {
        warm_up,
        ..closed(1, 300)
    };
    let ran = AtomicU64::new(0);
    let run = |_| {
        ran.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        Ok(Bytes::new())
    };
    let found = engine::measure(&plan, control, &run, None);
    assert_eq!(found.ops, 300);
    assert!(ran.into_inner() > 300);
    let seen = seen.into_inner();
    assert_eq!(seen[0].phase, Phase::WarmUp);
    let last = seen.last().unwrap();
    assert_eq!((last.phase, last.of), (Phase::Measure, Some(300)));
    assert!(last.left.is_some_and(|left| left < Duration::from_secs(60)));
    let counted: u64 = found.timeline.iter().map(|point| point.failed).sum();
    assert_eq!(counted, 0);
    assert!(!found.timeline.is_empty());
}

/// More answers than the memory of a round: all are checked, in several rounds.
#[test]
fn a_long_run_is_checked_in_rounds() {
    let answer = Bytes::from(vec![1; 1 << 20]);
    let run = |_| Ok(answer.clone());
    let check: &Check<'_> = &|_, answer| {
        assert_eq!(answer.len(), 1 << 20);
        Ok(())
    };
    let found = engine::measure(&closed(2, 400), quiet(), &run, Some(check));
    assert_eq!((found.ops, found.verified), (400, 400));
}

#[test]
fn a_process_that_works_is_on_the_bill_with_its_children() {
    let mut child = std::process::Command::new("sh")
        .args([
            "-c",
            "sh -c 'while :; do :; done' & inner=$!; trap 'kill $inner' TERM; wait",
        ])
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let end = Instant::now() + Duration::from_secs(30);
    while std::fs::read_to_string(&children).unwrap().is_empty() {
        assert!(Instant::now() < end, "the child has no child");
        std::thread::sleep(Duration::from_millis(1));
    }
    let plan = Plan {
        processes: vec![child.id()],
        ..plan(
            LoadModel::Closed { workers: 1 },
            Until::Elapsed(Duration::from_millis(1500)),
        )
    };
    let run = |_| {
        std::thread::sleep(Duration::from_millis(5));
        Ok(Bytes::new())
    };
    let found = engine::measure(&plan, quiet(), &run, None);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
    assert_eq!(found.processes.len(), 3, "{:?}", found.processes);
    let cpu: f64 = found.processes[1..]
        .iter()
        .map(|process| process.cpu_s)
        .sum();
    assert!(cpu > 0.1, "{:?}", found.processes);
    assert!(
        found
            .processes
            .iter()
            .all(|process| process.peak_memory_bytes > 0)
    );
}

/// A caller that thinks and has a limited number of operations, or never ends.
struct SimulatedUser<'a> {
    thought: Duration,
    left: u64,
    stuck: bool,
    calls: &'a AtomicU64,
}

impl AsyncCaller for SimulatedUser<'_> {
    fn prepare(&mut self) -> CallerFuture<'_, ()> {
        Box::pin(async {})
    }

    fn more(&self) -> bool {
        self.left > 0
    }

    fn think(&mut self) -> CallerFuture<'_, ()> {
        Box::pin(tokio::time::sleep(self.thought))
    }

    fn call(&mut self) -> CallerFuture<'_, Result<Bytes>> {
        self.left -= 1;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let stuck = self.stuck;
        Box::pin(async move {
            if stuck {
                std::future::pending::<()>().await;
            }
            Ok(Bytes::new())
        })
    }
}

#[test]
fn callers_think_outside_the_latencies_and_end_when_they_have_done_enough() {
    let calls = AtomicU64::new(0);
    let thought = Duration::from_millis(300);
    let user = |_| -> Box<dyn AsyncCaller> {
        Box::new(SimulatedUser {
            thought,
            left: 3,
            stuck: false,
            calls: &calls,
        })
    };
    let plan = closed(50, 1_000_000);
    let found = engine::measure_waiting(&plan, quiet(), &user, Ending::Finish);
    assert_eq!((found.ops, calls.into_inner()), (150, 150));
    // The first thinking time may begin just before the clock.
    assert!(found.elapsed_s >= 0.8, "{}", found.elapsed_s);
    let latency = found.latency_us.unwrap();
    assert!(latency.min < 300_000.0, "{latency:?}");
}

#[test]
fn what_is_under_way_at_the_end_is_given_up_where_it_is_to_be() {
    let calls = AtomicU64::new(0);
    let user = |_| -> Box<dyn AsyncCaller> {
        Box::new(SimulatedUser {
            thought: Duration::ZERO,
            left: 1,
            stuck: true,
            calls: &calls,
        })
    };
    let until = Until::Elapsed(Duration::from_millis(200));
    let plan = plan(LoadModel::Closed { workers: 1000 }, until);
    let found = engine::measure_waiting(&plan, quiet(), &user, Ending::Cut);
    assert!(calls.into_inner() > 0);
    assert_eq!((found.ops, found.failed), (0, 0));
    assert!(found.elapsed_s >= 0.2, "{}", found.elapsed_s);
}
