//! Rare and malformed messages of HTTP.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::backends::{backend, head, in_front_of, mirror};
use crate::hosts::{connect, say};
use crate::many_backends::{log, up};
use crate::rig::Gateway;

/// A back end that answers `/usual` with a short text, and any other path with these bytes.
fn answers(unusual: impl Into<Vec<u8>>) -> String {
    let unusual = unusual.into();
    backend(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
        loop {
            let asked = head(&mut reader);
            if asked.is_empty() {
                return;
            }
            let usual = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nusual\n".as_slice();
            let answer = if asked.starts_with("get /usual ") {
                usual
            } else {
                &unusual
            };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    })
}

/// Asserts that the answer is refused, on a new and on an open connection, and that the back end still counts as well.
fn is_refused_and_well(gateway: &Gateway, address: &str) {
    for _ in 0..2 {
        gateway.curl("a.test", "/unusual", "").says(" 502");
        gateway.curl("a.test", "/usual", "").says("usual");
    }
    assert_eq!(up(gateway, &format!("http://{address}")), 1);
    assert!(!log(gateway).contains("is left out"), "{}", log(gateway));
}

#[test]
fn an_answer_with_too_many_fields_does_not_mark_the_backend_as_down() {
    let mut fields = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n".to_owned();
    for field in 0..150 {
        write!(fields, "X-Field-{field}: 1\r\n").expect("a string");
    }
    fields += "\r\n";
    let address = answers(fields);
    let gateway = in_front_of("http", &address, "");
    is_refused_and_well(&gateway, &address);
    let log = log(&gateway);
    assert!(log.contains("more than 100 fields"), "{log}");
}

#[test]
fn an_answer_with_another_transfer_coding_is_refused() {
    for coding in ["gzip, chunked", "gzip"] {
        let coded =
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        let address = answers(coded);
        let gateway = in_front_of("http", &address, "");
        is_refused_and_well(&gateway, &address);
    }
}

#[test]
fn a_request_with_another_transfer_coding_is_refused() {
    let forwards = in_front_of("http", &backend(mirror), "");
    let folder = Gateway::with_folder();
    let request = |coding: &str| {
        format!(
            "GET /page.txt HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: {coding}\r\nConnection: close\r\n\r\n\
             0\r\n\r\n"
        )
    };
    for gateway in [&forwards, &folder] {
        for coding in [
            "gzip, chunked",
            "identity, chunked",
            "gzip\r\nTransfer-Encoding: chunked",
        ] {
            let said = say(gateway, "a.test", request(coding).as_bytes());
            assert!(said.starts_with("HTTP/1.1 501 "), "{coding}: {said}");
        }
    }
    let said = say(&folder, "a.test", request("Chunked").as_bytes());
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
}

#[test]
fn a_range_is_of_the_file_that_the_client_has() {
    let gateway = Gateway::with_folder();
    let whole = gateway.curl("a.test", "/page.txt", "");
    let field = |name: &str| {
        let lines = whole.out.lines();
        let line = lines.filter_map(|line| line.split_once(": "));
        let mut values = line.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim().to_owned())
    };
    let modified = field("last-modified").expect("a date");
    let ask = |range: &str, condition: &str| {
        let request = format!(
            "GET /page.txt HTTP/1.1\r\nHost: a.test\r\nRange: bytes={range}\r\n{condition}\
             Connection: close\r\n\r\n"
        );
        say(&gateway, "a.test", request.as_bytes())
    };
    let same = format!("If-Range: {modified}\r\n");
    for condition in ["", &same] {
        let part = ask("2-3", condition);
        assert!(part.starts_with("HTTP/1.1 206 "), "{part}");
        assert!(part.ends_with("\r\n\r\npa"), "{part}");
        assert!(ask("100-", condition).starts_with("HTTP/1.1 416 "));
    }
    for other in [
        "Sat, 29 Oct 1994 19:43:31 GMT",
        "\"another\"",
        "W/\"another\"",
        "nonsense",
    ] {
        for range in ["2-3", "100-"] {
            let all = ask(range, &format!("If-Range: {other}\r\n"));
            assert!(all.starts_with("HTTP/1.1 200 "), "{other} {range}: {all}");
            assert!(all.ends_with("\r\n\r\na page\n"), "{other} {range}: {all}");
        }
    }
    // Two conditions never hold.
    let all = ask("2-3", &format!("{same}{same}"));
    assert!(all.starts_with("HTTP/1.1 200 "), "{all}");
}

#[test]
fn an_unread_long_body_does_not_lose_the_answer() {
    let gateway = Gateway::with_folder();
    let file = gateway.rig.path("long");
    fs::write(&file, vec![b'a'; 8 << 20]).expect("a file");
    for version in ["--http2", "--http1.1"] {
        let options = format!(
            "{version} --header Expect: --data-binary @{}",
            file.display()
        );
        let answer = gateway.curl("a.test", "/page.txt", &options);
        assert_eq!(answer.code, Some(0), "{version}: {answer}");
        answer.says(" 405");
        let answer = gateway.curl(
            "a.test",
            "/page.txt",
            &format!("{options} --header Host:a.test:x"),
        );
        assert_eq!(answer.code, Some(0), "{version}: {answer}");
        answer.says(" 400");
    }
}

/// A file needs no body: after five seconds its answer comes without the rest.
#[test]
fn a_body_that_never_comes_delays_the_answer_for_five_seconds() {
    let gateway = Gateway::with_folder();
    let begun = Instant::now();
    let request = "POST /page.txt HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\
                   Connection: close\r\n\r\n";
    let mut client = connect(&gateway, "a.test", "http/1.1");
    client.write_all(request.as_bytes()).expect("the gateway");
    let mut status = [0; 13];
    client.read_exact(&mut status).expect("an answer");
    assert_eq!(status, *b"HTTP/1.1 405 ");
    let within = Duration::from_secs(5)..Duration::from_secs(60);
    assert!(within.contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

const EARLY: &str =
    "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nKeep-Alive: timeout=5\r\n\r\n";

#[test]
fn interim_answers_reach_the_client_before_the_final_one() {
    let (go, gone) = mpsc::channel();
    let gone = Mutex::new(gone);
    let address = backend(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
        while !head(&mut reader).is_empty() {
            for _ in 0..2 {
                stream.write_all(EARLY.as_bytes()).expect("the gateway");
            }
            // The final answer is sent after the client has the others.
            gone.lock().expect("the test").recv().expect("the test");
            let last = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlate\n";
            stream.write_all(last).expect("the gateway");
        }
    });
    let gateway = in_front_of("http", &address, "");
    let mut stream = BufReader::new(connect(&gateway, "a.test", "http/1.1"));
    for _ in 0..2 {
        let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
        stream.get_mut().write_all(request).expect("a request");
        for _ in 0..2 {
            let early = head(&mut stream);
            assert!(early.starts_with("http/1.1 103 early hints\r\n"), "{early}");
            assert!(
                early.contains("link: </style.css>; rel=preload\r\n"),
                "{early}"
            );
            assert!(!early.contains("keep-alive"), "{early}");
        }
        go.send(()).expect("the back end");
        let last = head(&mut stream);
        assert!(last.starts_with("http/1.1 200 "), "{last}");
        let mut body = [0; 5];
        stream.read_exact(&mut body).expect("a body");
        assert_eq!(&body, b"late\n");
    }
}

/// They arrive together with the final answer, and another request waits behind the first.
#[test]
fn interim_answers_keep_their_order() {
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfinal\n";
    let gateway = in_front_of("http", &answers([EARLY, EARLY, last].concat()), "");
    let ask = "GET /unusual HTTP/1.1\r\nHost: a.test\r\n";
    let said = say(
        &gateway,
        "a.test",
        format!("{ask}\r\n{ask}Connection: close\r\n\r\n").as_bytes(),
    );
    let statuses = said
        .lines()
        .filter_map(|line| line.strip_prefix("HTTP/1.1 "));
    let statuses: Vec<_> = statuses.map(|line| &line[..3]).collect();
    assert_eq!(
        statuses,
        ["103", "103", "200", "103", "103", "200"],
        "{said}"
    );
    // HTTP/1.0 has no interim answers.
    let old = say(
        &gateway,
        "a.test",
        b"GET /unusual HTTP/1.0\r\nHost: a.test\r\n\r\n",
    );
    assert!(
        old.starts_with("HTTP/1.0 200 ") || old.starts_with("HTTP/1.1 200 "),
        "{old}"
    );
    gateway
        .curl("a.test", "/unusual", "--http2")
        .says("final")
        .never_says(" 103");
}

#[test]
fn trailers_of_an_answer_reach_a_client_that_accepts_them() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                  5\r\nhello\r\n0\r\nX-Sum: 42\r\n\r\n";
    let gateway = in_front_of("http", &answers(answer), "");
    let ask = |lines: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
        say(&gateway, "a.test", request.as_bytes()).to_ascii_lowercase()
    };
    let taken = ask("TE: trailers\r\nConnection: TE, close\r\n");
    assert!(taken.contains("trailer: x-sum\r\n"), "{taken}");
    assert!(
        taken.ends_with("5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n"),
        "{taken}"
    );
    let not = ask("Connection: close\r\n");
    assert!(not.ends_with("hello\r\n0\r\n\r\n"), "{not}");
    gateway
        .curl("a.test", "/", "--http2")
        .says("hello")
        .says("x-sum: 42");
}

#[test]
fn trailers_of_a_request_reach_the_back_end_without_the_gateways_fields() {
    let address = backend(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
        let mut asked = head(&mut reader);
        let mut end = String::new();
        while !end.ends_with("\r\n\r\n") {
            reader.read_line(&mut end).expect("a body");
        }
        asked += &end;
        let length = asked.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{asked}");
        stream.write_all(answer.as_bytes()).expect("the gateway");
    });
    let gateway = in_front_of("http", &address, "");
    let request = "POST / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nConnection: TE, close\r\n\
                   Trailer: X-Sum, X-Forwarded-For\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n0\r\nX-Sum: 42\r\nX-Forwarded-For: forged\r\n\r\n";
    let said = say(&gateway, "a.test", request.as_bytes()).to_ascii_lowercase();
    assert!(said.contains("x-sum: 42\r\n"), "{said}");
    assert!(said.contains("\r\nte: trailers\r\n"), "{said}");
    assert!(!said.contains("forged"), "{said}");
}
