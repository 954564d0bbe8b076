//! Gateways behind haproxy that are stopped, killed and started again, one after the other, while clients come.

use hsmux_suite::{PATIENCE, Rig, until};

use crate::backends::Port;
use crate::balancer::{Cluster, on_port};
use crate::crowd::Crowd;
use crate::rig::{BOTH, FOLDER, Gateway};

/// Clients that connect for each request, and clients that keep their connection. Each has one request under way.
const CLIENTS: [usize; 2] = [6, 2];

/// Two gateways with this line that come back on their ports, of which nobody else is given one as long as these are
/// there.
fn cluster(line: &str) -> (Cluster, [[Port; 2]; 2]) {
    let ports = [(); 2].map(|()| [Port::taken(), Port::taken()]);
    let host = |[tls, health]: &[Port; 2]| {
        let mut rig = Gateway::prepare();
        rig.config.module = format!(
            "\n[gateway]\nlisten = [{:?}]\nmetrics = {:?}\nproxy_protocol = true\n{line}\n[[site]]\n{BOTH}\n{FOLDER}\n",
            tls.address, health.address
        );
        Gateway::start_by(rig, Rig::start)
    };
    let hosts = [host(&ports[0]), host(&ports[1])];
    (Cluster::before(hosts, "haproxy", on_port), ports)
}

impl Cluster {
    fn crowd(&self) -> Crowd {
        let [once, kept] = CLIENTS;
        Crowd::start(self.port, once, kept)
    }

    /// Starts a host that has ended, and waits until haproxy gives it clients.
    fn comes_back(&mut self, host: usize) {
        self.hosts[host].rig.start();
        until("the gateway serves again", PATIENCE, || {
            self.hosts[host].health().contains(" 200 ").then_some(())
        });
        self.serves(host);
    }
}

/// By default, and where haproxy learns of the end by connections that are refused.
#[test]
fn no_request_is_lost_while_gateways_are_stopped_and_started() {
    for line in ["", "leave_time = \"0s\""] {
        stop_and_start(line);
    }
}

fn stop_and_start(line: &str) {
    let (mut cluster, _ports) = cluster(line);
    for host in [0, 1] {
        let crowd = cluster.crowd();
        cluster.serves(host);
        cluster.hosts[host].rig.stop();
        crowd.goes_on(100);
        cluster.comes_back(host);
        crowd.at_most_failed(0);
    }
}

#[test]
fn only_requests_under_way_are_lost_where_a_gateway_is_killed() {
    let (mut cluster, _ports) = cluster("");
    for host in [0, 1] {
        let crowd = cluster.crowd();
        cluster.serves(host);
        cluster.hosts[host].rig.kill_to_the_last();
        crowd.goes_on(100);
        cluster.comes_back(host);
        crowd.at_most_failed(CLIENTS.iter().sum());
    }
}
