//! Workers of one module, which start in turn, but wait for none that hangs.

use std::sync::mpsc;

use hsmux_pool::Connector;

use crate::rig::*;

#[test]
fn a_start_that_hangs_holds_up_no_other_token_of_its_module() {
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("module.so");
    std::fs::copy(built(), &module).unwrap();
    let state = folder.path().join("state");
    let set = |hangs: bool| {
        let token = |label, hangs| {
            format!(
                "[[token]]\nlabel = '{label}'\nserial = '{label}'\nstate = '{}'\nhang_in_login = {hangs}\n",
                state.display()
            )
        };
        let next = folder.path().join("next");
        std::fs::write(&next, token("m1", hangs) + &token("m2", false)).unwrap();
        std::fs::rename(next, folder.path().join("module.so.toml")).unwrap();
    };
    set(true);
    let [hung, healthy] =
        ["m1", "m2"].map(|label| connector(&module, label, "1234", &state).start_within(LONG));
    std::thread::scope(|scope| {
        let hung = scope.spawn(move || hung.connect().map(drop));
        until("the first one hangs in C_Login", || {
            let log = std::fs::read_to_string(state.join("m1.log"));
            log.is_ok_and(|log| log.contains("C_Login"))
        });
        let (tell, told) = mpsc::channel();
        scope.spawn(move || tell.send(healthy.connect().map(drop)));
        let connected = told.recv_timeout(LONG / 2);
        set(false);
        connected.expect("it has waited for the other one").unwrap();
        hung.join().unwrap().unwrap();
    });
}
