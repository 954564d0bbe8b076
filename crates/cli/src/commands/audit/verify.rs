//! `hsmux audit verify`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use clap::Args;
use hsmux_audit::verify::{TrailVerdict, TrustAnchors, rotated, verify};
use hsmux_audit::{AuditFolder, Head};
use hsmux_config::Config;
use hsmux_daemon::StateLock;
use hsmux_daemon::admin::{AdminRequest, AdminResponse};

use crate::context::Context;
use crate::exit::Exit;
use crate::{output, progress};

/// Options of `hsmux audit verify`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes:\n  \
    0  every line is present and unchanged\n  \
    3  no change found, but not all is proved: a crash, lines lost to a full disk, unsigned lines\n  \
    1  lines were changed or removed\n\n\
    Examples:\n  \
    hsmux audit verify                                  # on the machine of the daemon\n  \
    hsmux audit verify --key audit.pem audit.log*       # anywhere\n  \
    hsmux audit verify --seal audit.seal --json")]
pub struct Verify {
    /// The trail's files, in any order [default: those of the configuration, including rotated ones]
    files: Vec<PathBuf>,
    /// A public key, as `hsmux audit key` printed it; may be repeated [default: the state folder's]
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// An earlier secret, as `hsmux audit key --seal` printed it, to verify the seals since then
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
}

impl Verify {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let elsewhere = !self.files.is_empty() && !self.key.is_empty();
        let config = if elsewhere && !context.file().exists() {
            None
        } else {
            Some(context.load()?)
        };
        let files = self.files(config.as_ref());
        // The state folder knows only the end of its own trail.
        let own = config.filter(|config| files.iter().any(|file| same(file, &config.audit.file)));
        let known = self.known(context, own.as_ref())?;
        let size = |file: &PathBuf| file.metadata().map_or(0, |about| about.len());
        let bar = progress::bytes(files.iter().map(size).sum(), "verifying");
        let report = verify(&files, known, &|bytes| bar.inc(bytes))?;
        bar.finish_and_clear();
        if context.json {
            output::json(&report)?;
        } else {
            print!("{report}");
        }
        Ok(match report.verdict {
            TrailVerdict::Whole => Exit::Done,
            TrailVerdict::Remarks => Exit::Degraded,
            TrailVerdict::Altered => Exit::Failed,
        })
    }

    fn files(&self, config: Option<&Config>) -> Vec<PathBuf> {
        let Some(config) = config.filter(|_| self.files.is_empty()) else {
            return self.files.clone();
        };
        let mut files = vec![config.audit.file.clone()];
        for file in rotated(&config.audit.file) {
            let packed = file.extension().and_then(|kind| kind.to_str());
            match packed.filter(|kind| PACKED.contains(kind)) {
                Some(_) => eprintln!("{}: unpack it to verify it, too", file.display()),
                None => files.push(file),
            }
        }
        files
    }

    fn known(&self, context: &Context, own: Option<&Config>) -> anyhow::Result<TrustAnchors> {
        let folder = own.map(|config| AuditFolder::of(&config.state));
        let keys = match (self.key.as_slice(), &folder) {
            ([], Some(folder)) => vec![folder.public_key()?],
            ([], None) => vec![AuditFolder::of(&context.load()?.state).public_key()?],
            (files, _) => files
                .iter()
                .map(|file| read(file))
                .collect::<Result<_, _>>()?,
        };
        let seal = match &self.seal {
            Some(file) => Some(read(file)?),
            // A user may be permitted to read the trail, but not the state folder.
            None => folder.as_ref().and_then(|folder| folder.seal_key().ok()),
        };
        let kept = folder.and_then(|folder| folder.head().ok().flatten());
        let running =
            own.is_some_and(|config| matches!(StateLock::is_held(&config.state), Ok(true)));
        let now = own.filter(|_| running).and_then(|_| written(context));
        Ok(TrustAnchors {
            keys,
            seal,
            head: now.or(kept),
            running,
        })
    }
}

/// Extensions of files that a log rotation compresses.
const PACKED: &[&str] = &["gz", "xz", "zst", "bz2"];

fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

fn read<T: FromStr>(file: &Path) -> anyhow::Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let name = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(name)?;
    text.parse().with_context(name)
}

/// The last line that the running daemon wrote.
fn written(context: &Context) -> Option<Head> {
    match context.ask(&AdminRequest::Status).ok()? {
        AdminResponse::Status(status) => Some(status.audit.head),
        _ => None,
    }
}
