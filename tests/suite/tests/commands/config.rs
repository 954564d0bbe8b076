//! Which file is the configuration, of commands and of the module.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hsmux_suite::{MemberConfig, PATIENCE, Program, Rig, Run, Setup, built, until};
use rustix::process::Signal;

/// Runs a command where /etc/hsmux is the test's own folder `etc`: in a mount namespace, whose /etc has links to the
/// machine's.
const WITH_ETC: &str = "mount --bind /etc machine && mount -t tmpfs none /etc && ln -s \"$PWD\"/machine/* /etc && \
                        ln -sfn \"$PWD\"/etc /etc/hsmux && exec \"$@\"";

/// The folders that may have a configuration, by what goes before the others.
const FOLDERS: [&str; 4] = ["named", "etc", "xdg/hsmux", ".config/hsmux"];

/// Each file in turn is the first one that is there, and says where the daemon is; those after it are wrong.
#[test]
fn it_is_the_named_one_or_the_systems_or_the_users() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.start();
    fs::create_dir(rig.path("machine")).unwrap();
    for folder in FOLDERS {
        fs::create_dir_all(rig.path(folder)).unwrap();
        write(&rig, folder, "nobody.sock");
    }
    for folder in FOLDERS {
        write(&rig, folder, "hsmux.sock");
        let file = rig.path(folder).join("hsmux.toml");
        let path = match folder {
            "etc" => Path::new("/etc/hsmux/hsmux.toml"),
            _ => &file,
        };
        let hsmux = |line: &str| command(&rig).arg(built(Program::Hsmux)).args(line);
        let said = hsmux("config path").ok();
        assert_eq!(said.out.trim_end(), path.to_str().unwrap(), "{folder}");
        hsmux("status").ok().says("hsm1");
        // What the module shows without a daemon is an empty slot.
        let tokens = command(&rig).args("pkcs11-tool --list-token-slots --module");
        tokens.arg(rig.module()).ok().says("web");
        fs::remove_file(file).unwrap();
    }
}

/// Mistakes of an editor's hand: what to replace in the file, by what, and what is said of it.
const SLIPS: [(&str, &str, &str); 4] = [
    (
        "[pool]\n",
        "[pool]\nlabl = \"shop\"\n",
        "did you mean \"label\"?",
    ),
    ("label =", "lable =", "needs label"),
    ("[[token]]\n", "[[token]\n", "hsmux.toml:"),
    ("[pool]\n", "[pool]\ndeadline = \"soon\"\n", "is not a time"),
];

/// The daemon goes on with what it read before, and programs and commands find it.
#[test]
fn a_mistake_in_the_file_breaks_no_pool_that_runs() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.start();
    rig.hsmux("key generate ec:P-256 --label web").ok();
    let file = rig.path("hsmux.toml");
    let good = fs::read_to_string(&file).unwrap();
    rig.hsmux("status").ok().never_says("mistake");
    for (text, slip, said) in SLIPS {
        let bad = good.replacen(text, slip, 1);
        assert_ne!(bad, good, "{slip}");
        fs::write(&file, bad).unwrap();
        rig.hsmux("config check").fails().says(said);
        rig.pkcs11_tool("--list-objects --type privkey")
            .ok()
            .says("web");
        rig.hsmux("status")
            .ok()
            .says("2 of 2 members serve")
            .says(said);
        rig.hsmux("status --json")
            .ok()
            .says("config_error")
            .says("hsmux.toml:");
        let doctor = rig.hsmux("doctor").fails();
        doctor.says(said).never_says("the daemon does not run");
        rig.hsmux("token park hsm2 --force").ok();
        rig.hsmux("doctor").fails().says("parked");
        rig.hsmux("token resume hsm2").ok();
        rig.hsmux("pin list").ok();
        rig.hsmux("key list").ok().says("web");
        rig.hsmux("reload").fails().says(said);
        rig.wait_for_members(2);
    }
    rig.hsmux("stop").ok();
    // Without a daemon the mistake is why nobody is there.
    rig.stop();
    let alone = rig.hsmux("status").fails();
    alone.says("is not a time");
    // Nor is a daemon taken for absent: its state folder may be among what cannot be read.
    rig.hsmux("pin list")
        .fails()
        .says("whether a daemon runs cannot be said")
        .says("is not a time");
    let program = rig.pkcs11_tool("--list-objects --type privkey");
    program.fails().says("is not a time");
    fs::write(&file, good).unwrap();
    rig.start();
}

/// Files that are not there, as only this machine can tell: what to replace in the file, and by what.
const NOT_THERE: [(&str, &str); 2] = [
    ("libsofthsm2.so", "libsofthsm3.so"),
    ("\"hsm2.pin\"", "\"hsm9.pin\""),
];

#[test]
fn a_reload_takes_over_no_file_that_names_what_is_not_there() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    let file = rig.path("hsmux.toml");
    let good = fs::read_to_string(&file).unwrap();
    for (text, slip) in NOT_THERE {
        let missing = slip.trim_matches('"');
        let bad = good.replace(text, slip);
        assert_ne!(bad, good, "{slip}");
        fs::write(&file, bad).unwrap();
        let daemon = rig.daemon.as_ref().unwrap();
        daemon.signal(Signal::HUP);
        until("status shows the mistake", PATIENCE, || {
            let told = rig.status()["config_error"].to_string();
            told.contains(missing).then_some(())
        });
        let reload = rig.hsmux("reload").fails();
        reload.says("hsmux.toml:").says(missing);
        rig.hsmux("status")
            .ok()
            .says("2 of 2 members serve")
            .says(missing);
        let doctor = rig.hsmux("doctor").fails();
        doctor.says("was not taken over").says(missing);
    }
    fs::write(&file, good).unwrap();
    rig.hsmux("reload").ok().says("nothing has changed");
    rig.hsmux("status").ok().never_says("mistakes");
}

#[test]
fn a_reload_takes_over_no_pin_file_that_others_can_read() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig.write_pin("open", "pin-for-all");
    fs::set_permissions(rig.path("open.pin"), Permissions::from_mode(0o644)).unwrap();
    let file = rig.path("hsmux.toml");
    let good = fs::read_to_string(&file).unwrap();
    for pin in ["\"pool.pin\"", "\"hsm2.pin\""] {
        let bad = good.replace(pin, "\"open.pin\"");
        assert_ne!(bad, good, "{pin}");
        fs::write(&file, bad).unwrap();
        let reload = rig.hsmux("reload").fails();
        reload
            .says("open.pin")
            .says("every user can read it; run: chmod 600");
        rig.hsmux("status")
            .ok()
            .says("2 of 2 members serve")
            .says("chmod 600");
        rig.pkcs11_tool("--list-objects").ok();
    }
    fs::write(&file, good).unwrap();
    rig.hsmux("reload").ok().says("nothing has changed");
}

/// The writer of an issuer's key set can log in as anybody.
#[test]
fn a_daemon_starts_with_no_key_set_that_others_can_change() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let file = rig.path("hsmux.toml");
    let broker = "[broker]\nlisten = [\"127.0.0.1:0\"]\njwt_keys = \"jwks.json\"\n\
                  jwt_issuer = \"https://login.example\"\njwt_audience = \"hsmux\"\n";
    let text = fs::read_to_string(&file).unwrap() + broker;
    fs::write(&file, text).unwrap();
    fs::write(rig.path("jwks.json"), r#"{"keys":[]}"#).unwrap();
    fs::set_permissions(rig.path("jwks.json"), Permissions::from_mode(0o666)).unwrap();
    let refused = rig.hsmux("serve").fails();
    assert_eq!(refused.code, Some(2));
    refused.says("jwks.json").says("run: chmod go-w");
    fs::set_permissions(rig.path("jwks.json"), Permissions::from_mode(0o644)).unwrap();
    // Now it is read.
    let empty = rig.hsmux("serve").fails();
    empty.says("no public key in it");
}

/// A PIN file that is deleted while its member serves, one of the file and one that was added since.
#[test]
fn what_is_missing_already_keeps_no_other_change_from_being_taken_over() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig.softhsm.init("hsm3");
    rig.write_pin("hsm3", "pin-of-hsm3");
    rig.config.members.push(MemberConfig::softhsm("hsm3"));
    rig.write_config();
    rig.hsmux("token add hsm3").ok();
    for pin in ["hsm2.pin", "hsm3.pin"] {
        fs::remove_file(rig.path(pin)).unwrap();
    }
    rig.hsmux("config check")
        .fails()
        .says("hsm2.pin")
        .says("hsm3.pin");
    rig.config.members[0].more = "sessions = 2".into();
    rig.write_config();
    rig.hsmux("reload").ok().says("hsm1 changed");
    rig.wait_for_members(3);
    // A new place for the same mistake is one as well.
    rig.config.members[0].label = "hsm9".into();
    rig.write_config();
    rig.hsmux("reload")
        .fails()
        .says("hsm9.pin")
        .never_says("hsm2.pin");
}

#[test]
fn another_socket_in_the_file_is_no_absent_daemon() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.start();
    let file = rig.path("hsmux.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replace("\"hsmux.sock\"", "\"other.sock\"")).unwrap();
    let pid = format!("pid {}", rig.daemon.as_ref().unwrap().id());
    let start = "Start it with";
    for command in ["status", "reload"] {
        let run = rig.hsmux(command).fails();
        run.says("other-admin.sock").says(&pid).never_says(start);
        assert_eq!(run.code, Some(4), "{run}");
    }
    let doctor = rig.hsmux("doctor").fails();
    doctor.says("a daemon runs").says(&pid).says("restart");
    doctor.never_says(start);
    rig.stop();
    rig.hsmux("status").fails().says(start).never_says("pid ");
}

/// A configuration that finds the daemon at this socket.
fn write(rig: &Rig, folder: &str, socket: &str) {
    let inside = |name: &str| format!("\"{}\"", rig.path(name).display());
    let text = rig.config.to_string();
    let text = text.replace("\"hsmux.sock\"", &inside(socket));
    let text = ["pool.pin", "hsm1.pin"].iter().fold(text, |text, pin| {
        text.replace(&format!("\"{pin}\""), &inside(pin))
    });
    fs::write(rig.path(folder).join("hsmux.toml"), text).unwrap();
}

/// A command whose environment names a file, and a folder for the user's, as long as these are there.
fn command(rig: &Rig) -> Run {
    let variable = |name: &str, folder: &str, value: &str| {
        let there = rig.path(folder).join("hsmux.toml").exists();
        if there {
            format!("{name}={}", rig.path(value).display())
        } else {
            format!("--unset={name}")
        }
    };
    rig.run("unshare")
        .args("--mount sh -c")
        .arg(WITH_ETC)
        .args("sh env")
        .arg(variable("HSMUX_CONFIG", "named", "named/hsmux.toml"))
        .arg(variable("XDG_CONFIG_HOME", "xdg/hsmux", "xdg"))
}
