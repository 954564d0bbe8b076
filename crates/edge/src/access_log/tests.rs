use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use hsmux_config::AccessLogTarget;
use hyper::StatusCode;

use super::*;

struct Details(Option<SocketAddr>);

impl AccessDetails for Details {
    const LOGS_REFERER: bool = true;

    fn client(&self) -> Option<SocketAddr> {
        self.0
    }

    fn user(&self) -> Option<&str> {
        Some("CN=my app")
    }

    fn add_to(&self, line: &mut JsonLine) {
        line.text("site", "a.test");
        line.millis("backend_ms", Duration::from_micros(1_050));
        line.flag("resumed", true);
    }
}

fn client() -> Details {
    Details("[::ffff:192.0.2.7]:50412".parse().ok())
}

fn file(path: &Path, format: AccessLogFormat) -> Settings {
    Settings {
        target: AccessLogTarget::File(path.to_owned()),
        format,
    }
}

fn get(uri: &str, fields: &[(&str, &[u8])]) -> Request<()> {
    let mut request = Request::get(uri).version(hyper::Version::HTTP_11);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// The lines of these requests, answered with 200 and five bytes.
fn lines(format: AccessLogFormat, requests: &[Request<()>]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = AccessLog::new("gateway", |_| {});
    log.change(Some(&file(&path, format)));
    for request in requests {
        let mut record = log.request(request, client).unwrap();
        record.answered(StatusCode::OK);
        record.transfer().add_sent(5);
        record.complete();
    }
    log.close();
    let text = fs::read_to_string(&path).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_line_has_the_fields_of_its_format() {
    let fields: &[(&str, &[u8])] = &[
        ("host", b"a.test"),
        ("user-agent", b"curl/7.88 \"\xff"),
        ("referer", b"https://b.test/"),
    ];
    let request = get("/page?word=1", fields);
    let json = lines(AccessLogFormat::Json, std::slice::from_ref(&request));
    let [line] = &json[..] else {
        panic!("{json:?}")
    };
    let (time, rest) = line.split_once(",\"client\"").unwrap();
    assert_eq!(time.len(), "{\"time\":\"2026-11-29T12:22:11.123Z\"".len());
    let (rest, ms) = rest.split_once(",\"ms\":").unwrap();
    assert_eq!(
        rest,
        ":\"192.0.2.7\",\"port\":50412,\"method\":\"GET\",\"host\":\"a.test\",\"path\":\"/page?word=1\",\
         \"protocol\":\"HTTP/1.1\",\"status\":200,\"sent\":5,\"received\":0"
    );
    let (_, rest) = ms.split_once(',').unwrap();
    assert_eq!(
        rest,
        "\"site\":\"a.test\",\"backend_ms\":1.050,\"resumed\":true,\"referer\":\"https://b.test/\",\
         \"user_agent\":\"curl/7.88 \\\"\\ufffd\"}"
    );
    let combined = lines(AccessLogFormat::Combined, &[request]);
    let [line] = &combined[..] else {
        panic!("{combined:?}")
    };
    let (before, rest) = line.split_once('[').unwrap();
    assert_eq!(before, "192.0.2.7 - CN=my\\x20app ");
    let (time, rest) = rest.split_once(']').unwrap();
    assert_eq!(time.len(), "29/Nov/2026:12:22:11 +0000".len());
    assert_eq!(
        rest,
        " \"GET /page?word=1 HTTP/1.1\" 200 5 \"https://b.test/\" \"curl/7.88 \\\"\\xff\""
    );
}

/// A pipe takes a line of this length at once, so that lines of processes do not mix (PIPE_BUF in pipe(7)).
#[test]
fn the_longest_line_has_4096_bytes() {
    let long = vec![0xff; 8 << 10];
    let path = format!("/{}", "%\"".repeat(8 << 10));
    let fields: &[(&str, &[u8])] = &[("host", &long), ("user-agent", &long), ("referer", &long)];
    let mut request = get("/", fields);
    *request.uri_mut() = path.replace('"', "a").parse().unwrap();
    *request.method_mut() = "M".repeat(8 << 10).parse().unwrap();
    for format in [AccessLogFormat::Json, AccessLogFormat::Combined] {
        let all = lines(format, std::slice::from_ref(&request));
        let [line] = &all[..] else { panic!("{all:?}") };
        // Room for the names of a site, a back end and a certificate.
        let most = 4096 - 3 * (record::LONGEST_NAME + 30);
        assert!(line.len() < most, "{}", line.len());
        assert!(line.len() > 2000, "{}", line.len());
    }
}

#[test]
fn a_request_without_an_answer_is_one_whose_client_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = AccessLog::new("broker", |_| {});
    log.change(Some(&file(&path, AccessLogFormat::Json)));
    drop(log.request(&get("/", &[]), || Details(None)));
    drop(log.connection(client));
    log.close();
    let text = fs::read_to_string(&path).unwrap();
    let (first, second) = text.split_once('\n').unwrap();
    assert!(first.contains("\"client\":\"unix:\","), "{first}");
    assert!(first.contains("\"status\":499,"), "{first}");
    assert!(first.contains("\"aborted\":true"), "{first}");
    assert!(!second.contains("method"), "{second}");
}

#[test]
fn a_log_that_is_off_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = AccessLog::new("gateway", |_| {});
    assert!(log.request(&get("/", &[]), client).is_none());
    log.change(Some(&file(&path, AccessLogFormat::Json)));
    let record = log.request(&get("/", &[]), client);
    log.change(None);
    drop(record);
    assert!(log.connection(client).is_none());
    log.close();
    assert!(!path.exists());
}

#[test]
fn lines_go_to_the_file_of_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two", "three"].map(|name| folder.path().join(name));
    let log = AccessLog::new("gateway", |_| {});
    for path in &paths {
        log.change(Some(&file(path, AccessLogFormat::Combined)));
        drop(log.request(&get(&format!("/{}", path.display()), &[]), client));
    }
    log.close();
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
}

#[test]
fn a_full_queue_refuses_lines_and_holds_nobody_up() {
    let lost = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&lost);
    // As if the thread hung in a write: nothing is taken.
    let queue = LineQueue::new(
        "gateway",
        Box::new(move |lines| {
            counted.fetch_add(lines, SeqCst);
        }),
    );
    let line = format!("{}\n", "a".repeat(1023));
    for _ in 0..queue::LONGEST_QUEUE / line.len() {
        queue.push(&line);
    }
    assert_eq!(lost.load(SeqCst), 0);
    for refused in 1..=3 {
        queue.push(&line);
        assert_eq!(lost.load(SeqCst), refused);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    // What waits is for no output; what follows has one.
    queue.switch(Some(Output::new(AccessLogTarget::File(path.clone()))));
    assert!(queue.begin() && !queue.begin());
    thread::scope(|scope| {
        scope.spawn(|| queue.write_all());
        queue.close();
    });
    assert_eq!(lost.load(SeqCst), 3);
}

#[test]
fn the_end_does_not_wait_for_an_output_that_hangs() {
    let queue = LineQueue::new("gateway", Box::new(|_| {}));
    // As if there were a thread that hung in a write.
    assert!(queue.begin());
    let since = Instant::now();
    queue.close();
    let took = since.elapsed();
    assert!(took >= queue::CLOSE_WITHIN, "{took:?}");
    assert!(took < 30 * queue::CLOSE_WITHIN, "{took:?}");
}

/// A body that fails, and says that it has ended.
struct Broken;

impl hyper::body::Body for Broken {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<std::io::Result<hyper::body::Frame<bytes::Bytes>>>> {
        std::task::Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())))
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn an_answer_whose_body_fails_is_aborted() {
    use http_body_util::BodyExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = AccessLog::new("gateway", |_| {});
    log.change(Some(&file(&path, AccessLogFormat::Json)));
    let record = log.request(&get("/", &[]), client);
    let mut answer = RecordedBody::answer(hyper::Response::new(Broken), record);
    assert!(answer.body_mut().frame().await.unwrap().is_err());
    drop(answer);
    log.close();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"status\":200,"), "{text}");
    assert!(text.contains("\"aborted\":true"), "{text}");
}
