//! The ways that are compared.

use std::path::Path;

use hsmux_token::Result;

use super::{Isolation, Options, Programs, Serves, Store, Way};

/// Keys of a token that nobody changes: as many as the published runs begin with.
const TWIN: usize = 52;

/// Two ways to the key, the module alone and a broker over it over SoftHSM and, where
/// it is given, over a module that behaves as SoftHSM did before 2.4.0; each has tokens of its own in
/// `folder`.
pub fn ways(
    folder: &Path,
    programs: &Programs,
    softhsm: &Path,
    old: Option<&Path>,
    isolation: Isolation,
    options: &Options,
) -> Result<Vec<Way>> {
    let mut modules = vec![("SoftHSM", None)];
    modules.extend(old.map(|old| ("old", Some(old))));
    let mut ways = Vec::new();
    for (of, old) in modules {
        for over_broker in [false, true] {
            let store = |name: &str| {
                let folder = folder.join(format!("{}-{name}", ways.len()));
                Store::new(&folder, programs, softhsm, old)
            };
            let (subject, twin) = (store("subject")?, store("twin")?);
            let serve = |store: &Store| -> Result<Box<dyn Serves>> {
                Ok(if over_broker {
                    Box::new(store.broker(isolation, options)?)
                } else {
                    Box::new(store.bare(options)?)
                })
            };
            let keys = subject.keys()?;
            // Whoever made the twin's keys goes, and they stay as they are.
            twin.keys()?.bring_to(TWIN - 1)?;
            ways.push(Way {
                name: format!("{} {of}", if over_broker { "broker," } else { "bare" }),
                restarts: !over_broker,
                subject: serve(&subject)?,
                twin: serve(&twin)?,
                keys,
            });
        }
    }
    Ok(ways)
}
