//! Members that were not added, or that have gone, leave nothing behind.

use hsmux_suite::{Member, Rig, Setup};

fn pool() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig
}

#[test]
fn a_token_that_was_not_added_is_new_to_the_next_reload_and_to_the_next_add() {
    let mut rig = pool();
    rig.write_pin("hsm3", "pin-of-hsm3");
    rig.config.members.push(Member::softhsm("hsm3"));
    rig.write_config();
    for _ in 0..2 {
        rig.hsmux("token add hsm3").fails().says("not added");
        assert_eq!(rig.members_in("serving"), ["hsm1", "hsm2"]);
    }
    rig.softhsm.init("hsm3");
    rig.hsmux("reload").ok().says("hsm3 added");
    rig.wait_for_members(3);

    rig.hsmux("token remove hsm3").ok();
    rig.hsmux("token add hsm3").ok().says("hsm3 serves");
    rig.wait_for_members(3);
}

#[test]
fn a_token_that_was_not_added_is_not_known_to_other_commands() {
    let rig = pool();
    rig.write_pin("none", "12345678");
    let line = format!(
        "token add hsm3 --module {} --uri pkcs11:token=none --pin-file none.pin",
        hsmux_suite::SOFTHSM
    );
    rig.hsmux(&line).fails().says("not added");
    rig.hsmux("reload").ok().never_says("hsm3");
    rig.softhsm.init("none");
    rig.write_pin("none", "pin-of-none");
    rig.hsmux(&line).ok().says("hsm3 serves");
    rig.wait_for_members(3);
}

#[test]
fn a_new_member_is_not_parked_because_one_of_its_name_was() {
    let mut rig = pool();
    rig.hsmux("token park hsm2").ok();
    rig.stop();
    let hsm2 = rig.config.members.pop().expect("two members");
    rig.start();
    assert!(!rig.path("state/parked.json").exists());
    rig.stop();
    rig.config.members.push(hsm2);
    rig.start();
    assert_eq!(rig.members_in("serving"), ["hsm1", "hsm2"]);
}
