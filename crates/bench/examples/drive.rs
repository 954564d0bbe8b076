//! Drives any PKCS#11 module with threads, with sessions and handles kept: the client that makes
//! direct calls, the hsmux module and `p11-kit-client.so` comparable.
//!
//! ```text
//! cargo run --release -p hsmux-bench --example drive -- /usr/lib/softhsm/libsofthsm2.so \
//!     'pkcs11:token=hsm1;object=web' /var/lib/hsmux 4 2000 < hsm1.pin
//! ```
//!
//! For `p11-kit server` the module is `p11-kit-client.so`, with P11_KIT_SERVER_ADDRESS in the
//! environment. Writes the report of `hsmux bench sign` as JSON.

use std::error::Error;
use std::io::{Read, Write};
use std::sync::atomic::AtomicBool;

use hsmux_bench::{Control, Key, sign};
use hsmux_module::{ModuleToken, Options};
use hsmux_token::{Secret, Uri};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, uri, state, threads, count] = &arguments[..] else {
        return Err("usage: drive MODULE URI STATE-FOLDER THREADS COUNT, the PIN on stdin".into());
    };
    let uri: Uri = uri.parse()?;
    let threads: u32 = threads.parse()?;
    let token = ModuleToken::open(Options {
        module: module.into(),
        slot: uri.clone(),
        pin: Some(Secret::new(pin()?)),
        sessions: threads,
        state: state.into(),
        force_final_try: false,
        name: module.clone(),
    })?;
    let key = Key::find(&*token, uri.names_object().then_some(&uri))?;
    let options = sign::Options::new(
        token,
        module.as_str(),
        key,
        threads as usize,
        count.parse()?,
    );
    let stop = AtomicBool::new(false);
    let report = sign::run(
        &options,
        Control {
            stop: &stop,
            progress: &|_| (),
        },
    )?;
    eprintln!("{}", report.measurement);
    serde_json::to_writer_pretty(std::io::stdout().lock(), &report)?;
    writeln!(std::io::stdout())?;
    Ok(())
}

/// The PIN is never an argument: arguments are seen by every user of the machine.
fn pin() -> Result<Vec<u8>, Box<dyn Error>> {
    let mut pin = Vec::new();
    std::io::stdin().read_to_end(&mut pin)?;
    Ok(pin.trim_ascii_end().to_vec())
}
