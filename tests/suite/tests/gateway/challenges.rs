//! ACME's challenges: from a folder, from an ACME client, and through haproxy. Nothing else is given away.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use hsmux_suite::{PATIENCE, Process, until};

use crate::authority::Names;
use crate::plain_http::{CHALLENGES, count, curl, curl_at, with};
use crate::rig::{FOLDER, Gateway, configure};

#[test]
fn a_folder_gives_challenges_to_anybody_and_nothing_else() {
    let gateway = with("", "acme");
    // The challenge may be for another server's certificate.
    for host in ["a.test", "elsewhere.test"] {
        let path = format!("{CHALLENGES}/tok-en_1");
        let answer = curl(&gateway, host, &path, "");
        answer.says(" 200 ").says("\r\n\r\ntok-en_1.thumb");
        let head = curl(&gateway, host, &path, "--head");
        head.says("content-length: 14").never_says("thumb");
    }
    for path in [
        "",
        "/",
        "/absent",
        "/secret",
        "/link",
        "/../../../secret.txt",
        "/..",
        "/%2e%2e/%2e%2e/%2e%2e/secret.txt",
        "/..%2f..%2f..%2fsecret.txt",
        "/tok-en_1/",
        "/tok-en_1%00",
        "//tok-en_1",
        "/./tok-en_1",
        "/tok-en_1.",
    ] {
        let answer = curl(&gateway, "a.test", &format!("{CHALLENGES}{path}"), "");
        let refused =
            answer.out.contains(" 404 ") || path.is_empty() && answer.out.contains(" 308 ");
        assert!(refused, "{path}: {answer}");
        answer.never_says("a secret");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
        let path = format!("{CHALLENGES}/tok-en_1");
        let answer = curl(&gateway, "a.test", &path, &format!("--request {method}"));
        answer
            .says(" 405 ")
            .says("allow: GET, HEAD")
            .never_says("thumb");
    }
    assert_eq!(
        (
            count(&gateway, "challenge"),
            count(&gateway, "no-challenge")
        ),
        (4, 13)
    );
    assert_eq!(
        (count(&gateway, "redirect"), count(&gateway, "refused")),
        (1, 5)
    );
}

/// An ACME client that answers each connection with these bytes. The channel has the requests.
fn client(answer: &'static str) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (tell, told) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap_or(0);
            let _ = tell.send(String::from_utf8_lossy(&head[..length]).into_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (format!("http://{address}"), told)
}

#[test]
fn an_acme_client_is_asked_and_trusted_for_challenges_alone() {
    let (at, told) =
        client("HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nContent-Length: 9\r\n\r\ntok.thumb");
    let gateway = with("", &at);
    let tok = format!("{CHALLENGES}/tok");
    let answer = curl(&gateway, "elsewhere.test", &tok, "--header X-Mine:1");
    answer
        .says(" 200 ")
        .says("tok.thumb")
        .never_says("set-cookie");
    let asked = told
        .recv_timeout(PATIENCE)
        .expect("a question")
        .to_lowercase();
    assert!(
        asked.starts_with(&format!("get {tok} http/1.1\r\n")),
        "{asked}"
    );
    assert!(asked.contains("host: elsewhere.test\r\n"), "{asked}");
    assert!(!asked.contains("x-mine"), "{asked}");
    // The answer is for another token.
    curl(&gateway, "a.test", &format!("{CHALLENGES}/other"), "").says(" 404 ");
    assert!(told.recv_timeout(PATIENCE).is_ok());
    curl(&gateway, "a.test", &format!("{CHALLENGES}/a%2fb"), "").says(" 404 ");
    assert!(told.try_recv().is_err(), "this is no token");
    let (endless, _told) = client("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\ntok.thumb");
    let gateway = with("", &endless);
    for _ in 0..3 {
        curl(&gateway, "a.test", &tok, "")
            .says(" 502 ")
            .never_says("thumb");
    }
    assert_eq!(warnings(&gateway), 1, "it is told once");
}

/// Strangers request challenges all day long. Only errors that have to be fixed are logged.
#[test]
fn an_unreadable_folder_is_logged_and_a_missing_client_is_not() {
    let tok = format!("{CHALLENGES}/tok-en_1");
    let gateway = with("", "http://127.0.0.1:1");
    curl(&gateway, "a.test", &tok, "").says(" 502 ");
    assert_eq!(
        (count(&gateway, "no-challenge"), warnings(&gateway)),
        (1, 0)
    );
    let gateway = with("", "acme");
    let (here, away) = (
        gateway.rig.path("acme/.well-known"),
        gateway.rig.path("away"),
    );
    for troubles in 1..3 {
        curl(&gateway, "a.test", &tok, "").says(" 200 ");
        fs::rename(&here, &away).expect("take the folder away");
        fs::write(&here, "").expect("put a file in its way");
        for other in ["tok-en_1", "another"] {
            curl(&gateway, "a.test", &format!("{CHALLENGES}/{other}"), "").says(" 502 ");
        }
        assert_eq!(warnings(&gateway), troubles);
        fs::remove_file(&here).expect("take the file away");
        fs::rename(&away, &here).expect("bring the folder back");
    }
}

/// The number of logged errors of challenges.
fn warnings(gateway: &Gateway) -> usize {
    let log = gateway.rig.daemon.as_ref().expect("a daemon").log();
    log.matches("ACME's challenges have no answer").count()
}

/// Both hosts pass challenges to the same ACME client.
#[test]
fn haproxy_passes_challenges_to_every_host() {
    let (client, _told) = client("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntok.thumb");
    let mut hosts = [(); 2].map(|()| with("proxy_protocol = true", &client));
    let names = Names::new();
    let at = &names.address;
    let host = |gateway: &Gateway| {
        let port = gateway.http.rsplit_once(':').expect("a port").1;
        format!("{}/{port}", gateway.host())
    };
    let rig = &hosts[0].rig;
    rig.hsmux("haproxy config --out haproxy.cfg")
        .args(&format!("--listen {at}:8443 --http-listen {at}:8081"))
        .args(&format!("{} {} --socket", host(&hosts[0]), host(&hosts[1])))
        .arg(rig.path("haproxy.sock"))
        .ok();
    let haproxy = rig.family(&["haproxy", "-W", "-db", "-f", "haproxy.cfg"]);
    let _haproxy = Process::start("haproxy", &rig.path(""), haproxy);
    let front = format!("{at}:8081");
    let ask = || curl_at(&front, "a.test", &format!("{CHALLENGES}/tok"), "");
    until("both hosts are asked", PATIENCE, || {
        let answered = ask().out.contains(" 200 ");
        let both = hosts.iter().all(|host| count(host, "challenge") > 0);
        (answered && both).then_some(())
    });
    curl_at(&front, "a.test", "/page.txt", "").says("https://a.test/page.txt");
    hosts[1].rig.kill_to_the_last();
    ask().says(" 200 ").says("tok.thumb");
}

/// Challenges for its names come from its own folder alone. Only its own certificate may be missing at the start.
#[test]
fn a_site_may_have_its_own_acme_source() {
    let site = |name: &str, certificates: &str, more: &str| {
        format!(
            "[[site]]\nnames = [\"{name}\"]\ncertificates = [{certificates}]\n{FOLDER}\n{more}\n"
        )
    };
    let own = site("a.test", "\"later.pem\"", "acme = \"acme-a\"");
    let other = site("rsa.test", "\"rsa.pem\"", "");
    for (all, of_others) in [("acme = \"acme\"", " 200 "), ("", " 421 ")] {
        let rig = Gateway::prepare();
        for (folder, token) in [("acme", "tok-en_1"), ("acme-a", "tok-en_2")] {
            let folder = rig.path(&format!("{folder}{CHALLENGES}"));
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join(token), format!("{token}.thumb")).expect("a challenge");
        }
        let lines = format!("http = [\"127.0.0.1:0\"]\n{all}");
        let gateway = Gateway::start(rig, &lines, &format!("{own}{other}"));
        assert_eq!(gateway.metric("hsmux_gateway_certificates_awaited"), 1);
        for (host, token, status) in [
            ("a.test", "tok-en_1", " 404 "),
            ("a.test", "tok-en_2", " 200 "),
            ("A.test:80", "tok-en_2", " 200 "),
            ("elsewhere.test", "tok-en_1", of_others),
        ] {
            let header = format!("--header Host:{host}");
            let path = format!("{CHALLENGES}/{token}");
            curl(&gateway, "a.test", &path, &header).says(status);
        }
    }
    // No ACME client writes the other site's certificate.
    let mut rig = Gateway::prepare();
    fs::create_dir(rig.path("acme-a")).expect("a folder");
    let other = site("b.test", "\"later.pem\"", "");
    configure(
        &mut rig,
        "http = [\"127.0.0.1:0\"]",
        &format!("{own}{other}"),
    );
    rig.write_config();
    rig.hsmux("serve").fails().says("later.pem");
}
