//! The compared ways.

use std::path::Path;

use hsmux_token::Result;

use super::{ChurnOptions, LoadedService, Programs, SoftHsmStore, Way};

/// Keys of an unchanged token: as many as at the start of the published runs.
const TWIN: usize = 52;

/// Creates two ways, the module alone and a broker, each with its own tokens in `folder`: over SoftHSM and, if given,
/// over a module like SoftHSM before 2.4.0.
pub fn ways(
    folder: &Path,
    programs: &Programs,
    softhsm: &Path,
    old: Option<&Path>,
    workers: usize,
    options: &ChurnOptions,
) -> Result<Vec<Way>> {
    let mut modules = vec![("SoftHSM", None)];
    modules.extend(old.map(|old| ("old", Some(old))));
    let mut ways = Vec::new();
    for (of, old) in modules {
        for over_broker in [false, true] {
            let store = |name: &str| {
                let folder = folder.join(format!("{}-{name}", ways.len()));
                SoftHsmStore::new(&folder, programs, softhsm, old)
            };
            let (subject, twin) = (store("subject")?, store("twin")?);
            let serve = |store: &SoftHsmStore| -> Result<Box<dyn LoadedService>> {
                Ok(if over_broker {
                    Box::new(store.broker(workers, options)?)
                } else {
                    Box::new(store.bare(options)?)
                })
            };
            let keys = subject.keys()?;
            // The process that created the twin's keys ends; the keys remain unchanged.
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
