//! `hsmux bench tls` against nginx, with siege beside it.

use std::fs;
use std::thread;
use std::time::Duration;

use hsmux_suite::{Finished, Nginx, PATIENCE, Process, Rig, Run, Setup, until};
use rustix::process::Signal;
use serde_json::Value;

/// A folder with a web server, and the command beside it.
struct Web {
    nginx: Nginx,
    rig: Rig,
}

impl Web {
    fn new() -> Self {
        let rig = Rig::prepare(Setup::Daemon, 0);
        let nginx = Nginx::start(&rig.path(""));
        Self { nginx, rig }
    }

    /// `hsmux bench tls` of a page, trusting the server.
    fn bench(&self, page: &str, options: &str) -> Run {
        self.rig
            .hsmux("bench tls")
            .arg(self.nginx.url(page))
            .arg("--ca")
            .arg(self.nginx.certificate())
            .args(options)
    }

    fn report(&self, page: &str, options: &str) -> Value {
        json(&self.bench(page, options).arg("--json").ok())
    }

    /// The same of siege, which hangs at its end now and then: then it is asked again.
    fn siege(&self, page: &str, options: &str) -> Value {
        let settings = "color = off\njson_output = true\nlogging = false\nparser = true\n\
                        connection = close\naccept-encoding = identity\nfailures = 1000000\n";
        let file = self.rig.path("siegerc");
        fs::write(&file, settings).unwrap();
        until("siege ends", PATIENCE, || {
            let done = Run::new("timeout")
                .args("--kill-after=1 20 siege -R")
                .arg(&file)
                .args(options)
                .arg(self.nginx.url(page))
                .env("HOME", self.rig.path("").as_os_str())
                .finish();
            let begin = done.out.find('{')?;
            serde_json::from_str(&done.out[begin..]).ok()
        })
    }

    /// Requests that the server has on record since there were so many; it writes each down after it has
    /// answered.
    fn since(&self, before: usize, count: usize) -> Vec<String> {
        until("requests on the server's record", PATIENCE, || {
            let mut requests = self.nginx.requests();
            (requests.len() >= before + count).then(|| requests.split_off(before))
        })
    }
}

fn json(done: &Finished) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}\n{done}"))
}

/// Ours and siege's names of all twelve figures, and by what share two runs of the same load may differ: the first
/// [`COUNTS`] do not depend on the machine.
const FIGURES: [(&str, &str, f64); 12] = [
    ("transactions", "transactions", 0.0),
    ("availability_pct", "availability", 0.0),
    ("ok", "successful_transactions", 0.0),
    ("failed", "failed_transactions", 0.0),
    ("data_mb", "data_transferred", 0.0),
    ("elapsed_s", "elapsed_time", NOISE),
    ("response_s", "response_time", NOISE),
    ("rate_per_s", "transaction_rate", NOISE),
    ("throughput_mb_s", "throughput", NOISE),
    ("concurrency", "concurrency", NOISE),
    ("longest_s", "longest_transaction", NOISE),
    ("shortest_s", "shortest_transaction", NOISE),
];
const COUNTS: usize = 5;
const NOISE: f64 = 0.25;

/// Compares some of the figures; siege rounds its own to hundredths.
fn alike(page: &str, report: &Value, siege: &Value, figures: &[(&str, &str, f64)]) {
    for (ours, theirs, apart) in figures {
        let (our, its) = (&report["figures"][ours], &siege[theirs]);
        if *ours == "shortest_s" && siege["successful_transactions"] == 0 {
            assert_eq!(its, 0.0, "siege has none");
            continue;
        }
        let (our, its) = (our.as_f64().unwrap(), its.as_f64().unwrap());
        let near = (our - its).abs() <= 0.011 + apart * its;
        assert!(near, "{page}, {theirs}: {our} {its}\n{report:#}\n{siege:#}");
    }
}

/// Each kind of answer, and a page with its resources: counted alike, and the server saw as many.
#[test]
fn hits_are_counted_as_siege_counts_them() {
    let web = Web::new();
    for (page, ours, theirs, requests, good) in [
        ("hello.txt", "-c 5 -r 8 -b", "-c 5 -r 8 -b", 40, true),
        (
            "index.html",
            "-c 3 -r 2 -b --follow",
            "-c 3 -r 2 -b",
            24,
            true,
        ),
        ("moved", "-c 2 -r 3 -b --follow", "-c 2 -r 3 -b", 12, true),
        ("none.txt", "-c 2 -r 3 -b", "-c 2 -r 3 -b", 6, false),
        ("busy", "-c 2 -r 3 -b", "-c 2 -r 3 -b", 6, false),
    ] {
        let before = web.nginx.requests().len();
        let done = web.bench(page, ours).arg("--json").finish();
        assert_eq!(done.code, Some(i32::from(!good)), "{done}");
        let report = json(&done);
        let siege = web.siege(page, theirs);
        alike(page, &report, &siege, &FIGURES[..COUNTS]);
        let figures = &report["figures"];
        let counted = ["transactions", "failed"].map(|name| figures[name].as_u64().unwrap());
        assert_eq!(counted.iter().sum::<u64>(), requests, "{done}");
        // One more has been asked for, to see what the handshake comes to.
        web.since(before, 1 + 2 * usize::try_from(requests).unwrap());
        assert_eq!(report["times"]["full_handshakes"], requests, "{done}");
        assert_eq!(report["times"]["resumed_handshakes"], 0, "{done}");
        assert_eq!(report["unfinished"], 0, "{done}");
        let (longest, response) = (&figures["longest_s"], &figures["response_s"]);
        assert!(longest.as_f64() > Some(0.0), "{done}");
        assert!(!good || longest.as_f64() >= response.as_f64(), "{done}");
    }
    let resumed = |line: &&String| line.split(' ').nth(3) == Some("r");
    assert_eq!(web.nginx.requests().iter().filter(resumed).count(), 0);
}

/// The server takes its time, so that this decides about each figure and not the machine.
#[test]
fn all_twelve_figures_are_what_siege_says() {
    let web = Web::new();
    web.nginx.answer(|path| {
        thread::sleep(Duration::from_millis(700));
        let status = path.rsplit('/').next().expect("a status");
        let body = "b".repeat(300_000);
        let length = body.len();
        format!("HTTP/1.1 {status} so\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    });
    for status in ["200", "404", "503"] {
        let page = format!("behind/{status}");
        let load = "-c 5 -r 2 -b";
        let report = json(&web.bench(&page, load).arg("--json").finish());
        let figures = report["figures"].as_object().expect("figures");
        assert_eq!(figures.len(), FIGURES.len(), "{report:#}");
        alike(&page, &report, &web.siege(&page, load), &FIGURES);
    }
}

/// What was asked for stays asked for: those that find nobody there have failed.
#[test]
fn hits_fail_when_the_server_goes_away() {
    let mut web = Web::new();
    let run = web.bench("hello.txt", "-c 4 -r 2000 -b --json");
    let mut bench = Process::start("bench", &web.rig.path(""), run);
    until("hits", PATIENCE, || {
        (web.nginx.requests().len() > 100).then_some(())
    });
    web.nginx.process.kill();
    assert_eq!(bench.wait().code(), Some(1), "{}", bench.log());
    let report: Value = serde_json::from_str(&bench.log()).expect("JSON");
    let figures = &report["figures"];
    let (good, failed) = (&figures["transactions"], &figures["failed"]);
    let (good, failed) = (good.as_u64().unwrap(), failed.as_u64().unwrap());
    assert_eq!(good + failed, 8000, "{figures:#}");
    assert!(good > 50 && failed > 0, "{figures:#}");
    let share = 100.0 * good as f64 / 8000.0;
    let availability = figures["availability_pct"].as_f64().unwrap();
    assert!((availability - share).abs() < 1e-6, "{figures:#}");
    let fault = report["measurement"]["faults"][0]["message"].as_str();
    assert!(
        fault.is_some_and(|fault| fault.contains("not connected")),
        "{fault:?}"
    );
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    let web = Web::new();
    let run = web.bench("hello.txt", "-c 4 -t 10M -d 10ms --json");
    let mut bench = Process::start("bench", &web.rig.path(""), run);
    until("hits", PATIENCE, || {
        (web.nginx.requests().len() > 50).then_some(())
    });
    bench.signal(Signal::INT);
    assert_eq!(bench.wait().code(), Some(3), "{}", bench.log());
    let report: Value = serde_json::from_str(&bench.log()).expect("JSON");
    assert_eq!(report["measurement"]["interrupted"], true);
    let hits = report["figures"]["transactions"].as_u64();
    assert!(hits > Some(40), "{hits:?}");
    let elapsed = report["figures"]["elapsed_s"].as_f64();
    assert!(elapsed < Some(500.0), "{elapsed:?}");
}

/// The server has on record as many resumed sessions as were counted, with either version of TLS.
#[test]
fn resumed_handshakes_are_those_that_the_server_resumed() {
    let web = Web::new();
    for (version, protocol) in [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
        for (share, least) in [("1", 20), ("0.5", 5), ("0", 0)] {
            let before = web.nginx.requests().len();
            let options = format!("-c 2 -r 10 -b --tls {version} --resume {share}");
            let report = web.report("hello.txt", &options);
            let times = &report["times"];
            let count = |name: &str| times[name].as_u64().unwrap();
            let (full, resumed) = (count("full_handshakes"), count("resumed_handshakes"));
            assert_eq!(full + resumed, 20, "{options}: {times:#}");
            let seen = web.since(before, 21);
            // The first one is to see what a handshake comes to.
            let mut lines = seen.iter().skip(1).map(|line| line.split(' '));
            assert!(seen.iter().all(|line| line.contains(protocol)), "{seen:?}");
            let reused = lines
                .by_ref()
                .filter(|words| words.clone().nth(3) == Some("r"));
            assert_eq!(reused.count() as u64, resumed, "{options}: {seen:?}");
            // A user may come before the session that the other one is given.
            assert!(
                resumed + 4 >= least && (least > 0 || resumed == 0),
                "{options}: {times:#}"
            );
        }
    }
}

#[test]
fn a_handshake_offers_what_it_is_told_to() {
    let web = Web::new();
    let report = web.report("hello.txt", "-c 1 -r 2 -b --tls 1.3 --groups P-384");
    let tls = &report["tls"];
    let expected = ["TLSv1.3", "P-384", "ecdsa_secp256r1_sha256", "EC 256"];
    let names = ["version", "group", "signature", "key"];
    assert_eq!(names.map(|name| tls[name].as_str().unwrap()), expected);
    assert_eq!(tls["verified"], true);
    let seen = web.nginx.requests();
    assert!(
        seen.iter().all(|line| line.contains("secp384r1")),
        "{seen:?}"
    );
    web.bench("hello.txt", "-c 1 -r 1 --groups X99")
        .fails()
        .says("groups \"X99\"")
        .says("X25519:P-256");
    // The key of the server's certificate can sign with none of these.
    web.bench(
        "hello.txt",
        "-c 1 -r 1 --tls 1.3 --signatures rsa_pss_rsae_sha256",
    )
    .fails()
    .says("handshake");
}

#[test]
fn a_server_is_trusted_by_its_root_or_loudly() {
    let web = Web::new();
    let url = web.nginx.url("hello.txt");
    let bench = |options: &str| web.rig.hsmux("bench tls -c 1 -r 1 -b").args(options);
    bench(&url).fails().says("certificate");
    bench(&url).arg("--insecure").ok().says("NOT SECURE");
    let there = format!(
        "https://www.example.test/hello.txt --resolve 127.0.0.1:{}",
        web.nginx.port()
    );
    let ca = format!("--ca {}", web.nginx.certificate().display());
    bench(&format!("{there} {ca}"))
        .ok()
        .never_says("not secure");
    let other = there.replace("www", "other");
    bench(&format!("{other} {ca}")).fails().says("certificate");
    bench(&format!("{other} {ca} --sni www.example.test")).ok();
}

/// A run at a given rate reports the server's CPU time, and writes a page of HTML.
#[test]
fn a_rate_is_measured_with_its_cost() {
    let web = Web::new();
    let pid = web.nginx.process.id();
    let options = format!("-c 8 --rate 50 -t 1s --pid {pid} --html tls.html");
    let report = web.report("hello.txt", &options);
    let found = &report["measurement"];
    assert_eq!(found["intended_per_second"], 50.0);
    assert!(found["ops"].as_u64() <= Some(50), "{found:#}");
    let processes = found["processes"].as_array().unwrap();
    assert!(
        processes.iter().any(|process| process["pid"] == pid),
        "{found:#}"
    );
    let page = fs::read_to_string(web.rig.path("tls.html")).unwrap();
    for part in ["<svg", "Availability", "full handshake"] {
        assert!(page.contains(part), "{part}");
    }
}
