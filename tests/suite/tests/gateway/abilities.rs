//! What is offered is what the tokens that hold the key can do.

use hsmux_suite::Rig;

use crate::rig::{ASK, FOLDER, Gateway, certify_public};

/// Two SoftHSM tokens, which have PSS, and a card without it that alone holds the key of `rsa.pem`.
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
    let site = format!("[[site]]\ncertificates = [\"rsa.pem\"]\n{FOLDER}");
    let gateway = Gateway::start(beside_others(), "", &site);
    let said = gateway.s_client("", ASK);
    let served = said.contains("New, TLSv1.2") && said.contains("a page");
    assert!(served, "{said}");
    let signed = |algorithm| {
        let labels = format!("{{algorithm=\"{algorithm}\"}}");
        gateway.metric(&format!("hsmux_gateway_signatures_total{labels}"))
    };
    assert_eq!(signed("rsa_pkcs1_sha256"), 1);
    let said = gateway.s_client("-tls1_3", "");
    assert!(said.contains("alert protocol version"), "{said}");
    assert_eq!(gateway.metric("hsmux_gateway_signatures_failed_total"), 0);
}
