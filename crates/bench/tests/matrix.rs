//! A table of measurements, with `openssl s_server` as the system under test.

mod common;

use std::cell::Cell as Count;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use common::{certificate, fits_80_columns, keeps_schema, quiet};
use hsmux_bench::RunControl;
use hsmux_bench::matrix::{self, MatrixOptions, MatrixReport, Plan};

/// Two kinds of key on 0 and 1 tokens, two loads each; `start` is their common command.
fn table(folder: &Path, start: &str) -> MatrixOptions {
    let (pem, key) = certificate(folder);
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let start = start
        .replace("PORT", &port.to_string())
        .replace("PEM", &pem.display().to_string())
        .replace("SECRET", &key.display().to_string());
    let text = format!(
        "best_of = 2\n\
         [client]\ntime = \"200ms\"\nca = \"server.pem\"\ntls = \"1.3\"\ngroups = \"X25519\"\n\
         [pages.static]\nurl = \"https://127.0.0.1:{port}/\"\n\
         [[cells]]\nkey = \"ec-prime256v1\"\nhsms = [1, 2]\nmodule = \"sc-hsm-embedded\"\npage = \"static\"\n\
         load = [{{ users = 2 }}, {{ users = 5, think = \"5s\" }}]\n\
         start = '''{start}'''\nready_within = \"20s\"\n"
    );
    fs::write(folder.join("table.toml"), text).unwrap();
    MatrixOptions {
        plan: Plan::read(&folder.join("table.toml")).unwrap(),
        state: folder.join("state.json"),
        restart: false,
    }
}

const SERVER: &str = "echo $HSMUX_KEY $HSMUX_HSMS $HSMUX_MODULE $HSMUX_PAGE >> started
    echo $$ > pid
    exec openssl s_server -accept PORT -cert PEM -key SECRET -www -quiet";

/// The report, and the number of runs.
fn run(options: &MatrixOptions) -> (MatrixReport, usize) {
    let runs = Count::new(0);
    let report = matrix::run(options, quiet(), &|_| runs.set(runs.get() + 1)).unwrap();
    (report, runs.get())
}

#[test]
fn cells_are_measured_once_and_stand_beside_what_was_published() {
    let folder = tempfile::tempdir().unwrap();
    let options = table(folder.path(), SERVER);
    let (report, runs) = run(&options);
    assert_eq!(
        (report.rows.len(), runs, report.left),
        (4, 8, 0),
        "{report}"
    );
    for row in &report.rows {
        assert_eq!((row.runs.len(), &row.error), (2, &None), "{report}");
        let best = row.figures().unwrap().rate_per_s;
        assert!(row.runs.iter().all(|run| run.figures.rate_per_s <= best));
        assert!(row.figures().unwrap().transactions > 0, "{report}");
        assert_eq!(row.runs[0].tls.group.as_deref(), Some("X25519"));
        // The started process has an account beside this process.
        assert!(
            row.runs[0].processes.len() > 1,
            "{:?}",
            row.runs[0].processes
        );
    }
    // Two users in a burst were not published, unlike five with thinking time.
    let published: Vec<_> = report
        .rows
        .iter()
        .map(|row| row.published.is_some())
        .collect();
    assert_eq!(published, [false, true, false, true]);
    let beside = report.rows[1].published.as_ref().unwrap();
    assert_eq!(
        (&*beside.module, beside.hsms, beside.users),
        ("sc-hsm-embedded", 1, 5)
    );
    assert!(report.rows[1].ratio().is_some());
    // One system for the loads of a cell, another for another number of tokens.
    let started = fs::read_to_string(folder.path().join("started")).unwrap();
    let expected = [1, 2].map(|hsms| format!("ec-prime256v1 {hsms} sc-hsm-embedded static\n"));
    assert_eq!(started, expected.concat());
    keeps_schema(&report);
    fits_80_columns(&report.to_string());
    let page = report.html();
    assert!(page.contains("<svg") && page.contains("published, sc-hsm-embedded"));

    let (again, runs) = run(&options);
    assert_eq!((runs, again.left), (0, 0));
    let rates = |report: &MatrixReport| -> Vec<f64> {
        let figures = report.rows.iter().filter_map(|row| row.figures());
        figures.map(|figures| figures.rate_per_s).collect()
    };
    // JSON may lose the last bit.
    for (again, rate) in rates(&again).into_iter().zip(rates(&report)) {
        assert!((again - rate).abs() < 1e-6, "{again} {rate}");
    }
    // The last started system has ended.
    let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
    let line = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim()));
    let still = line.is_ok_and(|line| line.contains(&folder.path().display().to_string()));
    assert!(!still, "{pid}");
}

#[test]
fn an_interrupted_table_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = table(folder.path(), SERVER);
    let stop = AtomicBool::new(false);
    let steps = Count::new(0);
    let next = |_: &matrix::MatrixStep<'_>| {
        steps.set(steps.get() + 1);
        stop.store(steps.get() == 4, Relaxed);
    };
    let control = RunControl {
        stop: &stop,
        progress: &|_| {},
    };
    let report = matrix::run(&options, control, &next).unwrap();
    assert_eq!((report.left, report.rows[0].runs.len()), (5, 2), "{report}");
    assert_eq!(report.rows[1].runs.len(), 1, "{report}");
    keeps_schema(&report);
    let (report, runs) = run(&options);
    assert_eq!((runs, report.left), (5, 0), "{report}");
    // Only the changed cell is measured.
    options.plan.cells[3].users = 3;
    assert_eq!(run(&options).1, 2);
    options.restart = true;
    assert_eq!(run(&options).1, 8);
    fs::write(&options.state, "{}").unwrap();
    options.restart = false;
    let error = matrix::run(&options, quiet(), &|_| {}).unwrap_err();
    assert!(
        error.to_string().contains("no state of a matrix"),
        "{error}"
    );
}

#[test]
fn what_does_not_start_is_named_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let broken = format!("[ $HSMUX_HSMS = 2 ] || [ -e mended ] || exit 3\n{SERVER}");
    let options = table(folder.path(), &broken);
    let (report, _) = run(&options);
    let errors: Vec<_> = report.rows.iter().map(|row| row.error.is_some()).collect();
    assert_eq!(
        (errors, report.left),
        (vec![true, true, false, false], 4),
        "{report}"
    );
    let error = report.rows[0].error.as_ref().unwrap();
    assert!(error.contains("it has ended"), "{error}");
    assert!(error.contains("state.json.log"), "{error}");
    keeps_schema(&report);
    fits_80_columns(&report.to_string());
    fs::write(folder.path().join("mended"), "").unwrap();
    let (report, runs) = run(&options);
    assert_eq!((runs, report.left), (4, 0), "{report}");
}

/// The situation after a killed run.
#[test]
fn what_answers_already_is_not_measured_in_place_of_what_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = table(folder.path(), SERVER);
    options.plan.cells.truncate(1);
    let cell = &options.plan.cells[0];
    let mut left = Command::new("sh")
        .args(["-c", &cell.start])
        .current_dir(folder.path())
        .spawn()
        .unwrap();
    let address = cell
        .url
        .trim_start_matches("https://")
        .trim_end_matches('/');
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "nobody listens at {address}");
        thread::sleep(Duration::from_millis(20));
    }
    let (report, _) = run(&options);
    left.kill().unwrap();
    left.wait().unwrap();
    let error = report.rows[0].error.as_ref().unwrap();
    assert!(error.contains("answers already"), "{error}");
    assert_eq!((report.rows[0].runs.len(), report.left), (0, 2), "{report}");
    let (report, runs) = run(&options);
    assert_eq!((runs, report.left), (2, 0), "{report}");
}

#[test]
fn a_file_that_says_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), SERVER);
    let file = folder.path().join("table.toml");
    let good = fs::read_to_string(&file).unwrap();
    for (old, new, why) in [
        ("best_of", "best_off", "unknown field `best_off`"),
        ("page = \"static\"", "page = \"wiki\"", "no [pages.wiki]"),
        ("\"200ms\"", "\"soon\"", "\"soon\""),
        ("tls = \"1.3\"", "tls = \"1.1\"", "neither 1.2 nor 1.3"),
        ("best_of = 2", "best_of = 0", "nothing to measure"),
        ("[pages", "[pages", ""),
    ] {
        fs::write(&file, good.replace(old, new)).unwrap();
        match Plan::read(&file) {
            Ok(_) => assert_eq!(old, new),
            Err(error) => {
                let text = error.to_string();
                assert!(!why.is_empty() && text.contains(why), "{why}: {text}");
                assert!(text.contains("table.toml"), "{text}");
            }
        }
    }
}
