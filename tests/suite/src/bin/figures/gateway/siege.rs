//! One user of siege, who requests the next page after the last one. siege leaves TCP_NODELAY alone,
//! and waits for each segment.

use std::time::Duration;

use hsmux_bench::Measurement;
use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_suite::Rig;
use hsmux_token::{Error, Kind, Result};
use serde::Deserialize;

use super::PATH;
use super::handshakes::gateway;
use super::nginx::Nginx;
use crate::Effort;
use crate::progress::preparing;

/// Many short turns, so that other load on the machine affects all alike.
const TURN: Duration = Duration::from_secs(1);

/// siege sometimes hangs at its end, and is then repeated.
const TRIES: usize = 3;

/// The output of siege.
#[derive(Deserialize)]
struct SiegeOutput {
    transactions: u64,
    elapsed_time: f64,
    transaction_rate: f64,
    failed_transactions: u64,
}

/// The gateway with its defaults against nginx with the key in a file.
pub fn one_user(effort: Effort) -> Result<CompareReport> {
    preparing("a gateway, and nginx with the key in a file");
    let more = effort.turn.as_secs().max(1) as usize;
    let effort = Effort {
        rounds: effort.rounds * more,
        turn: TURN,
        ..effort
    };
    let by_default = gateway();
    let rig = &by_default.rig;
    let key = rig.keys.file("ec").display().to_string();
    let nginx = Nginx::start(rig, "files", &[("ec", key)], None);
    let variant = |name: &str, address: &str| {
        let url = format!("https://{address}/{PATH}");
        Variant::new(name, move || siege(rig, &url, effort.turn))
    };
    let [file, default] = ["nginx, key in a file", "gateway, default configuration"];
    let goals = [Goal {
        of: default.to_owned(),
        against: file.to_owned(),
        bound: Bound::RateRatioAtLeast(1.0),
    }];
    let variants = vec![
        variant(default, &by_default.address),
        variant(file, &nginx.address),
    ];
    let title = "One user of siege (-b -c1), P-256: each page on a new connection";
    effort.compare(title, variants, &goals)
}

fn siege(rig: &Rig, url: &str, time: Duration) -> Result<Measurement> {
    let settings = rig.path("siegerc");
    let text = "color = off\njson_output = true\nlogging = false\nparser = false\nconnection = close\n\
                accept-encoding = identity\nfailures = 1000000\n";
    std::fs::write(&settings, text).expect("write siegerc");
    let limit = (time + Duration::from_secs(5)).as_secs();
    let run = || {
        let done = rig
            .run("timeout")
            .args(&format!("--kill-after=1 {limit} siege -R"))
            .arg(&settings)
            .args(&format!("-b -c1 -t{}S {url}", time.as_secs()))
            .finish();
        let begin = done.out.find('{')?;
        serde_json::from_str::<SiegeOutput>(&done.out[begin..]).ok()
    };
    let said = (0..TRIES).find_map(|_| run());
    let said =
        said.ok_or_else(|| Error::pool(Kind::Environment, format!("siege of {url}: no figures")))?;
    Ok(Measurement {
        failed: said.failed_transactions,
        ..Measurement::elsewhere(said.transactions, said.elapsed_time, said.transaction_rate)
    })
}
