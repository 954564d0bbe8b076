//! Which file is the configuration, of commands and of the module.

use std::fs;
use std::path::Path;

use hsmux_suite::{Program, Rig, Run, Setup, built};

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
