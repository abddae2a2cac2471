//! Sizes as people write them: `47008`, `64KiB`, `1MiB`, `4K`, `1.5GB`.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A number of bytes. Written as a plain number or with a unit: `K`, `KiB`, `M`, `MiB`, `G`, `GiB`, `T`, `TiB` are powers
/// of 1024; `kB`, `KB`, `MB`, `GB`, `TB` powers of 1000. A fraction is allowed before a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// Bytes in one second. Written as [`Bytes`], with `/s` after it or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BytesPerSecond(pub u64);

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSize(String);

impl fmt::Display for InvalidSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no size: write bytes like 47008, 64KiB, 1.5MiB or 4G", self.0)
    }
}

impl std::error::Error for InvalidSize {}

/// What a unit stands for, in bytes.
fn unit_bytes(unit: &str) -> Option<u64> {
    let (letter, rest) = unit.split_at_checked(unit.len().min(1))?;
    let power = match letter {
        "" => return Some(1),
        "b" | "B" if rest.is_empty() => return Some(1),
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        _ => return None,
    };
    match rest {
        "" | "i" | "iB" | "ib" => Some(1024_u64.pow(power)),
        "B" | "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit_bytes(unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut bytes = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if number.contains('.') {
        if fraction.is_empty() || fraction.len() > 9 || unit == 1 {
            return None;
        }
        let parts = fraction.parse::<u64>().ok()?;
        let scale = 10_u128.pow(u32::try_from(fraction.len()).expect("at most 9"));
        let extra = u128::from(parts) * u128::from(unit) / scale;
        bytes = bytes.checked_add(u64::try_from(extra).ok()?)?;
    }
    Some(bytes)
}

impl FromStr for Bytes {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Bytes, InvalidSize> {
        parse(text).map(Bytes).ok_or_else(|| InvalidSize(text.to_owned()))
    }
}

impl FromStr for BytesPerSecond {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<BytesPerSecond, InvalidSize> {
        let amount = text.trim().trim_end_matches("/s");
        parse(amount).map(BytesPerSecond).ok_or_else(|| InvalidSize(text.to_owned()))
    }
}

/// A size in the largest unit of 1024 that needs no fraction: `64KiB`, `47008`.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_bytes(self.0))
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/s", format_bytes(self.0)))
    }
}

/// Takes an integer or a text.
struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes like 47008, \"64KiB\", \"1.5MiB\" or \"4G\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }
}

macro_rules! as_text {
    ($($type:ident),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(SizeVisitor)?.parse().map_err(D::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
as_text!(Bytes, BytesPerSecond);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("47008", 47_008),
            ("64KiB", 65_536),
            ("4K", 4096),
            ("1 MiB", 1 << 20),
            ("1.5m", 3 << 19),
            ("2GB", 2_000_000_000),
            ("1TiB", 1 << 40),
            ("12B", 12),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!("500MiB/s".parse(), Ok(BytesPerSecond(500 << 20)));
        assert_eq!("1G".parse(), Ok(BytesPerSecond(1 << 30)));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "KiB", "-1", "1.5", "1..5K", "4X", "4KiBs", "4KK", "99999999999999999999", "999999999T", "é"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_so_that_they_are_read_as_the_same() {
        for bytes in [0, 1, 1023, 4096, 47_008, 1 << 20, (1 << 20) + 1, 3 << 30, 1 << 40] {
            assert_eq!(format_bytes(bytes).parse(), Ok(Bytes(bytes)));
            assert_eq!(BytesPerSecond(bytes).to_string().parse(), Ok(BytesPerSecond(bytes)));
        }
        assert_eq!(format_bytes(47_008), "47008");
        assert_eq!(format_bytes(1 << 16), "64KiB");
    }
}
