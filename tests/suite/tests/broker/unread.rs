//! Requests that are refused before their body is read: the connection lives, or its end is announced.

use crate::connection::{Answer, Connection, request};
use crate::rig::Broker;

const THEIRS: &str = "/v1/transit/encrypt/theirs";
const OWN: &str = "/v1/transit/keys/app-none";

fn is_last(answer: &Answer) -> bool {
    answer.head.contains("\nconnection: close\r")
}

#[test]
fn a_short_body_is_read_though_nobody_wants_it() {
    let broker = Broker::start(1).known();
    let mut connection = Connection::tcp(&broker.url);
    for (token, status) in [(broker.token.as_str(), 403), ("hsmb.wrong", 403), ("", 403)] {
        for length in [2, 1000, 16 << 10] {
            let body = " ".repeat(length);
            let answer = connection
                .ask("POST", THEIRS, token, &body)
                .expect("an answer");
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(!is_last(&answer), "{length}: {answer:?}");
        }
    }
    // And nothing of these bodies is taken for a request.
    let answer = connection
        .ask("GET", OWN, &broker.token, "")
        .expect("an answer");
    assert_eq!(answer.status, 404, "{answer:?}");
}

#[test]
fn after_a_long_body_the_answer_is_the_last_and_says_so() {
    let broker = Broker::start(1).known();
    let whole = request("POST", THEIRS, &broker.token, &" ".repeat(1 << 20));
    let head = &whole[..whole.trim_end().len() + 4];
    let on_demand = head.replace("\r\nHost", "\r\nExpect: 100-continue\r\nHost");
    let in_chunks = "POST /v1/transit/encrypt/theirs HTTP/1.1\r\nHost: broker\r\n\
                     Transfer-Encoding: chunked\r\n\r\n";
    for said in [head, &on_demand, in_chunks] {
        let mut connection = Connection::tcp(&broker.url);
        connection.say(said.as_bytes()).expect("send");
        let answer = connection.answer().expect("an answer");
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(is_last(&answer), "{answer:?}");
        connection.wait_for_end();
    }
}

#[test]
fn a_body_that_was_read_is_not_the_end_whatever_its_form() {
    let broker = Broker::start(1).known();
    let mut connection = Connection::tcp(&broker.url);
    let token = &broker.token;
    for name in ["one", "two"] {
        let said = format!(
            "POST /v1/transit/keys/app-{name} HTTP/1.1\r\nHost: broker\r\nX-Vault-Token: {token}\r\n\
             Transfer-Encoding: chunked\r\n\r\n15\r\n{{\"type\":\"aes256-cbc\"}}\r\n0\r\n\r\n"
        );
        connection.say(said.as_bytes()).expect("send");
        let answer = connection.answer().expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!is_last(&answer), "{answer:?}");
    }
    // The client hears that it may go on.
    let more = "--include --header Expect:100-continue --expect100-timeout 60";
    let done = broker.curl(
        token,
        "POST",
        "encrypt/app-one",
        r#"{"plaintext": "c2VjcmV0"}"#,
        more,
    );
    assert!(
        done.contains("100 Continue") && done.contains("vault:v1:"),
        "{done}"
    );
}
