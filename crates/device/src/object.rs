//! The name of a stored object, opaque to the device.

use std::fmt;
use std::path::PathBuf;

/// The name of one stored object: twenty bytes that the server chooses, for example file id and stripe index.
///
/// Shown as forty hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(pub [u8; ObjectName::BYTES]);

impl ObjectName {
    /// Length of a name, in bytes.
    pub const BYTES: usize = 20;

    /// The name that is shown so: exactly forty digits, small letters.
    pub fn parse(text: &str) -> Option<ObjectName> {
        let digits = text.as_bytes();
        let small = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
        if digits.len() != 2 * ObjectName::BYTES || !digits.iter().all(small) {
            return None;
        }
        let mut name = [0; ObjectName::BYTES];
        for (byte, pair) in name.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(ObjectName(name))
    }

    /// Which of 256 sub-directories the object lives in.
    pub fn bucket(self) -> u8 {
        self.0[0]
    }

    /// The object's path below the directory of all objects: two digits, a slash, all forty digits.
    pub fn path(self) -> PathBuf {
        PathBuf::from(format!("{:02x}", self.bucket())).join(self.to_string())
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_lives_in_the_bucket_of_its_first_byte() {
        let mut name = [0; ObjectName::BYTES];
        name[0] = 0xab;
        name[19] = 0x01;
        let path = ObjectName(name).path();
        assert_eq!(path.to_str().unwrap(), "ab/ab00000000000000000000000000000000000001");
        assert_eq!(ObjectName::parse(&ObjectName(name).to_string()), Some(ObjectName(name)));
        for other in
            ["", "ab", "AB00000000000000000000000000000000000001", "+b00000000000000000000000000000000000001"]
        {
            assert_eq!(ObjectName::parse(other), None);
        }
    }
}
