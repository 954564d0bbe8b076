use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::{PATIENCE, Run, until};

/// A program at a pseudo-terminal, with scripted answers.
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
    /// The length of the part that was answered.
    answered: usize,
}

impl Terminal {
    /// Starts a program with a terminal for input and output. The terminal reports no width.
    pub fn start(run: Run) -> Self {
        Self::with_columns(run, 0)
    }

    /// The same with a terminal of this width.
    pub fn with_columns(run: Run, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let main = openpt(flags).expect("a pseudo-terminal");
        grantpt(&main)
            .and_then(|()| unlockpt(&main))
            .expect("unlock it");
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&main, size).expect("set its size");
        let far = File::from(ioctl_tiocgptpeer(&main, flags).expect("its other side"));
        let share = || far.try_clone().expect("share the terminal");
        let mut command = run.into_command();
        command.stdin(share()).stdout(share()).stderr(share());
        let child = command.spawn().expect("start a program");
        // Drops the last local copies, so that the output ends with the program.
        drop((command, far));
        let keyboard = File::from(main);
        let mut output = keyboard.try_clone().expect("share the terminal");
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            keyboard,
            screen,
            seen: String::new(),
            answered: 0,
        }
    }

    /// Waits for a question with a hidden answer, and types it. The program turns the echo off after its question
    /// and discards earlier input (`TCSAFLUSH`), so the answer is typed only after that.
    #[track_caller]
    pub fn answer_hidden(&mut self, question: &str, line: &str) -> &mut Self {
        self.wait_for(question);
        until("the echo is turned off", PATIENCE, || {
            let modes = tcgetattr(&self.keyboard).expect("ask for the terminal's modes");
            (!modes.local_modes.contains(LocalModes::ECHO)).then_some(())
        });
        self.type_line(line)
    }

    /// Waits for a question, and types a visible answer.
    #[track_caller]
    pub fn answer(&mut self, question: &str, line: &str) -> &mut Self {
        self.wait_for(question);
        self.type_line(line)
    }

    fn type_line(&mut self, line: &str) -> &mut Self {
        writeln!(self.keyboard, "{line}").expect("type a line");
        self
    }

    #[track_caller]
    fn wait_for(&mut self, question: &str) {
        let deadline = Instant::now() + PATIENCE;
        let end = loop {
            if let Some(start) = self.seen[self.answered..].find(question) {
                break self.answered + start + question.len();
            }
            let more = self.look(deadline);
            assert!(more, "{question:?} was never asked\n{}", self.seen);
        };
        self.answered = end;
    }

    /// Waits for the end, and returns the whole screen; panics unless the exit code is 0.
    #[track_caller]
    pub fn ok(self) -> String {
        self.ends(true)
    }

    /// The same for a program that fails.
    #[track_caller]
    pub fn fails(self) -> String {
        self.ends(false)
    }

    #[track_caller]
    fn ends(mut self, well: bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        while self.look(deadline) {}
        let status = self.child.wait().expect("wait for a child");
        assert_eq!(status.success(), well, "{status}\n{}", self.seen);
        std::mem::take(&mut self.seen)
    }

    /// Reads some output; `false` at the end.
    #[track_caller]
    fn look(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.screen.recv_timeout(left) {
            Ok(bytes) => {
                self.seen.push_str(&String::from_utf8_lossy(&bytes));
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("nothing within {PATIENCE:?}\n{}", self.seen),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
