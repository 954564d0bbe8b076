//! The gateway: the cost of a handshake compared with nginx, and the effect of slow tokens.
//! The load is that of `hsmux bench tls` in this process: one connection per hit, X25519 fixed.

mod bursts;
mod handshakes;
mod nginx;
mod request_latencies;
mod siege;
mod slow_tokens;
mod waiting_handshakes;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hsmux_bench::RunControl;
use hsmux_bench::tls::{self, Extent, Offer, RequestPace, TlsOptions, Trust};
use hsmux_suite::gateway::Gateway;
use hsmux_suite::{Rig, Setup};
use hsmux_token::Result;

pub use bursts::bursts;
pub use handshakes::{handshakes, resumed};
pub use siege::one_user;
pub use slow_tokens::slow_tokens;
pub use waiting_handshakes::ten_thousand;

/// Every site's page.
const PAGE: &str = "hello, world\n";
/// Its path.
const PATH: &str = "hello.txt";

/// Users without pauses, with a time-out longer than any queue.
fn burst(address: &str, users: usize, time: Duration) -> TlsOptions {
    TlsOptions {
        users,
        pace: RequestPace::ThinkS(0.0),
        extent: Extent::Time(time),
        offer: Offer {
            groups: Some("X25519".into()),
            ..Offer::default()
        },
        trust: Trust::Anybody,
        timeout: Duration::from_secs(600),
        ..TlsOptions::new(format!("https://{address}/{PATH}"))
    }
}

/// Measures without progress.
fn measure(options: &TlsOptions) -> Result<tls::TlsReport> {
    let control = RunControl {
        stop: &AtomicBool::new(false),
        progress: &|_| {},
    };
    tls::run(options, control)
}

/// A rig with a page in `www`, and SoftHSM tokens `hsm1`, ...
fn with_page(members: usize) -> Rig {
    let rig = Rig::prepare(Setup::Daemon, members);
    std::fs::create_dir(rig.path("www")).expect("a folder");
    std::fs::write(rig.path("www").join(PATH), PAGE).expect("a page");
    rig
}

/// The gateway's processes: the daemon, with its services and workers.
fn daemon(gateway: &Gateway) -> u32 {
    gateway.rig.daemon.as_ref().expect("a daemon").id()
}
