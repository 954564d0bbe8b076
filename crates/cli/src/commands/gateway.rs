//! `hsmux gateway`: the daemon with a `[gateway]`.

use clap::Args;

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
pub struct GatewayCommand {
    #[command(flatten)]
    serve: Serve,
}

impl GatewayCommand {
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
