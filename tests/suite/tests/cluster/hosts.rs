//! Hosts that are lost, and a cluster that is.

use std::fs;
use std::os::unix::fs::symlink;

use hsmux_suite::{Process, Run};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::rig::{Cluster, script};

/// What fails, and how much of it may, is said in `scripts/cluster/faults.sh`.
#[test]
fn hosts_die_are_cut_off_and_return_under_load() {
    let cluster = Cluster::new();
    let done = cluster.script("faults").ok();
    for said in [
        "host2 ends: 30 new requests, all answered",
        "host2 is dead: 30 new requests, all answered",
        "host2 is cut off: 30 new requests, all answered",
        "host2 itself goes on serving",
        "haproxy is reloaded: 30 new requests, all answered",
        "No request that began after a fault has failed",
    ] {
        done.says(said);
    }
    cluster.is_gone();
}

#[test]
fn an_interrupted_cluster_leaves_nothing_behind() {
    let cluster = Cluster::new();
    let run = cluster.run("echo the command runs; sleep infinity");
    let mut script = Process::start("script", cluster.0.path(), run);
    script.wait_for("the command runs");
    script.signal(Signal::TERM);
    assert_eq!(script.wait().code(), Some(130));
    fs::remove_file(cluster.0.path().join("script.log")).unwrap();
    cluster.is_gone();
}

/// Its folder is left then: there is nobody who could take it away.
#[test]
fn a_killed_cluster_leaves_no_process_behind() {
    let cluster = Cluster::new();
    let run = cluster.run("echo the command runs; sleep infinity");
    let mut script = Process::start("script", cluster.0.path(), run);
    script.wait_for("the command runs");
    script.kill();
    cluster.has_ended();
}

#[test]
fn a_cluster_that_fails_says_so_and_keeps_its_logs() {
    let cluster = Cluster::new();
    let done = cluster.run("exit 7").fails();
    assert_eq!(done.code, Some(7), "{done}");
    done.says("the cluster has failed");
    assert!(cluster.reports().join("host1.log").exists());
    cluster.is_gone();
}

#[test]
fn whoever_is_not_root_is_told() {
    // In a user namespace without a mapping everybody is nobody.
    let unshare = Run::new("unshare").arg("--user").arg(script());
    unshare.fails().says("run it as root");
}

#[test]
fn what_is_missing_is_named() {
    let cluster = Cluster::new();
    let few = TempDir::new().unwrap();
    for program in ["bash", "env", "dirname", "realpath", "id"] {
        symlink(format!("/usr/bin/{program}"), few.path().join(program)).unwrap();
    }
    let run = cluster.script("faults").env("PATH", few.path());
    run.fails()
        .says("missing")
        .says("socat")
        .says("deps.sh cluster");
}
