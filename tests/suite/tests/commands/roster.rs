//! Members that were not added, or that have gone, leave nothing behind.

use hsmux_suite::{MemberConfig, Rig, Setup};

fn pool() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig
}

#[test]
fn a_token_that_was_not_added_is_new_to_the_next_reload_and_to_the_next_add() {
    let mut rig = pool();
    rig.write_pin("hsm3", "pin-of-hsm3");
    rig.config.members.push(MemberConfig::softhsm("hsm3"));
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
fn a_name_that_the_file_has_is_added_by_its_name_alone() {
    let mut rig = pool();
    rig.softhsm.init("hsm3");
    rig.write_pin("hsm3", "pin-of-hsm3");
    rig.config.members.push(MemberConfig::softhsm("hsm3"));
    rig.write_config();
    let file = std::fs::read_to_string(rig.path("hsmux.toml")).unwrap();
    let line = format!(
        "token add hsm3 --module {} --uri pkcs11:token=hsm3 --pin-file hsm3.pin",
        hsmux_suite::SOFTHSM
    );
    let refused = rig.hsmux(&line).fails();
    refused
        .says("stands already")
        .says("`hsmux token add hsm3`");
    assert_eq!(
        std::fs::read_to_string(rig.path("hsmux.toml")).unwrap(),
        file
    );
    rig.hsmux("token add hsm3").ok().says("hsm3 serves");
    let refused = rig.hsmux(&line).fails();
    refused.says("`hsmux token list`");
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

#[test]
fn a_removed_member_that_is_still_in_the_file_comes_back_with_a_reload() {
    let mut rig = pool();
    for section in ["", "sessions = 2"] {
        rig.hsmux("token remove hsm2")
            .ok()
            .says("until the next reload or start");
        assert_eq!(rig.members_in("serving"), ["hsm1"]);
        rig.hsmux("status --check").ok();
        let doctor = rig.hsmux("doctor").finish();
        doctor
            .says("note: hsm2: it is in the configuration file, but not in the pool")
            .says("hsmux token add hsm2");
        rig.config.members[1].more = section.into();
        rig.write_config();
        let reload = rig.hsmux("reload").ok();
        reload.says("hsm2 added").never_says("changed");
        rig.wait_for_members(2);
        let doctor = rig.hsmux("doctor").finish();
        doctor.never_says("not in the pool");
        rig.hsmux("reload").ok().says("nothing has changed");
    }
}

/// Commands for members do not know a member that was not added. Each command here is one that an error names.
#[test]
fn the_advice_of_a_token_that_was_not_added_works() {
    let rig = pool();
    rig.softhsm.init("hsm3");
    let add = format!(
        "token add hsm3 --module {} --uri pkcs11:token=hsm3 --pin-file hsm3.pin",
        hsmux_suite::SOFTHSM
    );
    let refused = || {
        let run = rig.hsmux(&add).fails();
        run.says("not added")
            .says("then `hsmux token add` again")
            .says("`hsmux pin release 'pkcs11:token=hsm3'`")
            .never_says("token resume");
    };
    rig.write_pin("hsm3", "not-the-pin");
    for _ in 0..5 {
        refused();
    }
    // The token has counted one of them.
    rig.write_pin("hsm3", "pin-of-hsm3");
    rig.hsmux(&add).ok().says("hsm3 serves");
    rig.hsmux("token remove hsm3 --forget").ok();
    rig.write_pin("hsm3", "not-the-pin");
    refused();
    rig.hsmux("pin release pkcs11:token=hsm3").ok();
    refused();
}
