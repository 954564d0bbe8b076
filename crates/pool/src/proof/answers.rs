//! Recorded answers of secret keys. A copy proves itself by them while no other copy serves, also after a restart.
//!
//! A question is random, and its answer (an encrypted block or a MAC) reveals nothing of the key. The answers are in a
//! file of lines in the state folder. If it is lost, keys wait again for the members that come before theirs.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use hsmux_token::{Blob, Class, NameMap, ObjectId, Operation};
use serde::{Deserialize, Serialize};

use hsmux_state::json::{Cbor, Name};

use crate::clock::Mutex;

/// The most keys with answers. Others wait for the members before theirs.
const MOST: usize = 50_000;

/// The most bytes that are read of a damaged file. All answers take half of it.
const LONGEST: u64 = 64 << 20;

/// The file is written again when this many lines are obsolete, and half of all are.
const USELESS: usize = 1_000;

/// All recorded answers.
#[derive(Default)]
pub(crate) struct Answers {
    /// Without a file the answers live as long as the pool.
    file: Option<PathBuf>,
    state: Mutex<AnswersState>,
}

#[derive(Default)]
struct AnswersState {
    known: NameMap<ObjectId, ProofAnswer>,
    lines: usize,
    /// It was logged that the file cannot be written.
    told: bool,
}

/// A question to a key, and its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProofAnswer {
    question: Cbor<Operation>,
    answer: Cbor<Blob>,
}

/// A line of the file. Without an answer it says that the key is gone.
#[derive(Serialize, Deserialize)]
struct AnswerLine {
    key: Name,
    #[serde(flatten)]
    answer: Option<ProofAnswer>,
}

impl ProofAnswer {
    /// An answer to a question that the key always answers in the same way.
    pub fn new(question: Operation, answer: impl Into<Blob>) -> Self {
        Self {
            question: Cbor(question),
            answer: Cbor(answer.into()),
        }
    }

    /// The question for a copy of the key.
    pub fn question(&self) -> &Operation {
        &self.question.0
    }

    /// The answer of the key.
    pub fn expected(&self) -> &[u8] {
        &self.answer.0
    }
}

impl Answers {
    /// The answers of a file. The file need not exist. New answers are written to it.
    pub fn of_file(file: PathBuf) -> Self {
        let state = read(&file).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(file = %file.display(), %error, "what secret keys have answered is not known");
            }
            AnswersState::default()
        });
        Self {
            file: Some(file),
            state: Mutex::new(state),
        }
    }

    pub(super) fn of(&self, key: &ObjectId) -> Option<ProofAnswer> {
        self.state.lock().known.get(key).cloned()
    }

    pub(super) fn has(&self, key: &ObjectId) -> bool {
        self.state.lock().known.contains_key(key)
    }

    /// The first answer stays.
    pub(super) fn learn(&self, key: &ObjectId, answer: ProofAnswer) {
        let mut state = self.state.lock();
        if state.known.contains_key(key) || state.known.len() >= MOST {
            return;
        }
        state.known.insert(*key, answer.clone());
        self.write(&mut state, key, Some(answer));
    }

    /// Keys that were deleted.
    pub fn forget(&self, keys: &[ObjectId]) {
        let secret = |key: &&ObjectId| key.class == Class::SECRET_KEY;
        for key in keys.iter().filter(secret) {
            let mut state = self.state.lock();
            if state.known.remove(key).is_some() {
                self.write(&mut state, key, None);
            }
        }
    }

    fn write(&self, state: &mut AnswersState, key: &ObjectId, answer: Option<ProofAnswer>) {
        let Some(file) = &self.file else { return };
        state.lines += 1;
        let useless = state.lines - state.known.len().min(state.lines);
        let written = if useless > USELESS && useless > state.known.len() {
            replace(file, state)
        } else {
            append(file, *key, answer)
        };
        if let Err(error) = written
            && !std::mem::replace(&mut state.told, true)
        {
            let error = hsmux_state::failed("write", file, &error);
            tracing::warn!(%error, "what secret keys have answered is forgotten at the end");
        }
    }
}

fn line(key: ObjectId, answer: Option<ProofAnswer>) -> Vec<u8> {
    let key = Name(key);
    let mut line = serde_json::to_vec(&AnswerLine { key, answer }).unwrap_or_default();
    line.push(b'\n');
    line
}

fn append(file: &Path, key: ObjectId, answer: Option<ProofAnswer>) -> io::Result<()> {
    let mut opened = hsmux_state::open_private(file)?;
    opened.seek(SeekFrom::End(0))?;
    opened.write_all(&line(key, answer))
}

fn replace(file: &Path, state: &mut AnswersState) -> io::Result<()> {
    let known = state.known.iter();
    let lines: Vec<_> = known
        .map(|(key, answer)| line(*key, Some(answer.clone())))
        .collect();
    state.lines = lines.len();
    hsmux_state::replace(file, &lines.concat(), 0o600)
}

/// Skips lines that cannot be read: a crash may have torn one.
fn read(file: &Path) -> io::Result<AnswersState> {
    let mut state = AnswersState::default();
    let file = BufReader::new(std::fs::File::open(file)?.take(LONGEST));
    for line in file.split(b'\n') {
        state.lines += 1;
        match serde_json::from_slice(&line?) {
            Ok(AnswerLine { key, answer: None }) => {
                state.known.remove(&key.0);
            }
            Ok(AnswerLine {
                key,
                answer: Some(answer),
            }) if state.known.len() < MOST => {
                state.known.insert(key.0, answer);
            }
            _ => {}
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use hsmux_token::{Mechanism, Verb, ck};

    fn key(number: u64) -> ObjectId {
        ObjectId::of_secret_key(ck::CKK_AES, &number.to_be_bytes(), b"kcv")
    }

    fn answer(text: &'static [u8]) -> ProofAnswer {
        let question = Operation::Use {
            verb: Verb::Encrypt,
            key: key(0).into(),
            mechanism: Mechanism::with_bytes(ck::CKM_AES_CBC, vec![1; 16]),
            data: vec![7; 32].into(),
        };
        ProofAnswer::new(question, text.to_vec())
    }

    #[test]
    fn they_are_read_again_without_those_of_deleted_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("answers");
        let answers = Answers::of_file(file.clone());
        for number in 0..3 {
            answers.learn(&key(number), answer(b"said"));
        }
        answers.learn(&key(1), answer(b"another"));
        answers.forget(&[key(2), key(9)]);
        // As a crash leaves it.
        let mut torn = std::fs::OpenOptions::new()
            .append(true)
            .open(&file)
            .unwrap();
        torn.write_all(b"{\"key\":\"4:00").unwrap();
        let again = Answers::of_file(file);
        for number in 0..2 {
            let known = again.of(&key(number)).unwrap();
            assert_eq!(known.expected(), b"said", "the first stays");
            let Operation::Use { mechanism, .. } = known.question() else {
                panic!("{known:?}");
            };
            assert_eq!(
                *mechanism,
                Mechanism::with_bytes(ck::CKM_AES_CBC, vec![1; 16])
            );
        }
        assert!(!again.has(&key(2)));
    }

    #[test]
    fn the_file_stays_short_however_many_keys_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("answers");
        let answers = Answers::of_file(file.clone());
        answers.learn(&key(0), answer(b"it stays"));
        for number in 1..=2 * USELESS as u64 {
            answers.learn(&key(number), answer(b""));
            answers.forget(&[key(number)]);
        }
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines < USELESS + 10, "{lines} lines");
        assert!(Answers::of_file(file).has(&key(0)));
    }

    #[test]
    fn no_more_than_64_mib_of_the_file_are_read() {
        const END: u64 = 64 << 20;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("answers");
        let sparse = std::fs::File::create(&file).unwrap();
        // Short lines: each is in memory as a whole.
        for mib in 1..64 {
            sparse.write_all_at(b"\n", mib << 20).unwrap();
        }
        let [last, after] = [1, 2].map(|number| line(key(number), Some(answer(b"said"))));
        let before = END - last.len() as u64 - 1;
        let lines = [b"\n", &*last, &after].concat();
        sparse.write_all_at(&lines, before).unwrap();
        let answers = Answers::of_file(file);
        assert!(answers.has(&key(1)) && !answers.has(&key(2)));
    }

    #[test]
    fn without_a_file_they_are_known_all_the_same() {
        let answers = Answers::default();
        answers.learn(&key(1), answer(b"x"));
        assert_eq!(answers.of(&key(1)).unwrap().expected(), b"x");
    }
}
