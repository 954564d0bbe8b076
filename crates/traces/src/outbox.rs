//! Queue of finished spans. It never blocks: a span that finds it full is dropped.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Builder;

/// A bounded queue, and the thread that sends what is in it.
#[derive(Clone)]
pub struct Outbox(Arc<OutboxState>);

struct OutboxState {
    waiting: Mutex<QueuedSpans>,
    woken: Condvar,
    ended: Condvar,
    totals: Arc<SpanTotals>,
}

/// Spans that went out or were lost: of one outbox after the other.
#[derive(Default)]
pub struct SpanTotals {
    exported: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Default)]
struct QueuedSpans {
    spans: VecDeque<SpanData>,
    /// No more are taken; what there is goes out until then.
    closes: Option<Instant>,
    ended: bool,
}

/// The number of spans, by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanCounts {
    /// The collector has taken them.
    pub exported: u64,
    /// There was no room for them, or the collector has not taken them.
    pub dropped: u64,
    /// Are still to be sent.
    pub waiting: usize,
}

/// Spans that may wait, and those that are sent at once: OTEL_BSP_MAX_QUEUE_SIZE and
/// OTEL_BSP_MAX_EXPORT_BATCH_SIZE by their defaults.
const ROOM: usize = 2048;
const BATCH: usize = 512;

/// How long the first of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);

/// So long a collector may take for the last ones.
pub const LAST: Duration = Duration::from_secs(5);

impl Outbox {
    /// Sends to the exporter, on a separate thread.
    pub fn start(
        exporter: impl SpanExporter + 'static,
        totals: Arc<SpanTotals>,
    ) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let outbox = Self(Arc::new(OutboxState {
            waiting: Mutex::default(),
            woken: Condvar::new(),
            ended: Condvar::new(),
            totals,
        }));
        let shared = Arc::clone(&outbox.0);
        let name = thread::Builder::new().name("hsmux-traces".into());
        name.spawn(move || {
            while let Some(batch) = shared.next() {
                let count = batch.len() as u64;
                let sent = runtime.block_on(exporter.export(batch));
                let counter = match sent {
                    Ok(()) => &shared.totals.exported,
                    Err(_) => &shared.totals.dropped,
                };
                counter.fetch_add(count, Ordering::Relaxed);
            }
            shared.waiting.lock().ended = true;
            shared.ended.notify_all();
        })?;
        Ok(outbox)
    }

    /// The number of all spans, by outcome.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            exported: self.0.totals.exported.load(Ordering::Relaxed),
            dropped: self.0.totals.dropped.load(Ordering::Relaxed),
            waiting: self.0.waiting.lock().spans.len(),
        }
    }

    /// Closes the queue, and sends the rest, for at most so long.
    pub fn finish(&self, within: Duration) {
        let end = Instant::now() + within;
        self.close(end);
        let mut waiting = self.0.waiting.lock();
        while !waiting.ended && !self.0.ended.wait_until(&mut waiting, end).timed_out() {}
        if !waiting.ended {
            tracing::warn!("the last spans were not sent: the collector takes too long");
        }
    }

    fn close(&self, at: Instant) {
        self.0.waiting.lock().closes.get_or_insert(at);
        self.0.woken.notify_all();
    }
}

impl OutboxState {
    /// Waits for the next batch; `None`: that was all.
    fn next(&self) -> Option<Vec<SpanData>> {
        let mut waiting = self.waiting.lock();
        while waiting.spans.is_empty() && waiting.closes.is_none() {
            self.woken.wait(&mut waiting);
        }
        let until = Instant::now() + GATHER;
        while waiting.spans.len() < BATCH && waiting.closes.is_none() {
            if self.woken.wait_until(&mut waiting, until).timed_out() {
                break;
            }
        }
        if waiting
            .closes
            .is_some_and(|closes| closes <= Instant::now())
        {
            let late = waiting.spans.drain(..).count() as u64;
            self.totals.dropped.fetch_add(late, Ordering::Relaxed);
        }
        let count = waiting.spans.len().min(BATCH);
        let batch: Vec<_> = waiting.spans.drain(..count).collect();
        (!batch.is_empty()).then_some(batch)
    }
}

impl SpanProcessor for Outbox {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        let mut waiting = self.0.waiting.lock();
        if waiting.closes.is_some() || waiting.spans.len() >= ROOM {
            drop(waiting);
            self.0.totals.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.spans.push_back(span);
        // The first begins a batch, the last of it sends it.
        let tell = matches!(waiting.spans.len(), 1 | BATCH);
        drop(waiting);
        if tell {
            self.0.woken.notify_one();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// The last tracer has gone: another collector is in use by now, or none. The rest is still sent.
    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        self.close(Instant::now() + LAST);
        Ok(())
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outbox").field(&self.counts()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::error::OTelSdkError;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    /// Waits for a word, then takes all or nothing.
    #[derive(Debug)]
    struct ManualSink {
        word: Mutex<Receiver<()>>,
        takes: bool,
    }

    impl SpanExporter for ManualSink {
        async fn export(&self, _batch: Vec<SpanData>) -> OTelSdkResult {
            let _ = self.word.lock().recv();
            let refused = || OTelSdkError::InternalFailure("refused".into());
            self.takes.then_some(()).ok_or_else(refused)
        }
    }

    const LONG: Duration = Duration::from_secs(300);

    /// The counts for so many spans: before the exporter does anything, and at the end.
    fn send(count: usize, takes: bool) -> (SpanCounts, SpanCounts) {
        let (tell, word) = channel();
        let word = Mutex::new(word);
        let outbox = Outbox::start(ManualSink { word, takes }, Arc::default()).unwrap();
        let provider = SdkTracerProvider::builder();
        let provider = provider.with_span_processor(outbox.clone()).build();
        let tracer = provider.tracer("test");
        for _ in 0..count {
            drop(tracer.start("span"));
        }
        let before = outbox.counts();
        drop(tell);
        outbox.finish(LONG);
        drop(tracer.start("late"));
        (before, outbox.counts())
    }

    #[test]
    fn what_does_not_fit_in_is_dropped_and_counted() {
        let all = ROOM + BATCH + 100;
        let (before, after) = send(all, true);
        assert!(before.waiting <= ROOM && before.exported == 0, "{before:?}");
        assert!(before.dropped >= 100, "{before:?}");
        // The late one is dropped as well.
        assert_eq!((after.dropped, after.waiting), (before.dropped + 1, 0));
        assert_eq!(after.exported + before.dropped, all as u64);
    }

    #[test]
    fn what_waits_when_its_tracer_goes_is_sent() {
        let (tell, word) = channel();
        let word = Mutex::new(word);
        let gate = ManualSink { word, takes: true };
        let outbox = Outbox::start(gate, Arc::default()).unwrap();
        let provider = SdkTracerProvider::builder();
        let provider = provider.with_span_processor(outbox.clone()).build();
        drop(provider.tracer("test").start("span"));
        drop(provider);
        drop(tell);
        outbox.finish(LONG);
        assert_eq!((outbox.counts().exported, outbox.counts().dropped), (1, 0));
    }

    #[test]
    fn what_is_not_taken_is_dropped_and_counted() {
        let (_, after) = send(10, false);
        assert_eq!((after.exported, after.dropped, after.waiting), (0, 11, 0));
    }
}
