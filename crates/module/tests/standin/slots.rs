//! The slots of a module.

use hsmux_module::slots;

use crate::fixture::StandIn;

/// SoftHSM ends the process when threads list its slots at once (SlotManager.cpp has no lock).
#[test]
fn threads_list_the_slots_one_after_the_other() {
    let standin = StandIn::new("");
    let settings = "slots_alone = true\n[[token]]\nlabel = \"token\"\n";
    std::fs::write(standin.folder.path().join("libtoken.so.toml"), settings).unwrap();
    let module = standin.module();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(slots(&module).unwrap().len(), 1);
                }
            });
        }
    });
}
