//! The driver's end of an agent: requests out, answers in.

use ccpfs_test_support::signal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No call takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

/// What a call returned and what it put into its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number returned.
    pub value: i64,
    /// The bytes read, names, or text.
    pub bytes: Vec<u8>,
}

type Outcome = Result<Reply, Errno>;
type Waiting = Arc<Mutex<BTreeMap<u64, Sender<Outcome>>>>;

/// Who carries a request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The agent's only thread, in the order of requests.
    Turn,
    /// A thread of its own.
    Thread,
    /// A forked child.
    Child,
}

/// A process that carries out system calls. It is ended when this is dropped.
pub struct Agent {
    name: String,
    child: Mutex<Child>,
    input: Mutex<Option<ChildStdin>>,
    waiting: Waiting,
    next: AtomicU64,
}

/// A call whose answer has not been looked at.
pub struct Pending {
    what: String,
    answer: Receiver<Outcome>,
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    /// That of the call.
    ///
    /// # Panics
    /// When the agent has ended or the call hangs.
    pub fn wait(self) -> Outcome {
        match self.answer.recv_timeout(PATIENCE) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => panic!("hangs: {}", self.what),
            Err(RecvTimeoutError::Disconnected) => panic!("the agent has ended at: {}", self.what),
        }
    }

    /// As [`Pending::wait`]; `None` when the agent has ended without an answer.
    ///
    /// # Panics
    /// When the call hangs.
    #[must_use]
    pub fn wait_or_death(self) -> Option<Outcome> {
        match self.answer.recv_timeout(PATIENCE) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => panic!("hangs: {}", self.what),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// The answer, if it is there.
    pub fn now(&self) -> Option<Outcome> {
        self.answer.try_recv().ok()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    /// Starts the agent that `command` runs; `name` is for messages.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, mut command: Command) -> Agent {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let input = child.stdin.take();
        let output = child.stdout.take().expect("its output is a pipe");
        let waiting = Waiting::default();
        let listener = waiting.clone();
        std::thread::spawn(move || listen(output, &listener));
        Agent {
            name: name.to_owned(),
            child: Mutex::new(child),
            input: Mutex::new(input),
            waiting,
            next: AtomicU64::new(1),
        }
    }

    /// Carries out a call and waits for it.
    ///
    /// # Errors
    /// That of the call.
    pub fn call(&self, call: &str, payload: &[u8]) -> Result<Reply, Errno> {
        self.send(By::Turn, call, payload).wait()
    }

    /// Sends a call that is carried out after those sent before; they may be many.
    pub fn queue(&self, call: &str, payload: &[u8]) -> Pending {
        self.send(By::Turn, call, payload)
    }

    /// Lets a thread of its own carry out a call, which may block.
    pub fn begin(&self, call: &str, payload: &[u8]) -> Pending {
        self.send(By::Thread, call, payload)
    }

    /// Lets a forked child carry out a call and end.
    ///
    /// # Errors
    /// That of the call.
    pub fn forked(&self, call: &str, payload: &[u8]) -> Result<Reply, Errno> {
        self.send(By::Child, call, payload).wait()
    }

    fn send(&self, by: By, call: &str, payload: &[u8]) -> Pending {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = channel();
        locked(&self.waiting).insert(id, sender);
        let mode = match by {
            By::Turn => "i",
            By::Thread => "t",
            By::Child => "f",
        };
        let mut request = format!("{id} {mode} {call} +{}\n", payload.len()).into_bytes();
        request.extend_from_slice(payload);
        let sent = locked(&self.input).as_mut().map(|input| input.write_all(&request));
        if !matches!(sent, Some(Ok(()))) {
            // Whoever waits learns that the agent has ended.
            locked(&self.waiting).remove(&id);
        }
        Pending { what: format!("{}: {call}", self.name), answer }
    }

    /// Sends a signal. After `SIGSTOP` it stands still.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn signal(&self, number: i32) {
        signal(locked(&self.child).id(), number);
    }

    /// Ends the process at once, as `kill -9` does, and waits for its end.
    pub fn kill(&self) {
        let mut child = locked(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Lets the process end by itself: it returns from `main`.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn leave(&self) {
        drop(locked(&self.input).take());
        let status = locked(&self.child).wait().expect("it is our child");
        assert!(status.success(), "{}: {status}", self.name);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Without input it ends by itself, in order; one that hangs is killed. One that hangs in a dead mount ends only when the
        // mount does, so nobody waits for it here for ever.
        drop(locked(&self.input).take());
        let mut child = locked(&self.child);
        for turn in 0..1000 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            if turn == 500 || std::thread::panicking() {
                let _ = child.kill();
            }
            // tidy: sleep. The standard library has no wait with a limit; nothing but the limit depends on it.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Hands answers to those who wait for them.
fn listen(output: ChildStdout, waiting: &Waiting) {
    let mut output = BufReader::with_capacity(1 << 20, output);
    while let Some((id, outcome)) = receive(&mut output) {
        if let Some(sender) = locked(waiting).remove(&id) {
            // The test may have lost interest.
            let _ = sender.send(outcome);
        }
    }
    locked(waiting).clear();
}

fn receive(output: &mut impl BufRead) -> Option<(u64, Outcome)> {
    let mut line = String::new();
    if output.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let [id, verdict, value, length] = words[..] else { panic!("an agent answers: {line}") };
    let length = length.strip_prefix('+').and_then(|length| length.parse().ok());
    let mut bytes = vec![0; length.expect("an answer tells its length")];
    output.read_exact(&mut bytes).ok()?;
    let value: i64 = value.parse().expect("an answer has a number");
    let outcome = match verdict {
        "ok" => Ok(Reply { value, bytes }),
        _ => Err(Errno(i32::try_from(value).expect("error numbers are small"))),
    };
    Some((id.parse().expect("an answer has a number"), outcome))
}

/// A path as agents take it.
#[must_use]
pub fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}
