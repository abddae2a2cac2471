//! One request and the place for its answer, whatever carries them.
//!
//! A transport splits a request into header, argument and payload, and takes the answer from where the payload was: so
//! data are read into, and written from, the memory that the kernel fills and empties.

use crate::abi::InHeader;
use std::ffi::CString;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An error number of the system.
pub(crate) type Errno = i32;

/// Most bytes of the structure that an argument begins with.
pub(crate) const ARGUMENT_BYTES_MAX: usize = 128;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// So many bytes of the payload's memory are the answer.
    Answer(usize),
    /// An errno is the answer.
    Error(Errno),
    /// The kernel waits for none.
    Silence,
}

/// A request and the place for its answer.
pub(crate) struct Exchange<'a> {
    pub(crate) header: InHeader,
    argument: [u8; ARGUMENT_BYTES_MAX],
    argument_bytes: usize,
    /// The payload's memory: the request's names and data, then the answer.
    memory: &'a mut [u8],
    payload_bytes: usize,
}

impl<'a> Exchange<'a> {
    /// A request whose argument is `argument` and whose payload is the first `payload_bytes` of `memory`.
    pub(crate) fn new(
        header: InHeader,
        argument: &[u8],
        memory: &'a mut [u8],
        payload_bytes: usize,
    ) -> Exchange<'a> {
        assert!(argument.len() <= ARGUMENT_BYTES_MAX && payload_bytes <= memory.len());
        let mut copy = [0; ARGUMENT_BYTES_MAX];
        copy[..argument.len()].copy_from_slice(argument);
        Exchange { header, argument: copy, argument_bytes: argument.len(), memory, payload_bytes }
    }

    /// The structure that the argument begins with.
    pub(crate) fn argument<T: FromBytes + Immutable + KnownLayout>(&self) -> Result<T, Errno> {
        let bytes = &self.argument[..self.argument_bytes];
        T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| libc::EINVAL)
    }

    /// The request's bytes behind its argument.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.memory[..self.payload_bytes]
    }

    /// The first `bytes` of the payload: the data of a write.
    pub(crate) fn data(&self, bytes: u32) -> Result<&[u8], Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| libc::EINVAL)?;
        self.payload().get(..bytes).ok_or(libc::EINVAL)
    }

    /// The name that the payload is.
    pub(crate) fn name(&self) -> Result<CString, Errno> {
        self.names::<1>().map(|[name]| name)
    }

    /// The two names that the payload is.
    pub(crate) fn two_names(&self) -> Result<[CString; 2], Errno> {
        self.names::<2>()
    }

    fn names<const N: usize>(&self) -> Result<[CString; N], Errno> {
        let mut rest = self.payload();
        let mut names: [CString; N] = std::array::from_fn(|_| CString::default());
        for name in &mut names {
            let found = std::ffi::CStr::from_bytes_until_nul(rest).map_err(|_| libc::EINVAL)?;
            rest = &rest[found.to_bytes_with_nul().len()..];
            found.clone_into(name);
        }
        Ok(names)
    }

    /// A name, and the data behind it.
    pub(crate) fn name_and_data(&self, bytes: u32) -> Result<(CString, &[u8]), Errno> {
        let name = self.name()?;
        let start = name.as_bytes_with_nul().len();
        let bytes = usize::try_from(bytes).map_err(|_| libc::EINVAL)?;
        let data = self.payload().get(start..).and_then(|rest| rest.get(..bytes));
        data.map(|data| (name, data)).ok_or(libc::EINVAL)
    }

    /// Memory for an answer of up to `bytes`; the payload is gone with it.
    pub(crate) fn space(&mut self, bytes: u32) -> Result<&mut [u8], Errno> {
        self.payload_bytes = 0;
        let bytes = usize::try_from(bytes).map_err(|_| libc::EINVAL)?;
        self.memory.get_mut(..bytes).ok_or(libc::EINVAL)
    }

    /// Answers with a structure.
    pub(crate) fn answer<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<Outcome, Errno> {
        let bytes = value.as_bytes();
        self.payload_bytes = 0;
        self.memory.get_mut(..bytes.len()).ok_or(libc::EIO)?.copy_from_slice(bytes);
        Ok(Outcome::Answer(bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{MkdirIn, WriteIn, WriteOut};

    fn exchange<'a>(argument: &[u8], memory: &'a mut [u8], payload_bytes: usize) -> Exchange<'a> {
        Exchange::new(InHeader::default(), argument, memory, payload_bytes)
    }

    #[test]
    fn an_argument_is_read_and_a_short_one_is_refused() {
        let asked = MkdirIn { mode: 0o755, umask: 0o22 };
        let mut memory = [0; 16];
        assert_eq!(exchange(asked.as_bytes(), &mut memory, 0).argument::<MkdirIn>(), Ok(asked));
        let short = exchange(&[1, 2, 3], &mut memory, 0);
        assert_eq!(short.argument::<MkdirIn>(), Err(libc::EINVAL));
    }

    #[test]
    fn names_end_with_a_zero_byte() {
        let mut memory = *b"from\0to\0-------";
        let request = exchange(&[], &mut memory, 8);
        assert_eq!(request.two_names(), Ok([c"from".to_owned(), c"to".to_owned()]));
        assert_eq!(request.name(), Ok(c"from".to_owned()));
        let mut memory = *b"endless";
        assert_eq!(exchange(&[], &mut memory, 7).name(), Err(libc::EINVAL));
        let mut memory = *b"one\0";
        assert_eq!(exchange(&[], &mut memory, 4).two_names(), Err(libc::EINVAL));
    }

    #[test]
    fn data_longer_than_the_request_are_refused() {
        let mut memory = *b"user.x\0value---";
        let request = exchange(&[], &mut memory, 12);
        assert_eq!(request.name_and_data(5), Ok((c"user.x".to_owned(), &b"value"[..])));
        assert_eq!(request.name_and_data(6), Err(libc::EINVAL));
        assert_eq!(request.data(12).map(<[u8]>::len), Ok(12));
        assert_eq!(request.data(13), Err(libc::EINVAL));
    }

    #[test]
    fn the_answer_takes_the_place_of_the_payload() {
        let mut memory = [7; 16];
        let argument = WriteIn { size: 16, ..WriteIn::default() };
        let mut request = exchange(argument.as_bytes(), &mut memory, 16);
        assert_eq!(request.data(16).unwrap(), [7; 16]);
        let outcome = request.answer(&WriteOut { size: 16, padding: 0 });
        assert_eq!(outcome, Ok(Outcome::Answer(8)));
        assert_eq!(request.data(1), Err(libc::EINVAL));
        assert!(request.space(17).is_err());
        assert_eq!(memory[..8], [16, 0, 0, 0, 0, 0, 0, 0]);
    }
}
