//! Members that fail while others change.

use super::bench::{Tampered, secret};
use super::{Bench, in_own_process};
use hsmux_token::ck::*;
use hsmux_token::{Error, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const TWO: &[&str] = &["hsm1", "hsm2"];

#[test]
fn an_object_of_several_members_is_not_deleted_on_one_alone() {
    let name = "failing_members::an_object_of_several_members_is_not_deleted_on_one_alone";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 1);
        let key = bench.make(&secret(CKM_AES_KEY_GEN, 32, "key"))[0].object.id;
        let inner = bench.token("hsm2");
        let fails = Arc::new(AtomicBool::new(true));
        let switch = Arc::clone(&fails);
        let tamper = move |operation: &Operation| {
            let is_refused =
                matches!(operation, Operation::Read { .. }) && switch.load(Ordering::SeqCst);
            is_refused.then(|| Err(Error::vendor("C_GetAttributeValue", CKR_FUNCTION_REJECTED)))
        };
        bench.swap("hsm2", Arc::new(Tampered { inner, tamper }));
        let object = key.into();
        bench.change(&Operation::Destroy { object }).unwrap_err();
        fails.store(false, Ordering::SeqCst);
        assert_eq!(bench.everywhere(), [key]);
    });
}
