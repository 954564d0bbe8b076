//! The installed units, under a systemd of their own.

use hsmux_suite::{Finished, PATIENCE, Process, Program, Run, built, source, until};
use tempfile::TempDir;

/// A machine without a network, in namespaces. What happens on it stays there.
struct Machine {
    systemd: Process,
    _folder: TempDir,
}

impl Machine {
    fn boot() -> Self {
        let folder = TempDir::new().expect("a folder");
        let here = source();
        let boot = Run::new(here.join("tests/suite/tests/commands/boot-systemd.sh"))
            .arg(here)
            .arg(built(Program::Hsmux).parent().expect("a folder"));
        let machine = Self {
            systemd: Process::start("systemd", folder.path(), boot),
            _folder: folder,
        };
        until("it has booted", PATIENCE, || {
            let first = machine.systemd.children();
            let active = !first.is_empty() && machine.does("systemctl is-active basic.target");
            active.then_some(())
        });
        machine
    }

    /// A script for its shell, as root.
    fn script(&self, script: &str) -> Run {
        let first = self.systemd.children()[0].to_string();
        let inside = Run::new("nsenter").args("--mount --net --pid --uts --ipc --cgroup --target");
        let inside = inside.arg(first).args("-- env -i HOME=/root");
        inside
            .arg("PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .args("bash -euc")
            .arg(format!("cd /root; {script}"))
    }

    #[track_caller]
    fn ok(&self, script: &str) -> Finished {
        self.script(script).ok()
    }

    fn does(&self, script: &str) -> bool {
        self.script(script).finish().code == Some(0)
    }

    #[track_caller]
    fn until(&self, script: &str) {
        until(script, PATIENCE, || self.does(script).then_some(()));
    }
}

/// A token of the user hsmux, whose PIN only systemd can read, and a site whose key is in it.
const SET_UP: &str = r#"
systemctl daemon-reload
export SOFTHSM2_CONF=/etc/hsmux/softhsm2.conf
install -d /etc/hsmux /srv/www
install -d -o hsmux -g hsmux -m 700 /var/lib/hsmux /var/lib/hsmux/tokens
printf 'directories.tokendir = /var/lib/hsmux/tokens\nlog.level = ERROR\n' > $SOFTHSM2_CONF
(umask 077; for secret in hsm1 so pool; do openssl rand -hex 8 > $secret.pin; done)
softhsm2-util --init-token --free --label hsm1 --pin "$(cat hsm1.pin)" --so-pin "$(cat so.pin)"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -out /etc/hsmux/site.pem
openssl pkcs8 -topk8 -nocrypt -in key.pem -out key.pkcs8
softhsm2-util --import key.pkcs8 --token hsm1 --label web --id 01 --pin "$(cat hsm1.pin)"
chown -R hsmux:hsmux /var/lib/hsmux
install -m 600 hsm1.pin /etc/hsmux
install -o hsmux -m 600 pool.pin /var/lib/hsmux
echo hello > /srv/www/page.txt
cat > /etc/hsmux/hsmux.toml <<END
[pool]
label = "web"

[daemon]
socket = "/run/hsmux/hsmux.sock"
state = "/var/lib/hsmux"
pin = { file = "/var/lib/hsmux/pool.pin" }

[gateway]
started_by = "systemd"
user = "hsmux-gateway"
listen = ["127.0.0.1:443"]
leave_time = "1s"

[[site]]
certificates = ["/etc/hsmux/site.pem"]
root = "/srv/www"

[broker]
started_by = "systemd"
user = "hsmux-broker"
listen = ["127.0.0.1:8200"]
store = "/var/lib/hsmux-broker/broker.sqlite"

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]

[[token]]
module = "/usr/lib/softhsm/libsofthsm2.so"
uri = "pkcs11:token=hsm1"
pin = { credential = "hsm1" }
env = { SOFTHSM2_CONF = "/etc/hsmux/softhsm2.conf" }
END
install -d /etc/systemd/system/hsmux.service.d
printf '[Service]\nLoadCredential=hsm1:/etc/hsmux/hsm1.pin\n' > /etc/systemd/system/hsmux.service.d/pin.conf
systemctl daemon-reload
"#;

const PAGE: &str =
    "curl --silent --fail --cacert /etc/hsmux/site.pem https://localhost/page.txt | grep -x hello";

#[test]
fn the_units_serve_and_restart_each_other() {
    let machine = Machine::boot();
    let built = built(Program::Hsmux);
    let built = built.parent().expect("a folder").display();
    let install = source().join("scripts/install.sh");
    machine.ok(&format!("BUILT={built} {}", install.display()));
    machine.ok(SET_UP);

    // `systemctl start` returns when the daemon serves.
    machine.ok("systemctl start hsmux; hsmux status");
    machine.ok("systemctl enable --now hsmux-gateway hsmux-broker");
    machine.until("hsmux status --check");
    machine.until(PAGE);
    let pin = "PIN=$(cat pool.pin) pkcs11-tool --module /usr/local/lib/libhsmux_pkcs11.so --login --pin env:PIN";
    machine
        .ok(&format!("{pin} --list-objects --type privkey"))
        .says("label:      web");

    for service in ["gateway", "broker"] {
        let user = format!("hsmux-{service}");
        machine
            .ok(&format!(
                "ps -o user:20= -p $(systemctl show -P MainPID {user})"
            ))
            .says(&user);
        for secret in ["/etc/hsmux/hsm1.pin", "/var/lib/hsmux/pool.pin"] {
            let read = format!("setpriv --reuid {user} --regid {user} --clear-groups cat {secret}");
            machine.script(&read).fails().says("Permission denied");
        }
    }

    // The gateway's program is replaced while clients come.
    machine
        .ok(&format!(
            "systemctl restart hsmux-gateway & restarted=$!; failed=0; \
             while kill -0 $restarted 2>&-; do {PAGE} || failed=$((failed + 1)); done; {PAGE}; \
             wait $restarted; echo $failed failed"
        ))
        .says("\n0 failed");

    machine.ok("systemctl kill --signal KILL --kill-who main hsmux");
    machine.until(&format!("hsmux status --check && {PAGE}"));

    machine.ok("echo typo = 1 >> /etc/hsmux/hsmux.toml; systemctl reload hsmux");
    machine.until("hsmux status | grep -F 'unknown key \"typo\"'");
    machine.ok(PAGE);

    machine.ok("systemctl stop hsmux");
    machine.script("pgrep --list-full hsmux").fails();
    machine
        .ok("systemctl list-units --failed")
        .says("0 loaded units listed");
}
