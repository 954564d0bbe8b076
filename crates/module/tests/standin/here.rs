//! Short work on the caller's thread, and its fate if it turns out to be long.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::ThreadId;
use std::time::Duration;

use hsmux_module::ModuleToken;
use hsmux_token::{Batch, Done, Kind, Operation, Request, Result, Token};

use crate::fixture::{StandIn, private, sign, soon, until};

/// The answering thread, and its answer.
type Told = Receiver<(ThreadId, Result<()>)>;

fn submit_here(token: &ModuleToken, operation: &Operation) -> Told {
    let (tell, told) = channel();
    let done = Done::new(move |result| {
        let answer = (std::thread::current().id(), result.map(drop));
        tell.send(answer).unwrap();
    });
    token.submit_here(Batch::from_buf([Request {
        behalf: None,
        operation: operation.clone(),
        deadline: soon(),
        done,
    }]));
    told
}

fn runs_here(token: &ModuleToken, operation: &Operation) -> bool {
    let told = submit_here(token, operation);
    let (thread, result) = told.recv_timeout(Duration::from_secs(60)).unwrap();
    result.unwrap();
    thread == std::thread::current().id()
}

#[test]
fn short_work_runs_on_the_thread_that_asks_and_long_work_does_not() {
    let standin = StandIn::new("fast_sign = true");
    let token = standin.open("1234").unwrap();
    let operation = sign(private(&token, "ec"), [7; 32]);
    assert!(!runs_here(&token, &operation), "nothing is known of it yet");
    until("it is known to be short", || runs_here(&token, &operation));
    standin.set("service_time_us = 20000\nfast_sign = true");
    until("it is known to be long", || !runs_here(&token, &operation));
    assert!(!runs_here(&token, &operation));
}

#[test]
fn who_asked_is_told_when_a_token_is_given_up_that_hangs_on_their_thread() {
    let standin = StandIn::new("fast_sign = true");
    let token = standin.open("1234").unwrap();
    let operation = sign(private(&token, "ec"), [7; 32]);
    until("it is known to be short", || runs_here(&token, &operation));
    standin.set("hang_in_sign = true");
    let (tell, told) = channel();
    let asking = std::thread::spawn({
        let token = Arc::clone(&token);
        move || {
            let answers = submit_here(&token, &operation);
            tell.send(answers.iter().collect::<Vec<_>>()).unwrap();
            std::thread::current().id()
        }
    });
    let log = standin.folder.path().join("token/token.hang");
    until("it hangs", || log.exists());
    token.abort("a test");
    standin.set("");
    let mut answers = told.recv_timeout(Duration::from_secs(60)).unwrap();
    let (thread, answer) = answers.pop().unwrap();
    assert!(answers.is_empty(), "told twice");
    // By the thread that aborted it, while its own hung in the module.
    assert_ne!(thread, asking.join().unwrap());
    assert_eq!(answer.unwrap_err().kind(), Kind::Lost);
}
