//! Metrics of sites. They are computed from the sites when the page is read.

use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts, Registry, Result};

use crate::sites::Sites;

/// The metrics at a time, in seconds of Unix time.
pub fn of(sites: &Sites, now: i64) -> Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    certificates(sites, now, &registry)?;
    backends(sites, &registry)?;
    Ok(registry.gather())
}

fn certificates(sites: &Sites, now: i64, registry: &Registry) -> Result<()> {
    let ends = IntGaugeVec::new(
        Opts::new(
            "hsmux_gateway_certificate_expires_seconds",
            "When a certificate expires, in seconds of Unix time.",
        ),
        &["site", "key"],
    )?;
    let expired = IntGauge::new(
        "hsmux_gateway_certificates_expired",
        "Certificates that are served though they have expired.",
    )?;
    let awaited = IntGauge::new(
        "hsmux_gateway_certificates_awaited",
        "Certificates that no ACME client has brought yet.",
    )?;
    for one in &sites.lifetimes {
        let labels = [one.site.as_str(), one.key];
        ends.with_label_values(&labels).set(one.expires);
        expired.add(i64::from(one.has_expired(now)));
    }
    awaited.set(i64::try_from(sites.awaited).unwrap_or(i64::MAX));
    registry.register(Box::new(ends))?;
    registry.register(Box::new(expired))?;
    registry.register(Box::new(awaited))
}

fn backends(sites: &Sites, registry: &Registry) -> Result<()> {
    let up = IntGaugeVec::new(
        Opts::new(
            "hsmux_gateway_backend_up",
            "Whether a backend answers; 1 also where nobody has asked it yet.",
        ),
        &["site", "backend"],
    )?;
    for served in sites.each() {
        for (url, well) in served.backends.each() {
            let labels = [&served.site.names[0], &url.to_string()];
            up.with_label_values(&labels).set(i64::from(well));
        }
    }
    registry.register(Box::new(up))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifetime::Lifetime;
    use prometheus::TextEncoder;

    #[test]
    fn expired_certificates_are_counted() {
        let mut sites = Sites::default();
        for (key, expires) in [("ec", 1000), ("rsa", 2000)] {
            sites.lifetimes.push(Lifetime {
                site: "a.test".to_owned(),
                key,
                name: format!("{key}.pem"),
                expires,
            });
        }
        for (now, expired) in [(999, 0), (1000, 1), (1999, 1), (2000, 2)] {
            let families = of(&sites, now).unwrap();
            let page = TextEncoder::new().encode_to_string(&families).unwrap();
            let line = format!("hsmux_gateway_certificates_expired {expired}\n");
            assert!(page.contains(&line), "{now}: {page}");
        }
    }
}
