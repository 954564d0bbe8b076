//! `hsmux bench`.

use std::fs;
use std::path::Path;

use hsmux_suite::{PATIENCE, Process, Program, Rig, SOFTHSM, Setup, built, until};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn signatures_are_measured_and_verified() {
    let rig = Rig::new(Setup::Daemon);
    let run = rig
        .hsmux("bench sign --key pkcs11:object=ec;type=private --concurrency 4 --count 3000 --json")
        .ok();
    let report: Value = serde_json::from_str(&run.out).expect("JSON from hsmux bench sign");
    let measured = &report["measurement"];
    assert_eq!(measured["ops"], 3000, "{run}");
    assert_eq!(measured["verified"], 3000, "{run}");
    assert_eq!(measured["failed"], 0, "{run}");
    for name in ["min", "mean", "stddev", "p50", "p90", "p99", "p99.9", "max"] {
        assert!(
            measured["latency_us"][name].as_f64() > Some(0.0),
            "{name}\n{run}"
        );
    }
    let processes = measured["processes"].as_array().expect("processes");
    assert_eq!(processes[0]["name"], "hsmux bench sign", "{run}");
    assert!(processes[0]["cpu_percent"].as_f64() > Some(0.0), "{run}");
    let has = |pid: u32, name: &str| {
        let its_own = |process: &&Value| process["pid"] == pid;
        let process = processes.iter().find(its_own).expect("the process");
        assert_eq!(process["name"], name, "{run}");
        assert!(
            process["peak_memory_bytes"].as_u64() > Some(1 << 20),
            "{run}"
        );
        process["cpu_s"].as_f64().expect("seconds")
    };
    let daemon = rig.daemon.as_ref().unwrap().id();
    assert!(has(daemon, "hsmux serve") >= 0.0, "{run}");
    let workers = rig.workers();
    assert_eq!(workers.len(), 3);
    let used: f64 = workers.iter().map(|pid| has(*pid, "hsmux worker")).sum();
    assert!(used > 0.0, "{run}");
}

#[test]
fn a_module_is_measured_past_the_pool() {
    let rig = Rig::prepare(Setup::Daemon, 1);
    rig.hsmux(&format!(
        "bench sign --direct {SOFTHSM} --token pkcs11:token=hsm1 --key pkcs11:object=ec;type=private"
    ))
    .args("--pin file:hsm1.pin --concurrency 2 --count 100")
    .ok()
    .says("100");
}

/// A vendor's daemon, by its name or its id, is in the account; published rates stand below keys of their kind alone.
#[test]
fn another_process_is_accounted_for_and_each_key_is_called_what_it_is() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.start();
    let mut vendor = Process::start("vendor", &rig.path(""), rig.run("sleep").arg("1000"));
    let sign = |key: &str| {
        let run = rig.hsmux("bench sign --count 20 --warm-up 1ms --key");
        run.arg(format!("pkcs11:object={key};type=private"))
    };
    let id = vendor.id();
    for process in [id.to_string(), "sleep".to_owned()] {
        let run = sign("ec").args("--json --process").arg(process).ok();
        let report: Value = serde_json::from_str(&run.out).expect("JSON");
        let processes = report["measurement"]["processes"].as_array().unwrap();
        assert!(processes.iter().any(|one| one["pid"] == id), "{report:#}");
    }
    sign("ec").ok().says("published").says("key of 256 bits");
    sign("rsa").ok().never_says("published");
    rig.hsmux("key generate aes:256 --label secret").ok();
    let secret = rig.hsmux("bench sign --count 20 --warm-up 1ms --key");
    secret
        .arg("pkcs11:object=secret;type=secret-key")
        .ok()
        .says("256 bits");
    sign("ec")
        .args("--process nobody-is-called-so")
        .fails()
        .says("no process has the name");
    vendor.kill();
}

#[test]
fn scaling_writes_a_report_that_needs_nothing_else() {
    let rig = Rig::new(Setup::Daemon);
    // Published are RSA-2048 signatures of SmartCard-HSMs, and these tokens are none.
    let run = rig
        .hsmux("bench scale --yes --tokens 1,2,3 --count 200 --html scale.html")
        .args("--label rsa")
        .ok();
    let page = fs::read_to_string(rig.path("scale.html")).unwrap();
    let title = "Signatures per second by 1, 2 and 3 members of pool web (SoftHSM v2): \
                 CKM_SHA256_RSA_PKCS, 2048 bits, 4 callers";
    assert!(page.contains(&format!("<h1>{title}</h1>")), "{title}");
    let (_, body) = page.split_once("</style>").unwrap();
    for text in [body.to_lowercase(), run.out.to_lowercase()] {
        assert!(!text.contains("published"), "of other devices\n{text}");
    }
    assert!(page.contains("<svg"), "no chart");
    for outside in ["<script src", "<link", "http-equiv", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    rig.wait_for_members(3);
}

#[test]
fn a_worker_is_killed_while_scaling_and_no_signature_is_lost() {
    let rig = Rig::new(Setup::Daemon);
    let workers = rig.workers();
    let run = rig
        .hsmux("bench scale --yes --tokens 3 --time 4s --kill-worker --json")
        .ok();
    let report: Value = serde_json::from_str(&run.out).expect("JSON from hsmux bench scale");
    let events = report["events"].as_array().expect("events");
    let [event] = &events[..] else {
        panic!("{run}");
    };
    assert_eq!(event["members"], 3, "{run}");
    let what = event["what"].as_str().expect("what happened");
    let is_named = |pid: &&u32| what.contains(&format!("(pid {pid})"));
    let killed = workers.iter().find(is_named).expect("one of the workers");
    let measured = &report["steps"][0]["measurement"];
    assert_eq!(measured["failed"], 0, "{run}");
    assert_eq!(measured["wrong"], 0, "{run}");
    assert_eq!(measured["verified"], measured["ops"], "{run}");
    rig.wait_for_members(3);
    assert!(!rig.workers().contains(killed), "{run}");
}

#[test]
fn scaling_fails_where_no_worker_could_be_killed() {
    let rig = Rig::new(Setup::Daemon);
    let run = rig
        .hsmux("bench scale --yes --tokens 3 --count 1 --concurrency 1 --warm-up 1ms --kill-worker")
        .fails();
    run.says("--kill-worker: no worker was killed");
    rig.wait_for_members(3);
}

/// Ctrl+C in the middle of a measurement that would take days: how it ended.
fn interrupted(rig: &Rig, command: &str) -> String {
    let served = || -> u64 {
        let status = rig.status();
        let members = status["members"].as_array().unwrap();
        let served = members
            .iter()
            .filter_map(|member| member["served"].as_u64());
        served.sum()
    };
    let run = rig.hsmux(&format!("{command} --count 1000000000 --warm-up 1ms"));
    let before = served();
    let mut bench = Process::start("bench", &rig.path(""), run);
    until("it measures", PATIENCE, || {
        (served() > before + 500).then_some(())
    });
    assert_eq!(bench.log(), "", "nothing before it has ended");
    bench.signal(Signal::INT);
    assert_eq!(bench.wait().code(), Some(3), "{}", bench.log());
    let said = bench.log();
    fs::remove_file(rig.path("bench.log")).unwrap();
    said
}

/// As JSON and as a table, with what was measured until then; and the exit code that docs/bench.md gives it.
#[test]
fn an_interrupted_measurement_keeps_what_was_measured() {
    let rig = Rig::new(Setup::Daemon);
    let is_kept = |measured: &Value| {
        assert_eq!(measured["interrupted"], true, "{measured:#}");
        let ops = measured["ops"].as_u64();
        assert!(ops > Some(300) && ops < Some(1_000_000_000), "{ops:?}");
        // A person waits: what is not checked within two seconds is not at all.
        let verified = measured["verified"].as_u64();
        assert!(verified > Some(0) && verified <= ops, "{measured:#}");
        assert_eq!(measured["wrong"], 0, "{measured:#}");
        assert!(measured["latency_us"]["p99"].as_f64() > Some(0.0));
    };
    let json = |said: String| -> Value { serde_json::from_str(&said).expect("JSON") };
    is_kept(&json(interrupted(&rig, "bench sign --json"))["measurement"]);
    let table = interrupted(&rig, "bench sign");
    assert!(table.contains(" callers, interrupted\n"), "{table}");

    // The step that was under way is the last, and the members that it did without are back.
    let scaled = json(interrupted(&rig, "bench scale --yes --tokens 2,3 --json"));
    let [step] = &scaled["steps"].as_array().unwrap()[..] else {
        panic!("{scaled:#}");
    };
    assert_eq!(step["members"], 2);
    is_kept(&step["measurement"]);
    rig.wait_for_members(3);
    let table = interrupted(&rig, "bench scale --yes --tokens 2,3");
    assert!(table.contains("\ninterrupted with 2 members\n"), "{table}");
    rig.wait_for_members(3);
}

/// Two members, the daemon, Ctrl+C in the middle: the second run does what the first one has left.
#[test]
fn a_burn_in_is_interrupted_and_goes_on() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.start();
    let command = "bench burn-in --key pkcs11:object=ec;type=private --state state.json";
    let state = rig.path("state.json");
    let mut first = Process::start(
        "burn-in",
        rig.path("").as_path(),
        rig.hsmux(&format!("{command} --count 100000000 --save-every 100ms")),
    );
    let passed = |file: &Path| -> Option<u64> {
        let state: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        state["counts"][0]["passed"].as_u64()
    };
    until("tests are on record", PATIENCE, || {
        passed(&state).filter(|passed| *passed > 100)
    });
    first.signal(Signal::INT);
    assert_eq!(first.wait().code(), Some(3), "{}", first.log());
    assert!(first.log().contains("the same command goes on"));
    let done = passed(&state).unwrap();

    let all = done + 500;
    let run = rig
        .hsmux(&format!(
            "{command} --count {all} --html burn-in.html --json"
        ))
        .ok();
    let report: Value = serde_json::from_str(&run.out).expect("JSON from hsmux bench burn-in");
    assert_eq!(report["performed"], all, "{run}");
    assert_eq!(report["tests"], all, "{run}");
    assert_eq!(report["failed"], 0, "{run}");
    assert_eq!(report["wrong"], 0, "{run}");
    assert_eq!(report["runs"], 2, "{run}");
    let tokens = report["tokens"].as_array().unwrap();
    let named = tokens.iter().map(|token| token["name"].as_str().unwrap());
    assert_eq!(named.collect::<Vec<_>>(), ["hsm1", "hsm2"]);
    let served = |token: &Value| token["served"].as_u64().unwrap();
    assert!(tokens.iter().all(|token| served(token) > 0), "{run}");
    assert_eq!(tokens.iter().map(served).sum::<u64>(), all, "{run}");
    // This process, the daemon and its two workers at least, and the first run's process.
    let memory = report["memory"].as_array().unwrap();
    let daemon = rig.daemon.as_ref().unwrap().id();
    assert!(memory.iter().any(|held| held["pid"] == daemon), "{run}");
    assert!(memory.len() >= 5, "{run}");
    let page = fs::read_to_string(rig.path("burn-in.html")).unwrap();
    assert!(page.contains("hsm2") && page.contains("<svg"));

    // Another key: the state is not mixed up with it.
    rig.hsmux("bench burn-in --key pkcs11:object=rsa;type=private --state state.json")
        .fails()
        .says("state.json is the state of another burn-in: its key is \"ec\"");
}

#[test]
fn a_wrong_signature_fails_the_burn_in() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut vendor = rig.stand_in("vendor", &["one", "two"]);
    rig.start();
    vendor.set("two", "wrong_signature_every = 10");
    let run = rig
        .hsmux("bench burn-in --count 200 --concurrency 4 --state state.json")
        .finish();
    assert_eq!(run.code, Some(1), "{run}");
    run.says("times wrong signature")
        .says("CKR_SIGNATURE_INVALID");
}

/// Three runs, and one with so many keys that no machine is too busy to show what they cost: 29 us and 4.9 us for each
/// are 1 ms for an operation, one after the other, where a fresh module takes a tenth of that. How fast it is
/// otherwise is for `make bench`.
#[test]
fn the_published_key_churn_is_repeated() {
    let rig = Rig::prepare(Setup::Daemon, 0);
    let done = rig
        .hsmux("bench churn --runs 3 --more 200 --callers 2 --settle 50ms --time 200ms --workers 1")
        .args("--html churn.html --json --old-module")
        .arg(built(Program::StandIn))
        .ok();
    let report: Value = serde_json::from_str(&done.out).expect("JSON from hsmux bench churn");
    let ways = ["bare SoftHSM", "broker, SoftHSM", "bare old", "broker, old"];
    assert_eq!(report["ways"], serde_json::json!(ways), "{done}");
    let rows = report["rows"].as_array().expect("rows");
    let keys: Vec<_> = rows.iter().map(|row| row["keys"].as_u64()).collect();
    assert_eq!(keys, [52, 1, 52, 200].map(Some), "{done}");
    for found in rows.iter().flat_map(|row| row["found"].as_array().unwrap()) {
        assert_eq!(found["failed"], 0, "{done}");
        assert!(found["per_second"].as_f64() > Some(0.0), "{done}");
    }
    let ratio = |row: usize, way: usize| {
        let found = &rows[row]["found"][way];
        found["ratio"].as_f64().expect("a ratio")
    };
    let (today, old) = (0, 2);
    let slow = ratio(3, old);
    assert!(slow < 0.5, "{done}");
    // The same module after its restart, and the one that takes changes over.
    for other in [ratio(0, old), ratio(3, today)] {
        assert!(other > 2.0 * slow, "{done}");
    }
    let page = fs::read_to_string(rig.path("churn.html")).unwrap();
    assert!(page.contains("<svg"), "no chart");
}
