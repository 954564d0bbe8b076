//! Set-uid and set-gid programs that load the module: the user who starts them decides nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use hsmux_suite::{Rig, Run, SOFTHSM, Setup};

/// The attacker: a user without rights.
const NOBODY: &str = "--reuid nobody --regid nogroup --clear-groups";

/// Permissions of privileged programs, and of one without privileges.
const SET_UID: u32 = 0o4755;
const SET_GID: u32 = 0o2755;
const PLAIN: u32 = 0o755;

/// A rig that everybody may look into: `program`, `openssl` and the module, of root's, and in `attacker` what an
/// attacker has made: a configuration whose vendor module leaves a mark.
struct Attack {
    rig: Rig,
}

impl Attack {
    fn prepare(setup: Setup) -> Self {
        let rig = Rig::prepare(setup, 1);
        set_mode(&rig.path(""), 0o755);
        let program = source("program.c");
        let compile = rig.run("cc").args("-std=c99 -o program");
        compile.arg(program).arg("-ldl").ok();
        fs::copy(rig.module(), rig.path("hsmux_pkcs11.so")).unwrap();
        rig.run("sh")
            .args("-c")
            .arg("cp $(command -v openssl) .")
            .ok();
        let attack = Self { rig };
        attack.write_files_of_the_attacker();
        attack
    }

    fn write_files_of_the_attacker(&self) {
        let folder = self.path("attacker");
        for folder in ["attacker/marks", "attacker/.config/hsmux"] {
            fs::create_dir_all(self.path(folder)).unwrap();
        }
        let vendor = folder.join("vendor.so");
        let marks = format!("-DMARKS=\"{}\"", folder.join("marks").display());
        let compile = self.rig.run("cc").args("-shared -fPIC").arg(marks);
        compile.arg("-o").arg(&vendor).arg(source("vendor.c")).ok();
        let text = format!(
            "[pool]\nlabel = \"attack\"\n[daemon]\nlogin = \"peer\"\nstate = \"{0}/state\"\n\
             [module]\nmode = \"embedded\"\n[[token]]\nname = \"hsm1\"\nmodule = \"{0}/vendor.so\"\n\
             uri = \"pkcs11:token=hsm1\"\nisolation = \"thread\"\n",
            folder.display()
        );
        for place in ["attacker/hsmux.toml", "attacker/.config/hsmux/hsmux.toml"] {
            fs::write(self.path(place), &text).unwrap();
        }
        let owner = self.rig.run("chown").args("-R nobody:nogroup");
        owner.arg(&folder).ok();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.rig.path(name)
    }

    /// The program, as the attacker starts it, when it has these permissions.
    fn program(&self, name: &str, mode: u32) -> Run {
        let program = self.path(name);
        set_mode(&program, mode);
        let run = Run::new("setpriv").args(NOBODY).args("env -i");
        run.arg("PATH=/usr/bin:/bin")
    }

    /// The set-uid program with the module, in a file system whose /etc is the rig's `etc`.
    fn with_own_etc(&self, environment: &str) -> Run {
        set_mode(&self.path("program"), SET_UID);
        let bind = self.rig.run("unshare").args("--mount sh -c");
        let bind = bind.arg("mount --bind etc /etc && exec \"$@\"");
        let run = bind.args("sh setpriv").args(NOBODY).args("env -i");
        let run = run.arg(environment).arg(self.path("program"));
        run.arg(self.path("hsmux_pkcs11.so"))
    }

    /// Writes the configuration that root has in `etc`, with a socket.
    fn configure(&self, socket: &Path, module: &str) {
        fs::create_dir_all(self.path("etc/hsmux")).unwrap();
        let text = format!(
            "[pool]\nlabel = \"web\"\n[daemon]\nlogin = \"peer\"\nstate = \"state\"\nsocket = \"{}\"\n\
             [module]\nmode = \"{module}\"\n\
             [[token]]\nname = \"hsm1\"\nmodule = {SOFTHSM:?}\nuri = \"pkcs11:token=hsm1\"\n",
            socket.display()
        );
        fs::write(self.path("etc/hsmux/hsmux.toml"), text).unwrap();
    }

    /// Marks of the attacker's code: the rights that it had.
    fn marks(&self) -> Vec<String> {
        let marks = fs::read_dir(self.path("attacker/marks")).unwrap();
        let names = marks.map(|mark| mark.unwrap().file_name().into_string().unwrap());
        let names = names.collect();
        for name in &names {
            fs::remove_file(self.path("attacker/marks").join(name)).unwrap();
        }
        names
    }

    /// Each way in which the environment leads to the attacker's configuration.
    fn environments(&self) -> [String; 3] {
        let folder = self.path("attacker");
        let folder = folder.display();
        [
            format!("HSMUX_CONFIG={folder}/hsmux.toml"),
            format!("XDG_CONFIG_HOME={folder}/.config"),
            format!("HOME={folder}"),
        ]
    }
}

fn source(file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.join("tests/programs/privileged").join(file)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_environment_brings_no_code_into_a_privileged_program() {
    let attack = Attack::prepare(Setup::Daemon);
    let nobody = fs::metadata(attack.path("attacker")).unwrap();
    let nobody = format!("{}-{}", nobody.uid(), nobody.gid());
    for environment in attack.environments() {
        let start = |mode| {
            let run = attack.program("program", mode).arg(&environment);
            run.arg(attack.path("program"))
                .arg(attack.path("hsmux_pkcs11.so"))
                .finish()
        };
        start(PLAIN);
        assert_eq!(
            attack.marks(),
            std::slice::from_ref(&nobody),
            "{environment}"
        );
        for mode in [SET_UID, SET_GID] {
            let finished = start(mode);
            assert_eq!(attack.marks(), [""; 0], "{environment}: {finished}");
            assert_eq!(finished.code, Some(1), "{finished}");
            assert!(finished.err.contains("/etc/hsmux/hsmux.toml"), "{finished}");
        }
    }
}

#[test]
fn the_environment_brings_no_code_into_openssl_with_the_provider() {
    let attack = Attack::prepare(Setup::Daemon);
    let reference = attack.rig.hsmux("key reference pkcs11:object=rsa").ok();
    fs::write(attack.path("reference.pem"), reference.out).unwrap();
    for environment in attack.environments() {
        let start = |mode| {
            let run = attack.program("openssl", mode).arg(&environment);
            run.arg(attack.path("openssl"))
                .args("pkey -provider-path")
                .arg(attack.path(""))
                .args("-provider default -provider hsmux_pkcs11 -noout -in")
                .arg(attack.path("reference.pem"))
                .finish()
        };
        let finished = start(PLAIN);
        assert_eq!(attack.marks().len(), 1, "{environment}: {finished}");
        for mode in [SET_UID, SET_GID] {
            let finished = start(mode);
            assert_eq!(attack.marks(), [""; 0], "{environment}: {finished}");
        }
    }
}

#[test]
fn a_privileged_program_asks_the_daemon_of_roots_configuration_and_no_other() {
    let mut attack = Attack::prepare(Setup::Daemon);
    attack.rig.start();
    let socket = attack.path("hsmux.sock");
    let to_socket = format!("HSMUX_SOCKET={}", socket.display());
    attack.rig.run("cp").args("-a /etc etc").ok();
    // The environment alone leads nowhere.
    attack.with_own_etc(&to_socket).fails().says("/etc/hsmux");
    attack.configure(&socket, "daemon");
    attack.with_own_etc("HSMUX_CONFIG=").ok().says("token: web");
    let elsewhere = format!("HSMUX_SOCKET={}", attack.path("attacker/socket").display());
    attack.with_own_etc(&elsewhere).ok().says("token: web");
    // Root's own mistakes: the user of the program may change the file, or the way to the socket.
    let file = attack.path("etc/hsmux/hsmux.toml");
    set_mode(&file, 0o666);
    attack.with_own_etc("HOME=/").fails().says("chmod go-w");
    set_mode(&file, 0o644);
    set_mode(&attack.path(""), 0o777);
    attack.with_own_etc("HOME=/").fails();
    set_mode(&attack.path(""), 0o755);
    let nobody = fs::metadata(attack.path("attacker")).unwrap().uid();
    chown(&socket, Some(nobody), None).unwrap();
    attack.with_own_etc("HOME=/").fails();
    chown(&socket, Some(0), None).unwrap();
    attack.with_own_etc("HOME=/").ok().says("token: web");
    attack.configure(&socket, "embedded");
    attack.with_own_etc("HOME=/").fails().says("embedded");
}
