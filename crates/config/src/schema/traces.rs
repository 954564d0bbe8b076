//! `[traces]`.

use super::{Section, key};

pub(super) const TRACES: Section = Section {
    name: "traces",
    repeated: false,
    help: "Spans for a collector (OpenTelemetry), as OTLP over HTTP: of what programs and the broker's clients ask for. Without this section, where `OTEL_EXPORTER_OTLP_ENDPOINT` is set.",
    keys: &[
        key(
            "endpoint",
            r#""https://collector.example:4318""#,
            "required",
            "The collector's base URL: spans go to `v1/traces` below it. Headers that it asks for are in `OTEL_EXPORTER_OTLP_HEADERS`.",
        ),
        key(
            "ca",
            r#""collector-ca.pem""#,
            "the system's roots",
            "The roots that the collector's certificate may lead to, PEM.",
        ),
        key(
            "sample",
            "0.01",
            "1, or what `OTEL_TRACES_SAMPLER` says",
            "The share of requests that are traced, from 0 to 1. A client of the broker who has decided is followed (`traceparent`).",
        ),
    ],
};
