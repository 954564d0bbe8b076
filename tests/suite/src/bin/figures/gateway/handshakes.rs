//! New full handshakes with keys in SoftHSM against nginx, and the cost of resumed ones.

use std::time::Duration;

use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_bench::tls::Version;
use hsmux_suite::gateway::{Gateway, certify};
use hsmux_suite::{Rig, SOFTHSM, SoftHsm};
use hsmux_token::Result;

use super::nginx::Nginx;
use super::{burst, daemon, measure, with_page};
use crate::Effort;
use crate::fact::Fact;
use crate::progress::{Turns, preparing};

const USERS: usize = 20;

const EC: &str = "ecdsa_secp256r1_sha256";
const RSA: &str = "rsa_pss_rsae_sha256";

/// One SoftHSM token with an EC and an RSA key, and certificates for both.
fn rig() -> Rig {
    let rig = with_page(1);
    for key in ["rsa", "ec"] {
        certify(&rig, key, key, 30);
    }
    rig
}

/// A gateway over it, with the default configuration.
pub fn gateway() -> Gateway {
    let site = "[[site]]\ncertificates = [\"rsa.pem\", \"ec.pem\"]\nroot = \"www\"";
    Gateway::start(rig(), "", site)
}

/// P-256 beside nginx with the key in a file, RSA-2048 beside nginx with the engine over SoftHSM.
pub fn handshakes(effort: Effort) -> Result<Vec<CompareReport>> {
    preparing("a gateway, nginx with keys in files, and nginx with OpenSSL's engine");
    let gateway = gateway();
    let rig = &gateway.rig;
    let file = |key: &str| rig.keys.file(key).display().to_string();
    let token = |key: &str| {
        let pin = SoftHsm::pin("hsm1");
        format!("engine:pkcs11:pkcs11:token=hsm1;object={key};type=private;pin-value={pin}")
    };
    let from_files = Nginx::start(
        rig,
        "files",
        &[("ec", file("ec")), ("rsa", file("rsa"))],
        None,
    );
    let softhsm = Some(SOFTHSM.as_ref());
    let by_engine = Nginx::start(
        rig,
        "engine",
        &[("ec", token("ec")), ("rsa", token("rsa"))],
        softhsm,
    );
    let variant = |name: &str, address: &str, server: u32, signature: &str| {
        let mut options = burst(address, USERS, effort.turn);
        options.offer.version = Some(Version::Tls13);
        options.offer.signatures = Some(signature.to_owned());
        options.warm_up = Duration::from_millis(300);
        options.processes = vec![server];
        Variant::new(name, move || Ok(measure(&options)?.measurement))
    };
    let [in_file, in_engine, in_pool] = [
        "nginx, key in a file",
        "nginx, engine, key in SoftHSM",
        "gateway",
    ];
    let all = |signature: &str| {
        vec![
            variant(in_file, &from_files.address, from_files.id(), signature),
            variant(in_engine, &by_engine.address, by_engine.id(), signature),
            variant(in_pool, &gateway.address, daemon(&gateway), signature),
        ]
    };
    let goals = |against: &str, bounds: &[Bound]| -> Vec<Goal> {
        let goal = |bound: &Bound| Goal {
            of: in_pool.to_owned(),
            against: against.to_owned(),
            bound: *bound,
        };
        bounds.iter().map(goal).collect()
    };
    let title = |key: &str| {
        format!("New full handshakes of TLS 1.3, {key}, X25519, {USERS} users: one hit for each")
    };
    let ec = effort.compare(
        &title("P-256"),
        all(EC),
        &goals(
            in_file,
            &[
                Bound::RateRatioAtLeast(1.2),
                Bound::ServerTimeRatioAtMost(0.7),
            ],
        ),
    )?;
    let rsa = effort.compare(
        &title("RSA-2048"),
        all(RSA),
        &goals(in_engine, &[Bound::RateRatioAtLeast(1.1)]),
    )?;
    Ok(vec![ec, rsa])
}

/// The tokens' signatures for resumed sessions.
pub fn resumed(effort: Effort) -> Result<Vec<Fact>> {
    preparing("a gateway");
    let gateway = gateway();
    let mut options = burst(&gateway.address, USERS, effort.turn);
    options.resume = 1.0;
    Turns::new([effort.turn]).next("resumed sessions");
    let measured = measure(&options)?;
    let signatures = gateway.metric("hsmux_gateway_signatures_total");
    let full = gateway.metric("hsmux_gateway_handshakes_total{kind=\"full\"");
    let resumed = gateway.metric("hsmux_gateway_handshakes_total{kind=\"resumed\"");
    let rate = measured.times.resumed_handshakes as f64 / measured.measurement.elapsed_s;
    Ok(vec![
        Fact::new("resumed handshakes", resumed as f64, "connections").at_least(1.0),
        Fact::new("their rate", rate, "a second"),
        Fact::new(
            "full handshakes of the same run",
            full as f64,
            "connections",
        )
        .at_most(2.0 * USERS as f64),
        Fact::new(
            "failed connections of the same run",
            measured.measurement.failed as f64,
            "connections",
        )
        .at_most(0.0),
        Fact::new(
            "signatures but for those of full handshakes",
            signatures as f64 - full as f64,
            "signatures",
        )
        .at_most(0.0),
    ])
}
