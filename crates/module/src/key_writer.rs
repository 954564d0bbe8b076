//! Creates and deletes keys like another program, to measure the effect on users of the token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Mechanism, Result};

use crate::library::Handle;
use crate::sessions::Purpose;
use crate::{ModuleToken, Options};

/// How long one key may take.
const KEY_TIMEOUT: Duration = Duration::from_secs(60);

/// A program that only writes keys: unlike other tools it neither searches nor reads attributes.
pub struct KeyWriter {
    token: Arc<ModuleToken>,
    made: Vec<Handle>,
    last: u64,
}

impl KeyWriter {
    /// Opens the token and logs in.
    pub fn open(options: Options) -> Result<Self> {
        Ok(Self {
            token: ModuleToken::open(options)?,
            made: Vec::new(),
            last: 0,
        })
    }

    /// Creates an AES-256 key with this label and a CKA_ID of its own (C_GenerateKey).
    pub fn add(&mut self, label: &str) -> Result<()> {
        self.last += 1;
        let template = Attributes::default()
            .with_number(CKA_CLASS, CKO_SECRET_KEY)
            .with_number(CKA_KEY_TYPE, CKK_AES)
            .with_flag(CKA_TOKEN, true)
            .with_flag(CKA_PRIVATE, true)
            .with_flag(CKA_SENSITIVE, true)
            .with_flag(CKA_EXTRACTABLE, false)
            .with_flag(CKA_ENCRYPT, true)
            .with_flag(CKA_DECRYPT, true)
            .with(CKA_LABEL, label.as_bytes().to_vec())
            .with(CKA_ID, self.last.to_be_bytes().to_vec())
            .with_number(CKA_VALUE_LEN, 32);
        let sessions = &self.token.sessions;
        let lease = sessions.lease(Purpose::Work, Instant::now() + KEY_TIMEOUT)?;
        let how = Mechanism::plain(CKM_AES_KEY_GEN);
        let key = sessions
            .library()
            .generate(lease.session(), &how, &template)?;
        self.made.push(key);
        Ok(())
    }

    /// Deletes the key that it created last (C_DestroyObject); returns whether there was one.
    pub fn remove(&mut self) -> Result<bool> {
        let Some(key) = self.made.pop() else {
            return Ok(false);
        };
        let sessions = &self.token.sessions;
        let lease = sessions.lease(Purpose::Work, Instant::now() + KEY_TIMEOUT)?;
        sessions.library().destroy(lease.session(), key)?;
        Ok(true)
    }
}
