//! A trail in a temporary folder.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hsmux_audit::verify::{FindingKind, TrailVerdict, TrustAnchors, VerificationReport, verify};
use hsmux_audit::{Actor, AuditFolder, Event, OnFailure, Settings, Trail};
use serde_json::{Map, Value};

/// A trail in a temporary folder.
pub struct Rig {
    folder: tempfile::TempDir,
    pub settings: Settings,
}

impl Rig {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            file: folder.path().join("audit.log"),
            state: folder.path().to_owned(),
            uses: true,
            on_failure: OnFailure::Stop,
            checkpoint: Duration::from_secs(3600),
        };
        Self { folder, settings }
    }

    pub fn open(&self) -> Trail {
        Trail::open(&self.settings).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The files that a crash of the machine would leave now.
    pub fn crash(&self) -> Self {
        let copy = Self::new();
        fs::create_dir(copy.path("audit")).unwrap();
        until("the first checkpoint is kept", || {
            let head = AuditFolder::of(&self.settings.state).head().unwrap();
            head.is_some_and(|head| head.seq > 0)
        });
        for name in ["audit.log", "audit/signing.key", "audit/head.json"] {
            fs::copy(self.path(name), copy.path(name)).unwrap();
        }
        let kept = fs::read_to_string(self.path("audit/head.json")).unwrap();
        let folder = |rig: &Self| rig.folder.path().display().to_string();
        let kept = kept.replace(&folder(self), &folder(&copy));
        fs::write(copy.path("audit/head.json"), kept).unwrap();
        copy
    }

    pub fn known(&self) -> TrustAnchors {
        let folder = AuditFolder::of(&self.settings.state);
        TrustAnchors {
            keys: vec![folder.public_key().unwrap()],
            seal: Some(folder.seal_key().unwrap()),
            head: folder.head().unwrap(),
            running: false,
        }
    }

    pub fn verify(&self, names: &[&str]) -> VerificationReport {
        let files: Vec<_> = names.iter().map(|name| self.path(name)).collect();
        verify(&files, self.known(), &|_| ()).unwrap()
    }

    pub fn lines(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole
            .map(|line| serde_json::from_str(line).unwrap_or_default())
            .collect()
    }
}

pub fn actor() -> Arc<Actor> {
    Arc::new(Actor::process(7, 42, "a \"program\""))
}

pub fn key_use(label: &str) -> Event {
    Event::key_use(&actor(), "C_Sign", "00ff")
        .label(Some(label.into()))
        .took(12)
}

pub fn act(name: &str) -> Event {
    let mut fields = Map::new();
    fields.insert("token".into(), "hsm1".into());
    fields.insert("seq".into(), "not the line's own".into());
    Event::act(&actor(), name, fields)
}

#[track_caller]
pub fn until(what: &str, reached: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !reached() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
pub fn is_whole(report: &VerificationReport) {
    assert_eq!(report.verdict, TrailVerdict::Whole, "{report}");
}

pub fn remarks(report: &VerificationReport) -> Vec<FindingKind> {
    assert_eq!(report.verdict, TrailVerdict::Remarks, "{report}");
    report.remarks.iter().map(|remark| remark.kind).collect()
}
