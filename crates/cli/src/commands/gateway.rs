//! `hsmux gateway`, and the gateway within `hsmux serve`.

use clap::Args;
use hsmux_daemon::Daemon;
use hsmux_gateway::Service;

use super::serve::Serve;
use crate::context::Context;
use crate::exit::Exit;

/// Options of `hsmux gateway`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux gateway\n\n\
    It serves each [[site]] of the configuration over TLS, with private keys in the pool, beside the\n\
    sockets for PKCS#11. hsmux serve does the same if there is a [gateway]; this command fails without\n\
    that section. SIGTERM and Ctrl+C end it after running requests have finished.")]
pub struct Gateway {
    #[command(flatten)]
    serve: Serve,
}

impl Gateway {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        if context.load()?.gateway.is_none() {
            let file = context.file();
            let message = format!(
                "{}: there is no [gateway]; add it with listen = [\"0.0.0.0:443\"], and a [[site]]: hsmux config example --full shows both",
                file.display()
            );
            return Err(Exit::Usage.because(message));
        }
        self.serve.run(context)
    }
}

/// Starts the gateway on a daemon's pool, if it is configured.
pub fn start(daemon: &Daemon) -> anyhow::Result<Option<Service>> {
    let running = daemon.running();
    let config = running.config();
    let Some(section) = &config.gateway else {
        return Ok(None);
    };
    let shared = &running.shared;
    let (pool, audit) = (shared.pool.clone(), shared.audit.clone());
    let current = {
        let running = running.clone();
        move || running.config().gateway.clone()
    };
    Ok(Some(Service::start(section, pool, audit, current)?))
}
