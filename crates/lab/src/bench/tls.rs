//! `hsmux bench tls`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hsmux_bench::tls::{self, Extent, Offer, RequestPace, TlsOptions, Trust, Version};
use hsmux_config::parse_duration;

use super::run::{interrupt, verdict, watched};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux bench tls`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux bench tls https://www.example.org/ -c 20 -d 5s -t 30s\n  \
    hsmux bench tls https://127.0.0.1:8443/hello.txt -c 60 -b -t 5m --timeout 2m --ca ca.pem\n  \
    hsmux bench tls https://127.0.0.1:8443/ -c 10 -r 100 -b --insecure --pid \"$(pidof nginx)\"\n  \
    hsmux bench tls https://www.example.org/ --follow -c 20 -d 5s --html wordpress.html\n  \
    hsmux bench tls https://www.example.org/ -c 256 --rate 80 --tls 1.3 --groups X25519 --resume 0.5\n\n\
    Short options and the twelve figures are those of siege.\n\
    Exit code 1 if a request failed or was answered with an error.")]
pub struct Tls {
    /// The page: https://HOST/PATH
    url: String,
    /// Concurrent users; with --rate: the maximum number of concurrent connections
    #[arg(
        long,
        short = 'c',
        visible_alias = "concurrent",
        default_value_t = 25,
        value_name = "N"
    )]
    users: usize,
    /// The maximum of the random time that users think between two hits
    #[arg(long, short = 'd', visible_alias = "delay", value_parser = time, default_value = "1s", value_name = "TIME")]
    think: Duration,
    /// Let users not think: a burst
    #[arg(
        long,
        short = 'b',
        visible_alias = "benchmark",
        conflicts_with = "think"
    )]
    burst: bool,
    /// The duration of the load, also in siege's form: 30S, 5M
    #[arg(long, short = 't', value_parser = time, default_value = "30s")]
    time: Duration,
    /// The number of hits of each user, in place of a duration
    #[arg(
        long,
        short = 'r',
        visible_alias = "reps",
        value_name = "N",
        conflicts_with = "time"
    )]
    hits: Option<u64>,
    /// Hits to start per second, independent of earlier ones [default: each user makes one after the other]
    #[arg(long, value_name = "PER_SECOND", conflicts_with_all = ["think", "burst"])]
    rate: Option<f64>,
    /// Request the page's images, scripts and style sheets as well, and follow redirections, on the same site
    #[arg(long)]
    follow: bool,
    /// The share of connections that offer an earlier session, from 0 to 1
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    resume: f64,
    /// The only version of TLS, 1.2 or 1.3 [default: both]
    #[arg(long = "tls", value_name = "VERSION")]
    only: Option<Version>,
    /// Groups of the key exchange, as in X25519:P-256 [default: BoringSSL's]
    #[arg(long, value_name = "GROUPS")]
    groups: Option<String>,
    /// Signature algorithms, as in ecdsa_secp256r1_sha256:rsa_pss_rsae_sha256 [default: BoringSSL's]
    #[arg(long, value_name = "NAMES")]
    signatures: Option<String>,
    /// The roots for the server's certificate, PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any server without authentication
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// The server's name in the handshake (SNI) and in its certificate [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Connect to this HOST or HOST:PORT in place of the URL's host
    #[arg(long, value_name = "PLACE")]
    resolve: Option<String>,
    /// The deadline of one request
    #[arg(long, value_parser = time, default_value = "30s", value_name = "TIME")]
    timeout: Duration,
    /// The duration of the same load before the measurement [default: none]
    #[arg(long, value_parser = time, value_name = "TIME")]
    warm_up: Option<Duration>,
    /// A process of the server to account for, with all its descendants; may be repeated
    #[arg(long, value_name = "PID", value_delimiter = ' ')]
    pid: Vec<u32>,
    /// Write a report with a chart to one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// `30s`, or siege's `30S`.
fn time(text: &str) -> Result<Duration, String> {
    parse_duration(&text.to_lowercase())
}

impl Tls {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let html = self.html.clone();
        let options = self.options();
        if options.trust == Trust::Anybody {
            eprintln!("hsmux: NOT SECURE (--insecure): whoever answers is taken for the server");
        }
        let report = watched(&stop, |control| tls::run(&options, control))?;
        let page = html.as_deref().map(|file| (file, report.html()));
        output::report(&report, context.json, page.as_ref())?;
        let failed = report.measurement.failed > 0 || report.figures.transactions == 0;
        Ok(verdict(failed, report.measurement.interrupted))
    }

    fn options(self) -> TlsOptions {
        let pace = match self.rate {
            Some(rate) => RequestPace::PerSecond(rate),
            None if self.burst => RequestPace::ThinkS(0.0),
            None => RequestPace::ThinkS(self.think.as_secs_f64()),
        };
        let trust = match self.ca {
            Some(file) => Trust::Roots(file),
            None if self.insecure => Trust::Anybody,
            None => Trust::System,
        };
        TlsOptions {
            users: self.users,
            pace,
            extent: self.hits.map_or(Extent::Time(self.time), Extent::Hits),
            follow: self.follow,
            resume: self.resume,
            offer: Offer {
                version: self.only,
                groups: self.groups,
                signatures: self.signatures,
            },
            trust,
            name: self.sni,
            connect: self.resolve,
            timeout: self.timeout,
            warm_up: self.warm_up.unwrap_or_default(),
            processes: self.pid,
            ..TlsOptions::new(self.url)
        }
    }
}
