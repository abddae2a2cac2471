//! A program that does as it is told, with system calls of libc: one line per call on standard input, one answer each.
//!
//! A request is `ID MODE VERB ARGUMENT... +N`, a line, and N bytes of payload. MODE says who carries it out: `i` this thread,
//! in order; `t` a thread of its own, so that calls may block; `f` a forked child. An answer is `ID ok VALUE +N` and N bytes, or
//! `ID err ERRNO +0`. Words of a request are separated by single spaces; in paths `%XY` stands for the byte XY.

mod files;
mod locks;
mod maps;
mod names;
mod sys;

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Mutex;
use sys::{Answer, Outcome, Words, sys};

/// Serialises whole answers.
static OUTPUT: Mutex<()> = Mutex::new(());

fn main() {
    let mut input = BufReader::with_capacity(1 << 20, std::io::stdin());
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let request = line.trim_end_matches('\n').to_owned();
        let (request, bytes) =
            request.rsplit_once(" +").expect("a request ends with the length of its payload");
        let mut payload = vec![0; bytes.parse().expect("a length is a number")];
        input.read_exact(&mut payload).expect("the payload follows its request");
        let mut parts = request.splitn(3, ' ');
        let id = parts.next().expect("a request begins with its number").to_owned();
        let mode = parts.next().expect("a request has a mode");
        let call = parts.next().expect("a request has a verb").to_owned();
        match mode {
            "t" => {
                std::thread::spawn(move || answer(&id, &perform(&call, &payload)));
            }
            "f" => answer(&id, &in_a_child(&call, &payload)),
            _ => answer(&id, &perform(&call, &payload)),
        }
    }
}

/// Carries out one call.
fn perform(call: &str, payload: &[u8]) -> Outcome {
    let mut words = Words::new(call);
    let verb = words.text();
    files::perform(&verb, &mut words, payload)
        .or_else(|| names::perform(&verb, &mut words, payload))
        .or_else(|| locks::perform(&verb, &mut words))
        .or_else(|| maps::perform(&verb, &mut words, payload))
        .or_else(|| process(&verb, &mut words))
        .unwrap_or_else(|| panic!("there is no verb {verb}"))
}

/// Calls about the process itself.
fn process(verb: &str, words: &mut Words) -> Option<Outcome> {
    Some(match verb {
        "umask" => sys!(libc::umask(words.number::<libc::mode_t>())),
        "seteuid" => sys!(libc::seteuid(words.number())),
        "setegid" => sys!(libc::setegid(words.number())),
        "getpid" => sys!(libc::getpid()),
        "exit" => std::process::exit(words.number()),
        "_exit" => end(words.number()),
        _ => return None,
    })
}

/// Ends this process without running anything of this program.
fn end(code: i32) -> ! {
    // SAFETY: nothing of this process is used after it.
    unsafe { libc::_exit(code) }
}

/// Carries out one call in a forked child, which then ends without running anything of this program.
fn in_a_child(call: &str, payload: &[u8]) -> Outcome {
    let mut ends = [0; 2];
    sys!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
    let child = sys!(libc::fork())?.value;
    if child == 0 {
        let text = encode("0", &perform(call, payload));
        let mut rest = &text[..];
        while !rest.is_empty() {
            let Ok(done) = sys!(libc::write(ends[1], rest.as_ptr().cast(), rest.len())) else { break };
            rest = &rest[usize::try_from(done.value).unwrap_or(0)..];
        }
        end(0);
    }
    sys!(libc::close(ends[1]))?;
    let mut text = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let got = sys!(libc::read(ends[0], buffer.as_mut_ptr().cast(), buffer.len()))?.value;
        if got == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..usize::try_from(got).unwrap_or(0)]);
    }
    sys!(libc::close(ends[0]))?;
    let mut status = 0;
    sys!(libc::waitpid(i32::try_from(child).expect("a process number"), &raw mut status, 0))?;
    decode(&text).unwrap_or(Err(libc::ECHILD))
}

/// An answer as it goes over the pipe.
fn encode(id: &str, outcome: &Outcome) -> Vec<u8> {
    match outcome {
        Ok(answer) => {
            let mut text = format!("{id} ok {} +{}\n", answer.value, answer.bytes.len()).into_bytes();
            text.extend_from_slice(&answer.bytes);
            text
        }
        Err(errno) => format!("{id} err {errno} +0\n").into_bytes(),
    }
}

/// The outcome in an encoded answer; `None` if it is none.
fn decode(text: &[u8]) -> Option<Outcome> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(&text[..end]).ok()?;
    let words: Vec<&str> = head.split(' ').collect();
    let value: i64 = words.get(2)?.parse().ok()?;
    match *words.get(1)? {
        "ok" => Some(Ok(Answer { value, bytes: text[end + 1..].to_vec() })),
        _ => Some(Err(i32::try_from(value).ok()?)),
    }
}

/// Sends an answer.
fn answer(id: &str, outcome: &Outcome) {
    let text = encode(id, outcome);
    let _whole = OUTPUT.lock().expect("no answer panics");
    let mut output = std::io::stdout().lock();
    output.write_all(&text).and_then(|()| output.flush()).expect("the driver reads answers");
}
