//! The operations of a session, as the C_ functions ask for them.

use hsmux_token::Mechanism;
use hsmux_token::ck::*;

use super::function::Function;
use super::operation::ActiveOperation;
use crate::app::App;
use crate::entry::Output;
use crate::rv::{Result, Rv};
use crate::session::SessionState;

impl SessionState {
    /// Starts an operation; one of each function may be under way.
    pub fn begin(&mut self, active: ActiveOperation) -> Result {
        if self.place(active.function).is_ok() {
            return Err(Rv(CKR_OPERATION_ACTIVE));
        }
        self.active.push(active);
        Ok(())
    }

    /// Ends an operation, if it is under way.
    pub fn end(&mut self, function: Function) -> Result {
        let at = self.place(function)?;
        self.active.swap_remove(at);
        Ok(())
    }

    /// Does a step; what is left of the operation afterwards is decided by `goes_on`.
    fn step<T>(
        &mut self,
        function: Function,
        step: impl FnOnce(&mut ActiveOperation) -> Result<T>,
        goes_on: impl FnOnce(&Result<T>) -> bool,
    ) -> Result<T> {
        let at = self.place(function)?;
        let result = step(&mut self.active[at]);
        let too_small = matches!(result, Err(Rv(CKR_BUFFER_TOO_SMALL)));
        if !too_small && !goes_on(&result) {
            self.active.swap_remove(at);
        }
        result
    }

    fn place(&self, function: Function) -> Result<usize> {
        self.active
            .iter()
            .position(|active| active.function == function)
            .ok_or(Rv(CKR_OPERATION_NOT_INITIALIZED))
    }
}

impl App {
    /// C_DigestInit, C_SignInit and their like; without a mechanism they end what is under way
    /// (PKCS#11 3.0, section 5.10).
    pub fn begin(
        &self,
        session: u64,
        function: Function,
        mechanism: Option<Mechanism>,
        key: u64,
    ) -> Result {
        let session = self.sessions.get(session)?;
        let mut state = session.state();
        let Some(mechanism) = mechanism else {
            return state.end(function).map_err(|_| Rv(CKR_ARGUMENTS_BAD));
        };
        if function == Function::Digest {
            return state.begin(ActiveOperation::digest(mechanism)?);
        }
        let key = self.key(key)?;
        let catalogue = self.objects.catalogue();
        let active = ActiveOperation::keyed(function, mechanism, key, &catalogue.mechanisms)?;
        self.init_checks.check(&active, &*self.backend)?;
        state.begin(active)
    }

    /// C_Sign and its like.
    pub fn whole(&self, session: u64, function: Function, data: &[u8], out: &mut Output) -> Result {
        let session = self.sessions.get(session)?;
        let is_query = out.is_query();
        session.state().step(
            function,
            |active| active.whole(self, data, out),
            |result| is_query && result.is_ok(),
        )
    }

    /// C_SignUpdate and its like.
    pub fn feed(&self, session: u64, function: Function, part: &[u8]) -> Result {
        let session = self.sessions.get(session)?;
        session
            .state()
            .step(function, |active| active.feed(part), Result::is_ok)
    }

    /// C_EncryptUpdate and C_DecryptUpdate.
    pub fn update(
        &self,
        session: u64,
        function: Function,
        part: &[u8],
        out: &mut Output,
    ) -> Result {
        let session = self.sessions.get(session)?;
        session.state().step(
            function,
            |active| active.update(self, part, out, |_| Ok(())),
            Result::is_ok,
        )
    }

    /// C_SignFinal and its like.
    pub fn finish(&self, session: u64, function: Function, out: &mut Output) -> Result {
        let session = self.sessions.get(session)?;
        let is_query = out.is_query();
        session.state().step(
            function,
            |active| active.finish(self, out),
            |result| is_query && result.is_ok(),
        )
    }

    /// C_Verify, or C_VerifyFinal without data.
    pub fn verify(&self, session: u64, data: Option<&[u8]>, signature: &[u8]) -> Result {
        let session = self.sessions.get(session)?;
        session.state().step(
            Function::Verify,
            |active| active.verify(self, data, signature),
            |_| false,
        )
    }

    /// C_DigestEncryptUpdate, C_DecryptDigestUpdate, C_SignEncryptUpdate, C_DecryptVerifyUpdate: the
    /// `other` operation gets the plain text.
    pub fn dual(
        &self,
        session: u64,
        cipher: Function,
        other: Function,
        part: &[u8],
        out: &mut Output,
    ) -> Result {
        let session = self.sessions.get(session)?;
        let mut state = session.state();
        let at = state.place(other)?;
        // Taken out during the step: both operations are of one session.
        let mut second = state.active.swap_remove(at);
        let result = state.step(
            cipher,
            |active| {
                active.in_parts()?;
                active.update(self, part, out, |answer| match cipher {
                    Function::Decrypt => second.feed(answer),
                    _ => second.feed(part),
                })
            },
            Result::is_ok,
        );
        state.active.push(second);
        result
    }

    /// C_DigestKey: only of what may be read anyway.
    pub fn digest_key(&self, session: u64, key: u64) -> Result {
        let entry = self.key(key)?;
        let value = entry.attributes.get(CKA_VALUE);
        let value = value.filter(|_| entry.class == hsmux_token::Class::SECRET_KEY);
        self.sessions.get(session)?.state().step(
            Function::Digest,
            |active| active.feed(value.ok_or(Rv(CKR_KEY_INDIGESTIBLE))?),
            |_| true,
        )
    }

    /// C_SessionCancel: ends what the flags name.
    pub fn cancel(&self, session: u64, flags: CK_FLAGS) -> Result {
        let session = self.sessions.get(session)?;
        let mut state = session.state();
        state
            .active
            .retain(|active| flags & active.function.flag() == 0);
        if flags & CKF_FIND_OBJECTS != 0 {
            state.search = None;
        }
        Ok(())
    }
}
