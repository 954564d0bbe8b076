//! `[traces]`.

use super::{Section, key};

pub(super) const TRACES: Section = Section {
    name: "traces",
    repeated: false,
    help: "Spans of requests from programs and from the broker's clients, for a collector (OpenTelemetry), as OTLP over HTTP. Without this section they are sent if `OTEL_EXPORTER_OTLP_ENDPOINT` is set.",
    keys: &[
        key(
            "endpoint",
            r#""https://collector.example:4318""#,
            "required",
            "The collector's base URL; spans go to `v1/traces` below it. Set headers that it requires in `OTEL_EXPORTER_OTLP_HEADERS`.",
        ),
        key(
            "ca",
            r#""collector-ca.pem""#,
            "the system's roots",
            "The roots that the collector's certificate must lead to, PEM.",
        ),
        key(
            "sample",
            "0.01",
            "1, or what `OTEL_TRACES_SAMPLER` says",
            "The share of requests to trace, from 0 to 1. If a client of the broker sends its own decision (`traceparent`), that counts.",
        ),
    ],
};
