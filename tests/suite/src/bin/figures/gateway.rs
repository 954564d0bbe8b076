//! The gateway: what a handshake costs beside nginx, and what slow tokens do to it.
//!
//! The load is `hsmux bench tls`'s, in this process: each hit is a connection of its own, X25519 pinned.

mod bursts;
mod handshakes;
mod nginx;
mod siege;
mod slow;
mod steady;
mod waiting;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hsmux_bench::Control;
use hsmux_bench::tls::{self, Extent, Offer, Options, Pace, Trust};
use hsmux_suite::gateway::Gateway;
use hsmux_suite::{Rig, Setup};
use hsmux_token::Result;

pub use bursts::bursts;
pub use handshakes::{handshakes, resumed};
pub use siege::one_user;
pub use slow::slow_tokens;
pub use waiting::ten_thousand;

/// Every site's page.
const PAGE: &str = "hello, world\n";
/// Where it is.
const PATH: &str = "hello.txt";

/// Users who ask again at once, each for so long that no queue is too long for them.
fn burst(address: &str, users: usize, time: Duration) -> Options {
    Options {
        users,
        pace: Pace::ThinkS(0.0),
        extent: Extent::Time(time),
        offer: Offer {
            groups: Some("X25519".into()),
            ..Offer::default()
        },
        trust: Trust::Anybody,
        timeout: Duration::from_secs(600),
        ..Options::new(format!("https://{address}/{PATH}"))
    }
}

/// Measures with nobody watching.
fn measure(options: &Options) -> Result<tls::Report> {
    let control = Control {
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
