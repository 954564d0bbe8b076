//! `hsmux bench sign`.

use clap::Args;
use hsmux_bench::sign;

use super::run::{RunArgs, interrupt, verdict, watched};
use super::target::Target;
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux bench sign`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux bench sign\n  \
    hsmux bench sign --label web --concurrency 16 --count 100000\n  \
    hsmux bench sign --direct /usr/lib/softhsm/libsofthsm2.so --token pkcs11:token=hsm1\n  \
    hsmux bench sign --rate 500 --time 30s --json")]
pub struct Sign {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    run: RunArgs,
}

impl Sign {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let opened = self.target.open(context, self.run.concurrency)?;
        let options = self.run.options(&opened)?;
        let report = watched(&stop, |control| sign::run(&options, control))?;
        if context.json {
            output::json(&report)?;
        } else {
            print!("{report}");
        }
        let measured = &report.measurement;
        let failed = measured.failed + measured.wrong > 0;
        Ok(verdict(failed, measured.interrupted))
    }
}
