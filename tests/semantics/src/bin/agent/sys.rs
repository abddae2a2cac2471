//! What all verbs use: words of a request, outcomes of calls.

use std::ffi::CString;
use std::fmt::Debug;
use std::str::{FromStr, SplitN};

/// What a call answers when it succeeds.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What it returned.
    pub(crate) value: i64,
    /// What it put into its buffer.
    pub(crate) bytes: Vec<u8>,
}

/// The answer, or the errno.
pub(crate) type Outcome = Result<Answer, i32>;

/// A number without bytes.
pub(crate) fn value(value: i64) -> Outcome {
    Ok(Answer { value, bytes: Vec::new() })
}

/// Text.
pub(crate) fn text(text: &str) -> Outcome {
    Ok(Answer { value: 0, bytes: text.as_bytes().to_vec() })
}

/// The errno of this thread.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// A call that returns -1 when it fails.
macro_rules! sys {
    ($call:expr) => {{
        // SAFETY: the pointers that calls get are those of buffers of this function, with their lengths.
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the macro is about calls that are unsafe")]
        let returned = i64::try_from(unsafe { $call }).unwrap_or(-1);
        if returned == -1 {
            Err($crate::sys::errno())
        } else {
            Ok($crate::sys::Answer { value: returned, bytes: Vec::new() })
        }
    }};
}
pub(crate) use sys;

/// The words of a request.
pub(crate) struct Words<'a>(SplitN<'a, char>);

impl<'a> Words<'a> {
    pub(crate) fn new(call: &'a str) -> Words<'a> {
        Words(call.splitn(64, ' '))
    }

    /// The next word.
    pub(crate) fn text(&mut self) -> String {
        self.0.next().expect("the request has a further word").to_owned()
    }

    /// The next word as a number.
    pub(crate) fn number<N: FromStr>(&mut self) -> N
    where
        N::Err: Debug,
    {
        self.text().parse().expect("the word is a number")
    }

    /// The next word as a path; `%XY` is the byte XY.
    pub(crate) fn path(&mut self) -> CString {
        let word = self.text();
        let mut bytes = Vec::new();
        let mut rest = word.bytes();
        while let Some(byte) = rest.next() {
            if byte != b'%' {
                bytes.push(byte);
                continue;
            }
            let code = [rest.next(), rest.next()].map(|half| half.map_or('0', char::from));
            let code: String = code.iter().collect();
            bytes.push(u8::from_str_radix(&code, 16).expect("two hexadecimal digits"));
        }
        CString::new(bytes).expect("a path has no zero byte")
    }
}
