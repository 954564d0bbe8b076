//! `hsmux bench burn-in`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use hsmux_bench::burn_in::{self, BurnInOptions, BurnInReport, NamedToken};
use hsmux_bench::cards::{self, Timing};
use hsmux_bench::{BenchKey, mechanism};
use hsmux_token::Uri;

use super::run::{interrupt, verdict, watched};
use super::target::Target;
use crate::context::Context;
use crate::exit::Exit;
use crate::key_choice::KeyParts;
use crate::output;

/// The maximum number of callers without the option.
const CALLERS: usize = 256;

/// Options of `hsmux bench burn-in`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux bench burn-in --count 1000000\n  \
    hsmux bench burn-in --label web --html burn-in.html\n  \
    hsmux bench burn-in --direct /usr/lib/softhsm/libsofthsm2.so --token pkcs11:token=hsm1\n  \
    hsmux bench burn-in --vcards 8 --vcard-key ec:brainpoolP256r1 --count 500000\n\n\
    Results are saved in the state file during the run. After an interruption (Ctrl+C, SIGTERM, a crash) the\n\
    same command resumes; after the end it prints the report again.\n\
    Exit code 1 if a test failed or a signature is wrong, 3 if tests remain.")]
pub struct BurnIn {
    #[command(flatten)]
    target: Target,
    /// Virtual SmartCard-HSMs in memory, with copies of one key, in place of the pool
    #[arg(long, value_name = "N", conflicts_with_all = ["direct", "embedded", "pin", "key", "label", "id", "class"])]
    vcards: Option<u8>,
    /// The key of the virtual cards
    #[arg(
        long,
        value_name = "KIND",
        default_value = "rsa:2048",
        requires = "vcards"
    )]
    vcard_key: String,
    /// Service times of the virtual cards: none (as fast as they compute) or smartcard-hsm
    #[arg(
        long,
        value_name = "TIMING",
        default_value = "none",
        requires = "vcards"
    )]
    vcard_timing: Timing,
    /// The key, as a PKCS#11 URI [default: the one P-256 key]
    #[arg(long, value_name = "URI")]
    key: Option<Uri>,
    #[command(flatten)]
    parts: KeyParts,
    /// Signatures to make and verify, including those of earlier runs
    #[arg(long, short = 'n', default_value_t = 1_000_000, value_name = "N")]
    count: u64,
    /// Concurrent callers, a thread each [default: as many as the tokens take at once, and one per core]
    #[arg(long, short, value_name = "N")]
    concurrency: Option<usize>,
    /// The mechanism, as in ecdsa, sha256-rsa-pkcs [default: the usual one of the key]
    #[arg(long)]
    mechanism: Option<String>,
    /// Length of the signed data in bytes, new each time
    #[arg(long, default_value_t = 32, value_name = "BYTES")]
    data_len: usize,
    /// The file of the results so far
    #[arg(long, default_value = "hsmux-burn-in.json", value_name = "FILE")]
    state: PathBuf,
    /// The interval of writes to the state file
    #[arg(long, value_parser = hsmux_config::parse_duration, default_value = "5s")]
    save_every: Duration,
    /// Discard the results in the state file
    #[arg(long)]
    restart: bool,
    /// Write a report with charts to one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl BurnIn {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let options = self.options(context)?;
        let report = watched(&stop, |control| burn_in::run(&options, control))?;
        self.publish(context, &report)
    }

    fn options(&self, context: &Context) -> anyhow::Result<BurnInOptions> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let opened = match self.vcards {
            Some(count) => self.cards(count)?,
            None => self.pool(context, cores)?,
        };
        let named = self.mechanism.as_deref().map(mechanism).transpose();
        let lanes = |named_token: &NamedToken| named_token.token.info().lanes as usize;
        let lanes: usize = opened.tokens.iter().map(lanes).sum();
        // Additional callers keep each token busy while others verify.
        let usual = (lanes + cores).min(CALLERS);
        let usual = usual.next_multiple_of(opened.tokens.len());
        Ok(BurnInOptions {
            mechanism: named.map_err(|e| Exit::Usage.because(e.to_string()))?,
            callers: self.concurrency.unwrap_or(usual),
            ..opened
        })
    }

    fn pool(&self, context: &Context, cores: usize) -> anyhow::Result<BurnInOptions> {
        let callers = self.concurrency.unwrap_or(cores);
        let wanted = self.parts.with(self.key.as_ref())?;
        let opened = self.target.open(context, callers)?;
        let key =
            BenchKey::find(&*opened.token, wanted.as_ref()).with_context(|| opened.name.clone())?;
        let named_token = NamedToken {
            name: opened.name.clone(),
            token: opened.token,
        };
        Ok(BurnInOptions {
            pool_counts: opened.pool_counts,
            processes: opened.processes,
            ..self.over(vec![named_token], opened.name, key)
        })
    }

    /// The cards' state is beside the burn-in's, so that a later run has the same key.
    fn cards(&self, count: u8) -> anyhow::Result<BurnInOptions> {
        let kind =
            cards::key_kind(&self.vcard_key).map_err(|e| Exit::Usage.because(e.to_string()))?;
        let mut folder = self.state.clone().into_os_string();
        folder.push(format!(".{count}-{}", self.vcard_key.replace(':', "-")));
        let cards = cards::virtual_cards(count, kind, &self.vcard_timing, folder.as_ref())?;
        let tokens: Vec<NamedToken> = cards.into_iter().map(|card| card.named_token).collect();
        let key = BenchKey::find(&*tokens[0].token, Some(&Uri::default()))?;
        let name = format!("{count} virtual SmartCard-HSMs in memory");
        Ok(self.over(tokens, name, key))
    }

    fn over(&self, tokens: Vec<NamedToken>, name: String, key: BenchKey) -> BurnInOptions {
        BurnInOptions {
            tokens,
            pool_counts: None,
            name,
            key,
            mechanism: None,
            data_len: self.data_len,
            callers: 1,
            tests: self.count,
            deadline: Duration::from_secs(30),
            processes: Vec::new(),
            state: self.state.clone(),
            save_every: self.save_every,
            restart: self.restart,
        }
    }

    fn publish(&self, context: &Context, report: &BurnInReport) -> anyhow::Result<Exit> {
        let page = self.html.as_deref().map(|file| (file, report.html()));
        output::report(report, context.json, page.as_ref())?;
        if !report.is_finished() {
            let state = self.state.display();
            eprintln!("hsmux: not finished; the same command goes on from {state}");
        }
        let failed = report.failed + report.wrong > 0;
        Ok(verdict(failed, !report.is_finished()))
    }
}
