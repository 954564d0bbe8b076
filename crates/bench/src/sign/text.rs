//! The signing evaluation as a table.

use std::fmt;

use super::SignReport;
use crate::format::{bytes, count, figures, lines, micros, rate, record, table, three, whole};
use crate::measurement::{Latency, Measurement};
use crate::report::cells;

impl fmt::Display for SignReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, mechanism, len) = (&self.key, &self.mechanism, self.data_len);
        let what = format!("{mechanism} by {key}, over {len} bytes");
        writeln!(
            f,
            "{}\n{}",
            lines(&what),
            lines(&format!("from {}", self.target))
        )?;
        writeln!(f, "{}\n", self.head)?;
        writeln!(f, "{}", self.measurement)?;
        if self.reference.is_empty() {
            return Ok(());
        }
        let heading =
            "Published: ECDSA P-256 over 32 bytes, CloudHSM (other hardware, for reference)";
        writeln!(f, "{}\n\n{}", lines(heading), self.published())
    }
}

impl SignReport {
    fn published(&self) -> String {
        let percent =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{} %", three(value)));
        let memory =
            |value: Option<f64>| value.map_or(String::new(), |value| bytes(whole(value * 1e6)));
        let heads = [
            "provider",
            "HSMs",
            "callers",
            "rate",
            "mean",
            "max",
            "client\nCPU",
            "daemon\nCPU",
            "daemon\nmemory",
        ];
        table(
            heads,
            self.reference.iter().map(|row| {
                [
                    row.provider.clone(),
                    row.hsms.to_string(),
                    row.concurrency.to_string(),
                    rate(row.per_second()),
                    micros(row.mean_ms * 1e3),
                    micros(row.max_ms * 1e3),
                    percent(Some(row.client_cpu_percent)),
                    percent(row.daemon_cpu_percent),
                    memory(row.daemon_memory_mb),
                ]
            }),
        )
    }
}

/// A measurement by itself: its work, speed and cost.
impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = format!(
            "{} in {} s by {} callers",
            count(self.ops),
            three(self.elapsed_s),
            self.workers
        );
        let interrupted = if self.interrupted {
            ", interrupted"
        } else {
            ""
        };
        let intended = self.intended_per_second.map_or_else(String::new, rate);
        let proofs = format!("{}, wrong {}", count(self.verified), count(self.wrong));
        let summary = record([
            ("done", done + interrupted),
            ("intended", intended),
            ("throughput", rate(self.per_second)),
            ("failed", count(self.failed)),
            ("verified", proofs),
        ]);
        writeln!(f, "{summary}\n")?;
        for fault in &self.faults {
            writeln!(
                f,
                "{}",
                lines(&format!("{} times: {}", count(fault.count), fault.message))
            )?;
        }
        if let Some(l) = &self.latency_us {
            writeln!(f, "{}\n", figures(Latency::PARTS, l.parts()))?;
        }
        let rows = self.processes.iter().map(cells::process);
        writeln!(f, "{}", table(cells::PROCESS, rows))
    }
}
