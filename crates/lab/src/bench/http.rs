//! `hsmux bench http`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hsmux_bench::http::{self, Mix};
use hsmux_bench::{LoadModel, Until};
use serde_json::{Map, Value};

use super::process::{ProcessArg, ids};
use super::run::{interrupt, verdict, watched};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use crate::pin::PinArg;

/// Options of `hsmux bench http`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux bench http --url unix:/run/hsmux/broker.sock --key orders\n  \
    hsmux bench http --url https://vault.test:8200 --ca ca.pem --token env:VAULT_TOKEN --key orders\n  \
    hsmux bench http --key orders --mix encrypt=3,decrypt=1 --clients 64 --time 60s --html http.html\n  \
    hsmux bench http --key label:old --with '{\"mode\": \"cbc\"}' --batch 100\n  \
    hsmux bench http --key any --mix health        # what the server answers without any key")]
pub struct Http {
    /// The service: http://HOST:PORT, https://HOST:PORT or unix:/path/of/the.sock
    #[arg(long, env = "VAULT_ADDR", default_value = "http://127.0.0.1:8200")]
    url: String,
    /// The root for the server's certificate, PEM
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The client's token: file:PATH, env:NAME, fd:NUMBER or prompt [default: none]
    #[arg(long, value_name = "SOURCE")]
    token: Option<PinArg>,
    /// The key's name in the service
    #[arg(long, value_name = "NAME")]
    key: String,
    /// The operations, with shares: of encrypt, decrypt, rewrap, sign, verify, hmac, hash, health
    #[arg(long, default_value = "encrypt=1,decrypt=1")]
    mix: Mix,
    /// Additional fields of each item, a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    with: Option<Members>,
    /// Concurrent clients, each with its own connection
    #[arg(long, short, default_value_t = 16, value_name = "N")]
    clients: usize,
    /// Length of the encrypted or signed data in bytes
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    payload: usize,
    /// Items of each request
    #[arg(long, default_value_t = 1, value_name = "N")]
    batch: usize,
    /// Open a connection for each request
    #[arg(long)]
    no_keep_alive: bool,
    /// The duration of the load
    #[arg(long, value_parser = hsmux_config::parse_duration, default_value = "10s")]
    time: Duration,
    /// The number of requests, in place of a duration
    #[arg(long, short = 'n', value_name = "M", conflicts_with = "time")]
    count: Option<u64>,
    /// Requests to start per second, independent of earlier ones [default: each client sends one after the other]
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// The duration of the same load before the measurement
    #[arg(long, value_parser = hsmux_config::parse_duration, default_value = "500ms")]
    warm_up: Duration,
    /// A process of the service to account for, with all its descendants; may be repeated
    #[arg(long, value_name = "NAME|PID")]
    process: Vec<ProcessArg>,
    /// Write a report with a chart to one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Members of a JSON object.
#[derive(Clone, Debug)]
struct Members(Map<String, Value>);

fn object(text: &str) -> Result<Members, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(Members(members)),
        Ok(_) => Err("not a JSON object".into()),
        Err(error) => Err(error.to_string()),
    }
}

impl Http {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let html = self.html.clone();
        let options = self.options()?;
        let report = watched(&stop, |control| http::run(&options, control))?;
        let page = html.as_deref().map(|file| (file, report.html()));
        output::report(&report, context.json, page.as_ref())?;
        let measured = &report.measurement;
        let failed = measured.failed + measured.wrong > 0;
        Ok(verdict(failed, measured.interrupted))
    }

    fn options(self) -> anyhow::Result<http::HttpOptions> {
        let workers = self.clients;
        let load = match self.rate {
            None => LoadModel::Closed { workers },
            Some(rate) if rate > 0.0 => LoadModel::Open {
                per_second: rate,
                workers,
            },
            Some(_) => return Err(Exit::Usage.because("--rate: more than 0")),
        };
        let token = self.token.map(|token| token.read("token")).transpose()?;
        Ok(http::HttpOptions {
            ca: self.ca,
            token,
            mix: self.mix,
            with: self.with.map(|members| members.0).unwrap_or_default(),
            payload: self.payload,
            batch: self.batch,
            keep_alive: !self.no_keep_alive,
            load,
            until: self.count.map_or(Until::Elapsed(self.time), Until::Count),
            warm_up: self.warm_up,
            processes: ids(&self.process)?,
            ..http::HttpOptions::new(self.url, self.key)
        })
    }
}
