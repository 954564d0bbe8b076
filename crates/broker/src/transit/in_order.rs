//! Answers in the order of their requests, several of them waiting at once.

use std::future::{Future, poll_fn};
use std::task::{Poll, ready};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// All answers in order, at most `at_once` of them waiting at the same time; immediate ones do not count.
pub async fn in_order<T>(
    each: impl ExactSizeIterator<Item = impl Future<Output = T>>,
    at_once: usize,
) -> Vec<T> {
    let mut answers: Vec<Option<T>> = Vec::with_capacity(each.len());
    answers.resize_with(each.len(), || None);
    let mut each = each.enumerate();
    let mut waiting = FuturesUnordered::new();
    poll_fn(|context| {
        loop {
            while waiting.len() < at_once {
                let Some((place, working)) = each.next() else {
                    break;
                };
                let mut working = Box::pin(async move { (place, working.await) });
                match working.as_mut().poll(context) {
                    Poll::Ready((place, answer)) => answers[place] = Some(answer),
                    Poll::Pending => waiting.push(working),
                }
            }
            match ready!(waiting.poll_next_unpin(context)) {
                Some((place, answer)) => answers[place] = Some(answer),
                None => return Poll::Ready(()),
            }
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use tokio::sync::oneshot;

    use super::*;

    /// Even numbers are ready at once; the longest wait is answered last.
    #[tokio::test]
    async fn so_many_wait_at_once_and_each_answer_is_in_its_place() {
        let waiting = RefCell::new(BTreeMap::new());
        let each = (0..20).map(|number: usize| {
            let waiting = &waiting;
            async move {
                if !number.is_multiple_of(2) {
                    let (tell, told) = oneshot::channel();
                    waiting.borrow_mut().insert(number, tell);
                    told.await.unwrap();
                }
                number
            }
        });
        let mut all = Box::pin(in_order(each, 3));
        let mut most = 0;
        let answers = loop {
            if let Poll::Ready(answers) = futures_util::poll!(all.as_mut()) {
                break answers;
            }
            most = most.max(waiting.borrow().len());
            let (_, tell) = waiting.borrow_mut().pop_last().unwrap();
            tell.send(()).unwrap();
        };
        assert_eq!(answers, (0..20).collect::<Vec<_>>());
        assert_eq!(most, 3);
    }
}
