//! RSA-OAEP of transport keys with SHA-256. SoftHSM has SHA-1 only, so these tests add SHA-256 to its tokens.

use super::bench::{Bench, Tampered, of_class, pair};
use super::envelopes::{has_key_for, transport_keys_of};
use super::in_own_process;
use crate::channel::oaep;
use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Attributes, Blob, Class, Error, Mechanism, Oaep, ObjectId, ObjectRef, Operation, Outcome,
    Params, Result, Token, Verb,
};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TWO: &[&str] = &["hsm1", "hsm2"];

const HASH_LEN: usize = 32;

/// The successful OAEP operations of a token: the call and the hash (`CKM_*`).
type OaepCalls = Arc<Mutex<Vec<(&'static str, u64)>>>;

/// Returns the recorded operations, sorted and each once, and empties the record.
fn taken(calls: &OaepCalls) -> Vec<(&'static str, u64)> {
    let mut taken = std::mem::take(&mut *calls.lock());
    taken.sort_unstable();
    taken.dedup();
    taken
}

/// Adds OAEP with SHA-256 to a member's token, and records its OAEP operations.
fn add_sha256(bench: &Bench, member: &str) -> OaepCalls {
    let inner = bench.token(member);
    let calls = OaepCalls::default();
    let (token, recorded) = (Arc::clone(&inner), Arc::clone(&calls));
    let tamper = move |operation: &Operation| {
        let result = execute(&*token, operation);
        if let (Ok(_), Some(hash)) = (&result, hash_of(operation)) {
            recorded.lock().push((operation.call(), hash));
        }
        Some(result)
    };
    bench.swap(member, Arc::new(Tampered { inner, tamper }));
    calls
}

fn hash_of(operation: &Operation) -> Option<u64> {
    match &operation.mechanism()?.params {
        Params::Oaep(params) => Some(params.hash),
        _ => None,
    }
}

fn is_sha256(mechanism: &Mechanism) -> bool {
    mechanism.kind == CKM_RSA_PKCS_OAEP && mechanism.params == Params::Oaep(Oaep::sha256())
}

/// Runs an operation on a SoftHSM token. OAEP with SHA-256 is computed here, by SoftHSM's other mechanisms.
fn execute(token: &dyn Token, operation: &Operation) -> Result<Outcome> {
    match operation {
        // A session key: `Wrap` below reads its value.
        Operation::Generate {
            mechanism,
            template,
        } if template.flag(CKA_WRAP) == Some(true) => {
            let readable = Operation::Generate {
                mechanism: mechanism.clone(),
                template: template.clone().with_flag(CKA_SENSITIVE, false),
            };
            run(token, &readable)
        }
        Operation::Wrap {
            wrapping,
            mechanism,
            key,
        } if is_sha256(mechanism) => {
            let public = PublicKey::from_attributes(&read(token, *wrapping)?)?;
            let key = read(token, *key)?;
            let value = key.get(CKA_VALUE).expect("a session key is readable");
            Ok(Outcome::Bytes(public.encrypt(mechanism, value)?.into()))
        }
        Operation::Unwrap {
            unwrapping,
            mechanism,
            wrapped,
            ..
        } if is_sha256(mechanism) => {
            let public = PublicKey::from_attributes(&read(token, *unwrapping)?)?;
            let value = decoded(&decrypted(token, *unwrapping, wrapped)?)
                .ok_or_else(|| Error::vendor("C_UnwrapKey", CKR_WRAPPED_KEY_INVALID))?;
            let wrapped = public.encrypt(&oaep(CKM_SHA_1), &value)?;
            run(token, &by_sha1(operation, wrapped.into()))
        }
        _ => run(token, operation),
    }
}

fn run(token: &dyn Token, operation: &Operation) -> Result<Outcome> {
    token.execute(operation, Instant::now() + Duration::from_secs(120))
}

fn read(token: &dyn Token, object: ObjectRef) -> Result<Attributes> {
    let mut made = run(token, &Operation::Read { object })?.into_objects()?;
    Ok(made.swap_remove(0).object.attributes)
}

/// The same C_UnwrapKey of another wrapped key, with SHA-1.
fn by_sha1(unwrap: &Operation, other: Blob) -> Operation {
    let mut unwrap = unwrap.clone();
    if let Operation::Unwrap {
        mechanism, wrapped, ..
    } = &mut unwrap
    {
        *mechanism = oaep(CKM_SHA_1);
        *wrapped = other;
    }
    unwrap
}

/// The OAEP block of a wrapped key. The transport key has CKA_DECRYPT only during this call.
fn decrypted(token: &dyn Token, key: ObjectRef, wrapped: &Blob) -> Result<Vec<u8>> {
    let set_decrypt = |may| {
        let set = Operation::SetAttributes {
            object: key,
            template: Attributes::default().with_flag(CKA_DECRYPT, may),
        };
        run(token, &set)
    };
    set_decrypt(true)?;
    let decrypt = Operation::Use {
        verb: Verb::Decrypt,
        key,
        mechanism: Mechanism::plain(CKM_RSA_X_509),
        data: wrapped.clone(),
    };
    let number = run(token, &decrypt);
    set_decrypt(false)?;
    let number = number?.into_bytes()?;
    let mut block = vec![0; wrapped.len().saturating_sub(number.len())];
    block.extend_from_slice(&number);
    Ok(block)
}

/// The message of an OAEP block with SHA-256 and no label (RFC 8017, section 7.1.2, step 3).
fn decoded(block: &[u8]) -> Option<Vec<u8>> {
    let (first, masked) = block.split_first()?;
    let (seed, data) = masked.split_at_checked(HASH_LEN)?;
    let (mut seed, mut data) = (seed.to_vec(), data.to_vec());
    mask(&data, &mut seed);
    mask(&seed, &mut data);
    let (label, padded) = data.split_at_checked(HASH_LEN)?;
    let one = padded.iter().position(|byte| *byte != 0)?;
    let is_good = *first == 0 && padded[one] == 1 && *label == Sha256::digest(b"")[..];
    is_good.then(|| padded[one + 1..].to_vec())
}

/// Masks `target` by MGF1 with SHA-256 over `seed` (RFC 8017, appendix B.2.1).
fn mask(seed: &[u8], target: &mut [u8]) {
    for (counter, part) in (0_u32..).zip(target.chunks_mut(HASH_LEN)) {
        let mut hasher = Sha256::new();
        hasher.update(seed);
        hasher.update(counter.to_be_bytes());
        let masks = hasher.finalize();
        part.iter_mut()
            .zip(masks)
            .for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// The hash of a member's pinned transport key.
fn pinned_hash(bench: &Bench, member: &str) -> u64 {
    let serial = bench.token(member).info().serial.clone();
    let pin = bench.coordinator.transport.pin(&serial).unwrap();
    pin.oaep_hash()
}

/// Makes a key pair and returns the name of its private key.
fn make_key(bench: &Bench, label: &str) -> ObjectId {
    of_class(&bench.make(&pair(false, label)), Class::PRIVATE_KEY)
}

/// Lets a member return, and checks that it gets the one change that it has missed.
fn catch_up(bench: &Bench, member: &str) {
    let returned = bench.pool.returns(member);
    let told = bench.coordinator.catch_up(&*bench.pool, &returned).unwrap();
    assert!(told.applied == 1 && told.failed.is_empty(), "{told:?}");
}

#[test]
fn keys_are_wrapped_with_sha256_if_both_tokens_have_it() {
    in_own_process(
        "oaep_hashes::keys_are_wrapped_with_sha256_if_both_tokens_have_it",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 1);
            let [one, two] = [TWO[0], TWO[1]].map(|member| add_sha256(&bench, member));
            make_key(&bench, "enrols");
            for member in TWO {
                assert_eq!(pinned_hash(&bench, member), CKM_SHA256, "{member}");
            }
            // The challenge and the first key.
            assert_eq!(taken(&two), [("C_UnwrapKey", CKM_SHA256)]);
            assert_eq!(bench.everywhere().len(), 2);

            bench.pool.leaves("hsm2");
            taken(&one);
            let made = make_key(&bench, "later");
            let expected = [("C_UnwrapKey", CKM_SHA256), ("C_WrapKey", CKM_SHA256)];
            assert_eq!(taken(&one), expected);
            let transport = transport_keys_of(&*bench.token("hsm2")).remove(0);
            assert!(has_key_for(folder, &transport));
            drop(bench);

            // The pin and the envelope are read from the state folder.
            let bench = Bench::new(folder, TWO, 1);
            let two = add_sha256(&bench, "hsm2");
            assert_eq!(pinned_hash(&bench, "hsm2"), CKM_SHA256);
            catch_up(&bench, "hsm2");
            assert_eq!(taken(&two), [("C_UnwrapKey", CKM_SHA256)]);
            assert!(bench.everywhere().contains(&made));
        },
    );
}

#[test]
fn keys_are_wrapped_with_sha1_if_one_token_has_no_sha256() {
    in_own_process(
        "oaep_hashes::keys_are_wrapped_with_sha1_if_one_token_has_no_sha256",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 1);
            let two = add_sha256(&bench, "hsm2");
            make_key(&bench, "enrols");
            assert_eq!(pinned_hash(&bench, "hsm1"), CKM_SHA_1);
            assert_eq!(pinned_hash(&bench, "hsm2"), CKM_SHA256);

            // The source has no SHA-256.
            bench.pool.leaves("hsm2");
            taken(&two);
            let from_one = make_key(&bench, "from hsm1");
            catch_up(&bench, "hsm2");
            assert_eq!(taken(&two), [("C_UnwrapKey", CKM_SHA_1)]);
            assert_eq!(pinned_hash(&bench, "hsm2"), CKM_SHA256);

            // The target has no SHA-256; the source opens its own envelope with it.
            bench.pool.leaves("hsm1");
            let from_two = make_key(&bench, "from hsm2");
            let expected = [
                ("C_UnwrapKey", CKM_SHA256),
                ("C_WrapKey", CKM_SHA_1),
                ("C_WrapKey", CKM_SHA256),
            ];
            assert_eq!(taken(&two), expected);
            catch_up(&bench, "hsm1");
            let everywhere = bench.everywhere();
            assert!(everywhere.contains(&from_one) && everywhere.contains(&from_two));
        },
    );
}

/// The token takes the parameter for SHA-256, and computes SHA-1.
#[test]
fn a_hash_that_a_token_only_claims_is_not_pinned() {
    in_own_process(
        "oaep_hashes::a_hash_that_a_token_only_claims_is_not_pinned",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 0);
            let inner = bench.token("hsm2");
            let token = Arc::clone(&inner);
            let claimed = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&claimed);
            let tamper = move |operation: &Operation| match operation {
                Operation::Unwrap {
                    mechanism, wrapped, ..
                } if is_sha256(mechanism) => {
                    *counted.lock() += 1;
                    Some(run(&*token, &by_sha1(operation, wrapped.clone())))
                }
                _ => None,
            };
            bench.swap("hsm2", Arc::new(Tampered { inner, tamper }));
            let made = make_key(&bench, "enrols");
            assert_eq!(pinned_hash(&bench, "hsm2"), CKM_SHA_1);
            assert_eq!(*claimed.lock(), 1, "only the challenge has SHA-256");
            assert!(bench.everywhere().contains(&made));
        },
    );
}
