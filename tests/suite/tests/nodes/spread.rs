//! Lists of revoked certificates that go from host to host.

use std::io::{Read, Write};
use std::path::Path;

use hsmux_suite::{Caller, PATIENCE, Rig, until};
use hsmux_token::Blob;
use hsmux_wire::decode;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use crate::cable::Cable;
use crate::pair::{Load, Pair, install_list, listens, member};
use crate::tls::{Stream, connect};
use crate::trio::{NAMES, Trio};

/// The list in a file.
fn list(file: &Path) -> Vec<u8> {
    let read = CertificateRevocationListDer::from_pem_file(file);
    read.expect("a list").to_vec()
}

/// Waits until a host has the list that the authority made last.
fn wait_for_list(authority: &Rig, rig: &Rig) {
    let newest = list(&authority.path("ca/revoked.pem"));
    until("the newest list", PATIENCE, || {
        (list(&rig.path("node/revoked.pem")) == newest).then_some(())
    });
}

/// One more that is revoked, of no host that is there.
fn revoke_one(rig: &Rig, ca: &str, name: &str) {
    rig.hsmux(&format!("node enroll {name} --ca {ca}")).ok();
    rig.hsmux(&format!("node revoke {name} --ca {ca}")).ok();
}

#[test]
fn a_list_goes_both_ways_and_waits_for_whoever_is_away() {
    let mut pair = Pair::start(1, 1);
    revoke_one(&pair.user, "ca", "web4");
    install_list(&pair.user, &pair.node);
    wait_for_list(&pair.user, &pair.user);
    revoke_one(&pair.user, "ca", "web5");
    install_list(&pair.user, &pair.user);
    wait_for_list(&pair.user, &pair.node);
    pair.user.stop();
    revoke_one(&pair.user, "ca", "web6");
    install_list(&pair.user, &pair.node);
    pair.user.start_daemon();
    wait_for_list(&pair.user, &pair.user);
}

#[test]
fn a_host_that_is_revoked_at_one_place_is_refused_at_all() {
    let trio = Trio::start();
    let [first, second, third] = &trio.hosts[..] else {
        panic!("three hosts");
    };
    // The third hears it from the second, which has heard it from the first.
    let between = [&trio.cables[0][2], &trio.cables[2][0]];
    between.into_iter().for_each(Cable::cut);
    revoke_one(first, "ca", "web4");
    install_list(first, first);
    wait_for_list(first, third);
    between.into_iter().for_each(Cable::mend);
    trio.wait_for_all();
    let mut loads: Vec<_> = trio.hosts[..2].iter().map(Load::start).collect();
    loads.iter_mut().for_each(Load::goes_on);
    first.hsmux("node revoke web3").ok();
    install_list(first, first);
    let refused = |rig: &Rig| {
        let member = member(rig, NAMES[2]);
        let told = member["reason"].as_str().unwrap_or_default();
        let status = rig.status();
        let peers = status["peers"].as_array().expect("peers");
        let peer = peers.iter().find(|peer| peer["name"] == NAMES[2]);
        let gone = peer.expect("a peer")["connections"] == 0;
        gone && member["in_service"] == 0 && told.contains("was revoked")
    };
    until("it is refused by both", PATIENCE, || {
        (refused(first) && refused(second)).then_some(())
    });
    loads.iter_mut().for_each(Load::goes_on);
    loads.into_iter().for_each(Load::nothing_failed);
}

/// As one of a version before there were such exchanges.
#[test]
fn a_host_that_exchanges_no_lists_is_used_all_the_same() {
    let mut pair = Pair::prepare(0, 1);
    pair.write_node();
    let module = &mut pair.node.config.module;
    *module = module.replace("revoked = \"node/revoked.pem\"", "");
    pair.node.start();
    pair.cable.lead_to(&listens(&pair.node));
    pair.start_user();
    pair.user.wait_for_members(1);
    Caller::open(&pair.user).ok("sign", json!({}));
    let log = pair.user.daemon.as_ref().expect("a daemon").log();
    assert!(!log.contains("revoked certificates"), "{log}");
}

#[test]
fn lists_that_are_older_foreign_or_damaged() {
    let mut pair = Pair::prepare(1, 1);
    let at = |ca: &str| list(&pair.user.path(ca).join("revoked.pem"));
    let older = at("ca");
    revoke_one(&pair.user, "ca", "web4");
    install_list(&pair.user, &pair.node);
    let own = at("ca");
    // Of the same name, and with a greater number.
    pair.user.hsmux("node ca init --ca ca2 --name cluster").ok();
    for name in ["web5", "web6", "web7"] {
        revoke_one(&pair.user, "ca2", name);
    }
    let foreign = at("ca2");
    revoke_one(&pair.user, "ca", "web8");
    let mut damaged = at("ca");
    let newest = damaged.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    pair.start_node();
    let files = pair.user.path("node");
    let mut peer = connect(&listens(&pair.node), &files, &[b"hsmux-revoked/1"]);
    assert_eq!(hear(&mut peer), own);
    for bad in [older, foreign, damaged] {
        tell(&mut peer, &bad);
    }
    tell(&mut peer, &newest);
    wait_for_list(&pair.user, &pair.node);
    pair.wait_for_log_of_node("newer list of revoked certificates is in place");
    let log = pair.node.daemon.as_ref().expect("a daemon").log();
    assert_eq!(log.matches("is not taken: ").count(), 1, "{log}");
    assert_eq!(log.matches("newer list").count(), 1, "{log}");
    let said = pair.node.hsmux("status").ok();
    said.says("no authority that this host believes has signed it");
}

/// What the host tells next.
fn hear(peer: &mut Stream) -> Vec<u8> {
    let mut length = [0; 4];
    peer.read_exact(&mut length).expect("a frame");
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    peer.read_exact(&mut frame).expect("a frame");
    let told: Vec<Blob> = decode(frame).expect("a list");
    told[0].to_vec()
}

fn tell(peer: &mut Stream, list: &[u8]) {
    let mut item = Vec::new();
    minicbor::encode(vec![Blob::from(list.to_vec())], &mut item).expect("an item");
    let length = u32::try_from(item.len()).expect("a frame");
    peer.write_all(&length.to_le_bytes()).expect("told");
    peer.write_all(&item).expect("told");
}
