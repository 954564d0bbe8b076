//! nginx in front of two gateways, as `hsmux haproxy config --nginx` configures it.

use std::fs;

use hsmux_suite::{PATIENCE, Process, until};

use crate::balancer::{CALLERS, Cluster, config};
use crate::rig::Gateway;

/// nginx keeps Debian's prefix, which has the modules. So paths of the rig are absolute, except that of the file
/// beside.
fn on_port(port: u16, hosts: &[Gateway; 2]) -> Process {
    let rig = &hosts[0].rig;
    config(port, hosts, "--nginx --out stream.conf").ok();
    let main = rig.path("nginx.conf");
    let pid = rig.path("nginx.pid");
    let text = format!(
        "include /etc/nginx/modules-enabled/*.conf;\n\
         user www-data; daemon off; error_log stderr warn; pid {};\n\
         events {{}}\ninclude stream.conf;\n",
        pid.display()
    );
    fs::write(&main, text).expect("write nginx.conf");
    let run = rig.family(&["nginx", "-e", "stderr", "-c"]).arg(&main);
    Process::start("nginx", &rig.path(""), run)
}

#[test]
fn a_stopped_host_is_skipped() {
    let mut cluster = Cluster::behind("nginx", on_port);
    let load = cluster.load();
    cluster.serves(0);
    cluster.serves(1);
    cluster.hosts[0].rig.stop();
    load.goes_on(20);
    // nginx does not check /health. Requests that come while the host closes its socket are lost, at most one per
    // client.
    load.at_most_failed(CALLERS);
    let load = cluster.load();
    // It tries the host again and again, but no client notices.
    let tried = || {
        let log = cluster.front.log();
        log.matches("upstream server temporarily disabled").count()
    };
    let before = tried();
    until("it is tried again", PATIENCE, || {
        (tried() > before + 1).then_some(())
    });
    load.none_failed();
}

#[test]
fn a_killed_host_is_skipped() {
    let mut cluster = Cluster::behind("nginx", on_port);
    cluster.hosts[0].rig.kill_to_the_last();
    let load = cluster.load();
    cluster
        .front
        .wait_for("upstream server temporarily disabled");
    load.goes_on(40);
    load.none_failed();
}
