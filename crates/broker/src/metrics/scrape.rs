//! Numbers that are read from the daemon's pool and trail at each scrape.

use std::time::Duration;

use hsmux_audit::TrailStatus;
use hsmux_pool::{SeatTraffic, Traffic};
use hsmux_service::Readings;
use hsmux_traces::SpanCounts;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

/// One metric of a source.
struct MetricRow<Of> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    value: fn(&Of) -> f64,
}

/// Tables of metrics: the meaning, name, help and source of each.
macro_rules! tables {
    ($($table:ident of $of:ty { $($kind:ident $name:literal $help:literal $value:expr;)* })*) => {
        $(static $table: &[MetricRow<$of>] = &[$(
            MetricRow { name: $name, help: $help, kind: MetricType::$kind, value: $value },
        )*];)*
    };
}

tables! {
    SEAT of SeatTraffic {
        COUNTER "hsmux_token_operations_total" "Operations that a token has answered."
            |seat| seat.served as f64;
        COUNTER "hsmux_token_errors_total" "Operations that failed because of the token."
            |seat| seat.failed as f64;
        GAUGE "hsmux_token_up" "Whether it serves."
            |seat| f64::from(seat.in_service);
        GAUGE "hsmux_token_operations_in_flight" "Operations that it runs."
            |seat| seat.in_flight as f64;
        GAUGE "hsmux_token_lanes" "Operations that it can run at once."
            |seat| seat.lanes as f64;
        GAUGE "hsmux_token_queue" "Operations that wait and that it could serve."
            |seat| seat.waiting as f64;
    }
    POOL of Traffic {
        GAUGE "hsmux_pool_queue" "Operations that wait for a token."
            |traffic| traffic.waiting as f64;
        GAUGE "hsmux_pool_changes" "Changes of keys that wait for the one under way."
            |traffic| traffic.changes as f64;
    }
    AUDIT of TrailStatus {
        GAUGE "hsmux_audit_queue" "Lines that wait to be written."
            |status| status.waiting as f64;
        GAUGE "hsmux_audit_up" "Whether the trail can be written."
            |status| f64::from(status.problem.is_none());
        COUNTER "hsmux_audit_lost_total" "Lines that were lost."
            |status| status.lost as f64;
        COUNTER "hsmux_audit_refused_total" "Uses and changes of keys that were refused, for the trail could not be written."
            |status| status.refused as f64;
    }
    TRACES of SpanCounts {
        COUNTER "hsmux_traces_exported_total" "Spans that the collector has taken."
            |counts| counts.exported as f64;
        COUNTER "hsmux_traces_dropped_total" "Spans for which there was no room, or that the collector has not taken."
            |counts| counts.dropped as f64;
        GAUGE "hsmux_traces_queue" "Spans that wait to be sent."
            |counts| counts.waiting as f64;
    }
    JWT_KEYS of Duration {
        GAUGE "hsmux_broker_jwt_keys_age_seconds" "How long ago the keys of the JWTs' issuer were fetched."
            Duration::as_secs_f64;
    }
}

/// All of them, at this moment.
pub fn families(
    daemon: &Readings,
    traces: Option<SpanCounts>,
    jwt_keys: Option<Duration>,
) -> Vec<MetricFamily> {
    let traffic = &daemon.traffic;
    let mut families: Vec<_> = SEAT
        .iter()
        .map(|row| {
            let seats = traffic.seats.iter();
            family(
                row.name,
                row.help,
                row.kind,
                seats.map(|seat| row.of(seat, labels(seat))),
            )
        })
        .collect();
    families.push(family(
        "hsmux_token_operation_seconds",
        "How long a token took for an operation, without its time in the queue; from zero again after each reconnection.",
        MetricType::HISTOGRAM,
        traffic.seats.iter().map(spread),
    ));
    families.extend(alone(POOL, Some(traffic)));
    families.extend(alone(AUDIT, Some(&daemon.audit)));
    families.extend(alone(TRACES, traces.as_ref()));
    families.extend(alone(JWT_KEYS, jwt_keys.as_ref()));
    families
}

/// The metrics of one object, if it exists.
fn alone<Of>(rows: &[MetricRow<Of>], of: Option<&Of>) -> impl Iterator<Item = MetricFamily> {
    let of = of.into_iter();
    of.flat_map(move |of| {
        rows.iter().map(move |row| {
            let metric = row.of(of, Vec::new());
            family(row.name, row.help, row.kind, [metric])
        })
    })
}

impl<Of> MetricRow<Of> {
    fn of(&self, of: &Of, labels: Vec<LabelPair>) -> Metric {
        let (value, mut metric) = ((self.value)(of), Metric::from_label(labels));
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metric
    }
}

fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    metrics: impl IntoIterator<Item = Metric>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(metrics.into_iter().collect());
    family
}

/// The token, and the number of its worker.
fn labels(seat: &SeatTraffic) -> Vec<LabelPair> {
    let pair = |(name, value): (&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.into());
        pair.set_value(value.into());
        pair
    };
    [("token", &*seat.member), ("worker", &*seat.name)]
        .map(pair)
        .to_vec()
}

fn spread(seat: &SeatTraffic) -> Metric {
    let buckets = seat.spread.cumulative().map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound.as_secs_f64());
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(seat.spread.count());
    histogram.set_sample_sum(seat.spread.sum().as_secs_f64());
    let mut metric = Metric::from_label(labels(seat));
    metric.set_histogram(histogram);
    metric
}
