//! Load on a small web server over TLS in this process.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use common::{fits_80_columns, keeps_schema, quiet, tls_server};
use hsmux_bench::tls::{self, Extent, RequestPace, TlsOptions, Trust};
use hsmux_bench::{Progress, RunControl};
use rustls::{ServerConnection, StreamOwned};

/// A thread for each connection, until the test's process ends. With `stalls` only the first request gets an answer:
/// the one that reads the handshake's parameters.
fn serve(folder: &Path, stalls: bool) -> TlsOptions {
    let (pem, config) = tls_server(folder);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/page", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(connection, stream.unwrap()));
            std::thread::spawn(move || -> Option<()> {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    (stream.read_line(&mut head).ok()? > 0).then_some(())?;
                }
                if stalls && number > 0 {
                    stream.read_line(&mut head).ok()?;
                }
                let answer =
                    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
                stream.get_mut().write_all(answer.as_bytes()).ok()?;
                stream.get_mut().conn.send_close_notify();
                stream.get_mut().flush().ok()
            });
        }
    });
    TlsOptions {
        users: 4,
        pace: RequestPace::ThinkS(0.0),
        extent: Extent::Hits(10),
        trust: Trust::Roots(pem),
        ..TlsOptions::new(url)
    }
}

#[test]
fn every_hit_is_a_connection_and_the_report_keeps_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let options = serve(folder.path(), false);
    let report = tls::run(&options, quiet()).unwrap();
    let (figures, times) = (&report.figures, &report.times);
    assert_eq!((figures.transactions, figures.failed), (40, 0), "{report}");
    assert_eq!((times.full_handshakes, times.resumed_handshakes), (40, 0));
    assert!((figures.data_mb * f64::from(1 << 20) - 200.0).abs() < 1e-6);
    assert!((figures.availability_pct - 100.0).abs() < f64::EPSILON);
    let spent = figures.response_s * 40.0;
    assert!((figures.concurrency * figures.elapsed_s - spent).abs() < 1e-6);
    let (request, full) = (times.request_us.unwrap(), times.full_handshake_us.unwrap());
    assert!(request.max > full.min && times.resumed_handshake_us.is_none());
    let json = keeps_schema(&report);
    let back: tls::TlsReport = serde_json::from_value(json).unwrap();
    assert_eq!(
        (back.pace, back.figures),
        (RequestPace::ThinkS(0.0), *figures)
    );
    let text = report.to_string();
    for part in [
        "Availability",
        "100.00 %",
        "full handshake",
        "TLSv1.3",
        "in a burst",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    fits_80_columns(&text);
    assert!(report.html().contains("<svg"));
}

#[test]
fn a_share_of_connections_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let options = TlsOptions {
        resume: 0.25,
        users: 1,
        extent: Extent::Hits(40),
        ..serve(folder.path(), false)
    };
    let report = tls::run(&options, quiet()).unwrap();
    let times = &report.times;
    // The first connection that offers a session has none yet.
    assert_eq!((times.full_handshakes, times.resumed_handshakes), (31, 9));
    keeps_schema(&report);
}

/// Unfinished hits are in no figure, and not waited for.
#[test]
fn hits_under_way_are_given_up_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let options = TlsOptions {
        extent: Extent::Time(Duration::from_millis(500)),
        ..serve(folder.path(), true)
    };
    let report = tls::run(&options, quiet()).unwrap();
    let figures = &report.figures;
    assert_eq!((figures.transactions, figures.failed), (0, 0), "{report}");
    assert_eq!(report.unfinished, 4, "{report}");
    assert!(figures.elapsed_s < 20.0, "{report}");
    assert!(report.to_string().contains("4 requests were under way"));
    keeps_schema(&report);
    fits_80_columns(&report.to_string());
}

#[test]
fn a_hit_that_takes_too_long_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let options = TlsOptions {
        extent: Extent::Hits(1),
        timeout: Duration::from_secs(2),
        ..serve(folder.path(), true)
    };
    let report = tls::run(&options, quiet()).unwrap();
    assert_eq!(
        (report.figures.failed, report.unfinished),
        (4, 0),
        "{report}"
    );
    assert!((report.figures.availability_pct - 0.0).abs() < f64::EPSILON);
    let fault = &report.measurement.faults[0];
    assert_eq!((&*fault.message, fault.count), ("no answer within 2s", 4));
}

/// On an interruption the results so far are the report.
#[test]
fn an_interruption_ends_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let options = TlsOptions {
        extent: Extent::Time(Duration::from_secs(3600)),
        timeout: Duration::from_secs(3600),
        ..serve(folder.path(), true)
    };
    let stop = AtomicBool::new(false);
    let control = RunControl {
        stop: &stop,
        progress: &|_: &Progress| stop.store(true, Relaxed),
    };
    let report = tls::run(&options, control).unwrap();
    assert!(report.measurement.interrupted, "{report}");
    assert_eq!(report.figures.transactions, 0);
}

#[test]
fn what_cannot_be_measured_says_why() {
    type Change = fn(&mut TlsOptions);
    let nobody = TlsOptions::new("https://127.0.0.1:1/");
    let error = tls::run(&nobody, quiet()).unwrap_err().to_string();
    assert!(error.contains("not connected"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let good = serve(folder.path(), false);
    let wrong: [(&str, Change); 5] = [
        ("at least 1 user", |options| options.users = 0),
        ("open files", |options| options.users = usize::MAX / 2),
        ("no share", |options| options.resume = 1.5),
        ("no rate", |options| {
            options.pace = RequestPace::PerSecond(f64::NAN);
        }),
        ("certificate", |options| options.trust = Trust::System),
    ];
    for (why, change) in wrong {
        let mut options = good.clone();
        change(&mut options);
        let error = tls::run(&options, quiet()).unwrap_err().to_string();
        assert!(error.to_lowercase().contains(why), "{why}: {error}");
    }
}
