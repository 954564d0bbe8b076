//! The target of a measurement: the pool through its daemon, the pool in this process, or a module directly.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use hsmux_bench::burn_in::{MemberCounts, PoolCounts, PoolCountsQuery};
use hsmux_config::{Config, PinSource};
use hsmux_console::pool::connect;
use hsmux_daemon::admin::{AdminClient, AdminRequest, AdminResponse};
use hsmux_module::{ModuleToken, Options};
use hsmux_pool::Pool;
use hsmux_token::{Secret, Token, Uri};

use crate::context::Context;
use crate::pin::PinArg;

/// Options of `hsmux bench sign` and `burn-in` for the target.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Use a token of this PKCS#11 module, without the pool
    #[arg(long, value_name = "MODULE")]
    direct: Option<PathBuf>,
    /// The token of the module [default: the configuration's first member of this module]
    #[arg(long, value_name = "URI", requires = "direct")]
    token: Option<Uri>,
    /// Run the pool within this process, without the daemon
    #[arg(long, conflicts_with = "direct")]
    embedded: bool,
    /// The PIN: file:PATH, env:NAME, fd:NUMBER or prompt [default: the configuration's]
    #[arg(long, value_name = "SOURCE")]
    pin: Option<PinArg>,
}

/// An open target.
#[derive(Clone)]
pub struct OpenTarget {
    /// The token.
    pub token: Arc<dyn Token>,
    /// Its name in reports.
    pub name: String,
    /// Its processes, besides this one.
    pub processes: Vec<u32>,
    /// Queries the pool's state, if it is a pool.
    pub pool_counts: Option<Arc<PoolCountsQuery>>,
}

impl Target {
    /// Connects to the target for `callers` threads.
    pub fn open(&self, context: &Context, callers: usize) -> anyhow::Result<OpenTarget> {
        let pin = self.pin.as_ref().map(|pin| pin.read("PIN")).transpose()?;
        match &self.direct {
            Some(module) => {
                let token = self.token.clone();
                direct(context, module.clone(), token, pin, callers)
            }
            None if self.embedded => embedded(&context.load()?),
            None => daemon(&context.draft()?.config, pin),
        }
    }
}

/// The pool through the running daemon.
pub fn daemon(config: &Config, pin: Option<Secret>) -> anyhow::Result<OpenTarget> {
    let token = connect(config, pin)?;
    let admin = &config.admin.socket.path;
    Ok(OpenTarget {
        token,
        name: format!("pool {} through the daemon", config.pool.label),
        processes: daemon_counts(admin).map_or_else(Vec::new, |counts| counts.processes),
        pool_counts: Some({
            let admin = admin.clone();
            Arc::new(move || daemon_counts(&admin))
        }),
    })
}

/// The daemon's members and process, if this user may administer it.
fn daemon_counts(socket: &Path) -> Option<PoolCounts> {
    let admin = AdminClient::connect(socket).ok()?;
    let Ok(AdminResponse::Status(status)) = admin.ask(&AdminRequest::Status) else {
        return None;
    };
    let members = status.members.into_iter().map(|member| MemberCounts {
        name: member.name,
        served: member.served,
        failed: member.failed,
    });
    Some(PoolCounts {
        members: members.collect(),
        processes: vec![status.pid],
    })
}

/// The pool in this process.
pub fn embedded(config: &Config) -> anyhow::Result<OpenTarget> {
    let worker = crate::hsmux()?;
    let pool = Pool::start(config.into(), hsmux_worker::seats(config, &worker))?;
    Ok(OpenTarget {
        token: Arc::clone(&pool) as Arc<dyn Token>,
        name: format!("pool {} in this process", config.pool.label),
        processes: Vec::new(),
        pool_counts: Some(Arc::new(move || Some(pool_member_counts(&pool)))),
    })
}

/// The pool's members; its processes are descendants of this one.
fn pool_member_counts(pool: &Pool) -> PoolCounts {
    let mut counts = PoolCounts::default();
    for seat in pool.status().seats {
        match counts.members.iter_mut().find(|m| m.name == seat.member) {
            Some(member) => {
                member.served += seat.served;
                member.failed += seat.failed;
            }
            None => counts.members.push(MemberCounts {
                name: seat.member,
                served: seat.served,
                failed: seat.failed,
            }),
        }
    }
    counts
}

/// A token of a module, without the pool. The PIN and the token are those of the configuration by default.
pub fn direct(
    context: &Context,
    module: PathBuf,
    token: Option<Uri>,
    pin: Option<Secret>,
    callers: usize,
) -> anyhow::Result<OpenTarget> {
    let config = context.load().ok();
    let fits = |uri: &Uri| token.as_ref().is_none_or(|wanted| wanted == uri);
    let members = config.iter().flat_map(|config| &config.tokens);
    let member = { members }.find(|member| member.module == module && fits(&member.uri));
    let known = member.and_then(|member| member.pin.as_ref());
    let pin = pin.map_or_else(
        || known.map(PinSource::read).transpose(),
        |pin| Ok(Some(pin)),
    )?;
    let slot = token
        .or_else(|| Some(member?.uri.clone()))
        .unwrap_or_default();
    let name = format!("{} directly", module.display());
    let token = ModuleToken::open(Options {
        slot,
        pin,
        sessions: callers.clamp(1, 1024) as u32,
        state: context.state()?,
        name: name.clone(),
        module,
        // Like other programs.
        copies: Some(false),
        member: None,
        uri: None,
    })?;
    Ok(OpenTarget {
        token,
        name,
        processes: Vec::new(),
        pool_counts: None,
    })
}
