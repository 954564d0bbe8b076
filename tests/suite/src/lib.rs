//! The harness for tests with whole processes: real programs on the module, and faults. A [`Rig`] is a temporary folder
//! with tokens, keys, a configuration and mostly a daemon; a [`Run`] is a program with a time limit. [`until`] polls up
//! to a deadline, without fixed waits. All processes of a rig end with it, even if the test is killed.

mod built;
mod caller;
mod card_pool;
mod cards;
mod config;
pub mod gateway;
mod http2_settings;
mod load;
mod nginx;
mod output_schema;
pub mod pki;
mod port;
mod process;
mod rig;
mod run;
mod softhsm;
mod standin;
mod terminal;
mod trail;
mod wait;

pub use built::{Program, built, copy_program, source};
pub use caller::Caller;
pub use card_pool::CardPool;
pub use cards::{Cards, OPENSC};
pub use config::{MemberConfig, PoolConfig};
pub use http2_settings::Http2Settings;
pub use load::BackgroundLoad;
pub use nginx::Nginx;
pub use output_schema::OutputSchema;
pub use port::on_a_free_port;
pub use process::{Process, running, running_in};
pub use rig::{Rig, Setup, write_secret};
pub use run::{Finished, Run};
pub use softhsm::{SOFTHSM, SoftHsm, TestKeys};
pub use standin::StandIn;
pub use terminal::Terminal;
pub use wait::{PATIENCE, until};

/// Bytes in hexadecimal, for arguments of programs.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string");
        text
    })
}

/// Turns functions of a [`Rig`] into tests: on the bare token, through the daemon, and with the embedded pool.
/// A test that passes on the bare token has to pass on the pool.
#[macro_export]
macro_rules! on_every_setup {
    ($($test:ident),* $(,)?) => {
        $crate::on_every_setup!(embedded as Embedded: $($test),*);
    };
    (embedded as $embedded:ident: $($test:ident),* $(,)?) => {
        $crate::on_every_setup!(@ bare, Bare, $($test),*);
        $crate::on_every_setup!(@ daemon, Daemon, $($test),*);
        $crate::on_every_setup!(@ embedded, $embedded, $($test),*);
    };
    (@ $module:ident, $setup:ident, $($test:ident),*) => {
        mod $module {
            $(#[test] fn $test() { super::$test(&$crate::Rig::new($crate::Setup::$setup)); })*
        }
    };
}
