//! `[traces]`: where spans of requests are sent.

use std::path::PathBuf;

use toml::de::DeValue;

use super::reader::{Fields, text};

/// A collector of traces (OpenTelemetry), and the share of requests that it gets.
#[derive(Clone, PartialEq, Debug)]
pub struct Traces {
    /// Its base URL: spans go to `v1/traces` below it, as OTLP over HTTP.
    pub endpoint: String,
    /// PEM: the roots that its certificate must lead to; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// The share of requests to trace if the caller has not decided, from 0 to 1; `None`: by the environment, or all.
    pub sample: Option<f64>,
}

/// Returns `None` without an endpoint, and reports the mistake.
pub fn traces(fields: &mut Fields<'_, '_, '_>) -> Option<Traces> {
    if !fields.has("endpoint") {
        fields.missing("endpoint");
    }
    let endpoint = fields.read("endpoint", |value| base(text(value)?).map(str::to_owned));
    let ca = fields.file("ca");
    let sample = fields.read("sample", share);
    let endpoint = endpoint?;
    if ca.is_some() && !endpoint.starts_with("https:") {
        let message = "ca is for an endpoint that begins with https:";
        fields.source.error(fields.span_of("ca"), message);
    }
    Some(Traces {
        endpoint,
        ca,
        sample,
    })
}

/// Parses a base URL, without its last `/`.
fn base(url: &str) -> Result<&str, String> {
    let schemes = ["http://", "https://"];
    let rest = schemes.iter().find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or_else(|| format!("{url:?} begins neither with http: nor with https:"))?;
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        // Credentials in the URL would appear in the log.
        return Err("the URL has a user in it; use OTEL_EXPORTER_OTLP_HEADERS".into());
    }
    let port = match host.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok(),
        _ => true,
    };
    let strange = |c: char| !c.is_ascii_graphic() || "?#\"<>\\^`{|}".contains(c);
    if host.is_empty() || host.starts_with(':') || !port || rest.contains(strange) {
        return Err(format!("{url:?} is no base URL"));
    }
    Ok(url.trim_end_matches('/'))
}

fn share(value: &DeValue<'_>) -> Result<f64, String> {
    let float = value.as_float().map(toml::de::DeFloat::as_str);
    let number = float.or_else(|| value.as_integer().map(toml::de::DeInteger::as_str));
    let share = number.and_then(|number| number.parse().ok());
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "it is a number from 0 to 1".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, good) in [
            ("http://127.0.0.1:4318", true),
            ("https://[::1]:4318/otlp", true),
            ("https://[::1]", true),
            ("http://collector", true),
            ("127.0.0.1:4318", false),
            ("grpc://collector:4317", false),
            ("http://", false),
            ("http://:4318", false),
            ("http://collector:port", false),
            ("http://collector?a=b", false),
            ("http://a collector", false),
            ("http://user:word@collector", false),
        ] {
            assert_eq!(base(url).is_ok(), good, "{url}");
        }
        assert_eq!(base("http://collector/otlp/"), Ok("http://collector/otlp"));
        assert!(
            !base("http://user:word@collector")
                .unwrap_err()
                .contains("word")
        );
    }
}
