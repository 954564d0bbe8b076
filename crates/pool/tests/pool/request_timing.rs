//! What is written down of a request's timing.

use std::sync::Arc;
use std::sync::mpsc::channel;

use hsmux_pool::{Options, Owner, Policy, RequestTiming};
use hsmux_token::{Done, Request};

use crate::vault::*;

#[test]
fn a_request_that_moves_on_has_a_run_on_each_seat() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || honest("two", key));
    let options = Options {
        policy: Policy::FirstAvailable,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one"), two.seat("two")]);
    one.last().hang();
    let timing = Arc::new(RequestTiming::default());
    let (tell, told) = channel();
    let request = Request {
        behalf: None,
        operation: key.signing(),
        deadline: in_seconds(60),
        done: Done::new(move |result| drop(tell.send(result))),
    };
    let _claim = pool.submit_claimed(request, Owner::Service, Some(Arc::clone(&timing)));
    eventually("it runs on the first", || timing.runs().len() == 1);
    assert!(timing.runs()[0].ended.is_none());
    one.last().lose("the worker was killed");
    key.check(told.recv().unwrap().unwrap());

    let runs = timing.runs();
    let members: Vec<_> = runs.iter().map(|run| &*run.member).collect();
    assert_eq!(members, ["one", "two"]);
    let times = runs.iter().flat_map(|run| [Some(run.given), run.ended]);
    let times: Vec<_> = times.map(Option::unwrap).collect();
    assert!(times.is_sorted(), "{times:?}");
}
