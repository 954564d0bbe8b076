//! The gateway offers the signature algorithms of the tokens that hold the key.

use hsmux_suite::{PATIENCE, Rig, SOFTHSM, StandIn, until};
use hsmux_token::ck;

use crate::rig::{ASK, FOLDER, Gateway, certify_public};

/// One site, with an RSA certificate alone.
fn start(rig: Rig) -> Gateway {
    let site = format!("[[site]]\ncertificates = [\"rsa.pem\"]\n{FOLDER}");
    Gateway::start(rig, "", &site)
}

fn signed(gateway: &Gateway, algorithm: &str) -> u64 {
    let labels = format!("{{algorithm=\"{algorithm}\"}}");
    gateway.metric(&format!("hsmux_gateway_signatures_total{labels}"))
}

/// Without PSS there is no TLS 1.3.
fn refuses_tls13(gateway: &Gateway) {
    let said = gateway.s_client("-tls1_3", "");
    assert!(said.contains("alert protocol version"), "{said}");
}

/// Two SoftHSM tokens with PSS, and a card without it, which alone holds the key of `rsa.pem`.
fn beside_others() -> Rig {
    let mut rig = Gateway::prepare();
    let others = std::mem::take(&mut rig.config.members);
    rig.stand_in("cards", &["card"]);
    rig.start();
    certify_public(&rig, "rsa");
    rig.stop();
    rig.config.members.extend(others);
    rig
}

#[test]
fn tokens_without_the_key_do_not_count() {
    let gateway = start(beside_others());
    let said = gateway.s_client("", ASK);
    let served = said.contains("New, TLSv1.2") && said.contains("a page");
    assert!(served, "{said}");
    assert_eq!(signed(&gateway, "rsa_pkcs1_sha256"), 1);
    refuses_tls13(&gateway);
    assert_eq!(gateway.metric("hsmux_gateway_signatures_failed_total"), 0);
}

/// Two SoftHSM tokens with the same keys. The first one claims to have no PSS.
fn one_without_pss() -> Rig {
    let mut rig = Gateway::prepare();
    let mut old = StandIn::new(&rig.path(""), "old", &["hsm1"]);
    old.set_module(&format!("forward = \"{SOFTHSM}\""));
    old.set_all(&format!("lacks = [{}]", ck::CKM_RSA_PKCS_PSS));
    rig.config.members.remove(0);
    rig.config.members.extend(old.members());
    rig
}

/// The gateway follows the pool with a short delay.
#[test]
fn algorithms_follow_the_tokens_in_service() {
    let gateway = start(one_without_pss());
    let offers = |version: &str, algorithm: &str| {
        let before = signed(&gateway, algorithm);
        until(&format!("{version} is offered"), PATIENCE, || {
            let said = gateway.s_client("", ASK);
            let served = said.contains(&format!("New, {version},")) && said.contains("a page");
            served.then_some(())
        });
        assert!(signed(&gateway, algorithm) > before, "{algorithm}");
    };
    offers("TLSv1.3", "rsa_pss_rsae_sha256");
    gateway.rig.hsmux("token park hsm2 --force").ok();
    offers("TLSv1.2", "rsa_pkcs1_sha256");
    refuses_tls13(&gateway);
    gateway.rig.hsmux("token resume hsm2").ok();
    offers("TLSv1.3", "rsa_pss_rsae_sha256");
}
