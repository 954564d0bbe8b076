//! A gateway whose handshakes another host's tokens sign.

use std::fs;

use hsmux_suite::gateway::{ASK, FOLDER, Gateway, certify, configure, page};
use hsmux_suite::{BackgroundLoad, PATIENCE, Rig, until};

use crate::cable::Cable;
use crate::pair::{FILES, Pair, address_after, member};

/// `web1` with a gateway, and `web2`, whose token is in its pool.
struct Front {
    gateway: Gateway,
    node: Rig,
    cable: Cable,
}

impl Front {
    /// With so many tokens of `web1` beside it, which hold the same keys.
    fn start(locals: usize) -> Self {
        let mut pair = Pair::prepare(locals, 1);
        pair.start_node();
        let Pair {
            mut user,
            node,
            cable,
            ..
        } = pair;
        let [rsa, ec] = ["rsa", "ec"].map(|key| certify(&node, key, key, 30).display().to_string());
        fs::create_dir(user.path("www")).expect("a folder");
        fs::write(user.path("www/page.txt"), "a page\n").expect("a page");
        let sections = format!(
            "[[site]]\ncertificates = [\"{rsa}\", \"{ec}\"]\n{FOLDER}\n\
             [node]\n{FILES}\n[[token]]\nnode = \"{}\"\nname = \"web2\"",
            cable.address()
        );
        configure(&mut user, "", &sections);
        let gateway = Gateway::start_by(user, Rig::start_daemon);
        gateway.rig.wait_for_members(locals + 1);
        let front = Self {
            gateway,
            node,
            cable,
        };
        front.serves_both_keys();
        front
    }

    /// The gateway sees a moment after the pool what a key's holders can do.
    fn serves_both_keys(&self) {
        for (algorithm, subject) in [
            ("ECDSA+SHA256", "CN = ec"),
            ("rsa_pss_rsae_sha256", "CN = rsa"),
        ] {
            until(&format!("a handshake with {algorithm}"), PATIENCE, || {
                let said = self.gateway.s_client(&format!("-sigalgs {algorithm}"), ASK);
                (said.contains(subject) && said.contains("a page")).then_some(())
            });
        }
    }

    /// How much the token of `web2` has done.
    fn served(&self) -> u64 {
        let member = member(&self.gateway.rig, "web2");
        member["served"].as_u64().expect("a number")
    }

    /// For a while there is no other token: who comes then is served by that of `web2`.
    fn other_host_signs(&self) {
        let (rig, before) = (&self.gateway.rig, self.served());
        rig.hsmux("token park hsm1 --force").ok();
        page(self.gateway.port()).ok();
        assert!(self.served() > before, "{before}");
        rig.hsmux("token resume hsm1").ok();
        rig.wait_for_members(2);
    }

    fn wait_until_missed(&self) {
        until("web2 is missed", PATIENCE, || {
            (member(&self.gateway.rig, "web2")["in_service"] == 0).then_some(())
        });
    }

    fn bring_node_back(&mut self) {
        let address = address_after(&mut self.node, Rig::start);
        self.cable.lead_to(&address);
    }
}

#[test]
fn a_gateway_whose_only_token_is_on_another_host() {
    let mut front = Front::start(0);
    assert!(front.served() > 0);
    let healthy = |front: &Front, status: &str| {
        until(&format!("{status} of /health"), PATIENCE, || {
            front.gateway.health().contains(status).then_some(())
        });
    };
    healthy(&front, "200 OK");
    front.node.stop();
    healthy(&front, "503");
    front.bring_node_back();
    healthy(&front, "200 OK");
    front.gateway.rig.wait_for_members(1);
    front.serves_both_keys();
}

#[test]
fn handshakes_go_on_with_a_local_token_while_the_other_host_is_away() {
    let mut front = Front::start(1);
    let port = front.gateway.port();
    let load = BackgroundLoad::start(4, move || page(port));
    for end in [Rig::stop as fn(&mut Rig), Rig::kill_to_the_last] {
        front.other_host_signs();
        end(&mut front.node);
        front.wait_until_missed();
        load.goes_on(20);
        front.bring_node_back();
        front.gateway.rig.wait_for_members(2);
    }
    front.other_host_signs();
    load.none_failed();
    let failed = "hsmux_gateway_signatures_failed_total";
    assert_eq!(front.gateway.metric(failed), 0);
    front.serves_both_keys();
}
