//! The Go API clients of Vault and OpenBao.

use crate::rig::{Broker, fetched};

#[test]
fn the_go_clients_run_a_whole_session() {
    let program = fetched("go");
    let broker = Broker::start(2);
    let run = broker.rig.run(program).arg(&broker.url).arg(&broker.token);
    let done = run.ok();
    done.says("vault: a whole session")
        .says("openbao: a whole session");
}
