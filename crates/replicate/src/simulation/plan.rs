//! What a seed decides beforehand: the tokens, and how much goes wrong.

use hsmux_token::fake::Random;

pub(super) struct SeedPlan {
    pub tokens: Vec<TokenPlan>,
    /// `[pool] replicas`.
    pub replicas: usize,
    /// One of so many operations of tokens fails.
    pub failures: u64,
    /// The daemon dies at one of so many steps.
    pub deaths: u64,
    /// One of so many lines of the journal cannot be written.
    pub unwritable: u64,
    /// One of so many actions has a member go away.
    pub absences: u64,
    /// One of so many actions initialises a token anew, or puts another one in its place.
    pub replacements: u64,
    /// One of so many actions takes longer than wrapped keys are kept.
    pub leaps: u64,
    /// Actions before everything recovers.
    pub actions: u64,
}

#[derive(Clone)]
pub(super) struct TokenPlan {
    /// It says CKA_CHECK_VALUE of a key that it has unwrapped, and does not let it be set.
    pub gives_check_values: bool,
    /// It knows CKA_PUBLIC_KEY_INFO.
    pub knows_public_key_info: bool,
    /// It has CKM_SHA256_RSA_PKCS.
    pub hashes: bool,
}

impl SeedPlan {
    pub fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed ^ 0x5eed);
        let members = 2 + random.below(4);
        let tokens = (0..members).map(|_| TokenPlan {
            gives_check_values: random.one_in(2),
            knows_public_key_info: random.one_in(2),
            hashes: random.one_in(2),
        });
        Self {
            tokens: tokens.collect(),
            replicas: *random.pick(&[0, 1, 2, members as usize]),
            failures: *random.pick(&[0, 30, 100, 400]),
            deaths: *random.pick(&[0, 100, 400, 2000]),
            unwritable: *random.pick(&[0, 0, 30, 200]),
            absences: *random.pick(&[0, 5, 20]),
            replacements: *random.pick(&[0, 0, 40]),
            leaps: *random.pick(&[0, 0, 60]),
            actions: *random.pick(&[5, 20, 60]),
        }
    }
}
