//! A device that is as slow as one wants: all threads share a limit of bytes per second.

use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ccpfs_types::Extent;
use thiserror::Error;

use crate::device::{Device, DeviceError, Listed, Map};
use crate::object::ObjectName;

/// How much idle time a device may make up for, so that late wake-ups of sleeping threads do not add up.
const CREDIT: Duration = Duration::from_millis(5);

/// Wraps a device and lets reads and writes through at no more than `bytes_per_second`, over all threads.
///
/// A call takes at least as long as its bytes take after those of earlier calls.
#[derive(Debug)]
pub struct LimitedDevice<D> {
    inner: D,
    start: Instant,
    pacer: Mutex<Pacer>,
}

impl<D> LimitedDevice<D> {
    /// `inner`, slowed down.
    pub fn new(inner: D, bytes_per_second: NonZeroU64) -> LimitedDevice<D> {
        let pacer = Pacer { bytes_per_second, free_at: Duration::ZERO };
        LimitedDevice { inner, start: Instant::now(), pacer: Mutex::new(pacer) }
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Reserves the device for so many bytes; returns when they will have passed.
    fn reserve(&self, bytes: u64) -> Instant {
        let now = self.start.elapsed();
        let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
        self.start + pacer.reserve(now, bytes)
    }
}

fn sleep_until(moment: Instant) {
    let left = moment.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        thread::sleep(left);
    }
}

/// When the device is free again, on a clock that starts with it.
#[derive(Debug)]
struct Pacer {
    bytes_per_second: NonZeroU64,
    free_at: Duration,
}

impl Pacer {
    /// At `now`, appends a transfer of `bytes`; returns when it is through.
    fn reserve(&mut self, now: Duration, bytes: u64) -> Duration {
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        let takes = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(now.saturating_sub(CREDIT)).saturating_add(takes);
        self.free_at
    }
}

impl<D: Device> Device for LimitedDevice<D> {
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        let through = self.reserve(pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum());
        let written = self.inner.write(object, pieces);
        sleep_until(through);
        written
    }

    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        let count = self.inner.read(object, offset, buffer)?;
        sleep_until(self.reserve(count as u64));
        Ok(count)
    }

    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError> {
        self.inner.punch(object, extent)
    }

    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        self.inner.map(object, extent, extents_max)
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        self.inner.truncate(object, length)
    }

    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        self.inner.length(object)
    }

    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        self.inner.modified_ns(object)
    }

    fn sync(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.inner.sync(object)
    }

    fn remove(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.inner.remove(object)
    }

    fn sync_all(&self) -> Result<(), DeviceError> {
        self.inner.sync_all()
    }

    fn list(&self, after: Option<ObjectName>, count_max: usize) -> Result<Vec<Listed>, DeviceError> {
        self.inner.list(after, count_max)
    }
}

/// Why a text is not a bandwidth.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a bandwidth: write a number and a unit, like 500MiB/s, 1.5GB/s or 1048576")]
pub struct BandwidthError {
    /// The rejected text.
    pub text: String,
}

/// Reads a bandwidth such as `500MiB/s`; the answer is in bytes per second, at least 1.
///
/// Units: `B`, `KB`, `MB`, `GB`, `TB` (powers of 1,000), `KiB`, `MiB`, `GiB`, `TiB` (powers of 1,024), in any case; no
/// unit means bytes. `/s` may be left out.
pub fn parse_bandwidth(text: &str) -> Result<NonZeroU64, BandwidthError> {
    bandwidth(text.trim()).ok_or_else(|| BandwidthError { text: text.to_owned() })
}

fn bandwidth(text: &str) -> Option<NonZeroU64> {
    let lower = text.to_ascii_lowercase();
    let amount = lower.strip_suffix("/s").unwrap_or(&lower);
    let digits =
        amount.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(amount.len());
    let (number, unit) = amount.split_at(digits);
    let unit: u64 = match unit.trim() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let fraction = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit) / 10u128.pow(digits);
    NonZeroU64::new(whole.checked_add(u64::try_from(fraction).ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    #[test]
    fn bandwidths_are_read_with_their_units() {
        let read = |text| parse_bandwidth(text).unwrap().get();
        assert_eq!(read("500MiB/s"), 500 << 20);
        assert_eq!(read(" 500 mib "), 500 << 20);
        assert_eq!(read("1.5GB/s"), 1_500_000_000);
        assert_eq!(read("0.25KiB"), 256);
        assert_eq!(read("1048576"), 1 << 20);
        for bad in ["", "fast", "0", "0.0MiB", "5 parsecs", "-1MB", "1.2.3GB", "MiB", "99999999999TiB", "1e3"]
        {
            let error = parse_bandwidth(bad).unwrap_err();
            assert!(error.to_string().contains(&format!("{bad:?}")));
        }
    }

    #[test]
    fn transfers_queue_behind_each_other_at_the_limit() {
        let mut pacer = Pacer { bytes_per_second: NonZeroU64::new(1000).unwrap(), free_at: Duration::ZERO };
        let ms = Duration::from_millis;
        assert_eq!(pacer.reserve(ms(0), 100), ms(100));
        assert_eq!(pacer.reserve(ms(0), 100), ms(200));
        // A thread that wakes a little late loses nothing; a long pause is not saved up.
        assert_eq!(pacer.reserve(ms(203), 100), ms(300));
        assert_eq!(pacer.reserve(ms(1000), 100), ms(1095));
        assert_eq!(
            pacer.reserve(ms(1000), u64::MAX),
            Duration::MAX.min(ms(1095) + Duration::from_nanos(u64::MAX))
        );
    }

    #[test]
    fn bytes_pass_unchanged() {
        let device = LimitedDevice::new(MemoryDevice::new(), NonZeroU64::new(1 << 40).unwrap());
        let object = ObjectName([7; 20]);
        device.write(object, &[(2, b"abc")]).unwrap();
        let mut bytes = [9; 8];
        assert_eq!(device.read(object, 0, &mut bytes), Ok(5));
        assert_eq!(&bytes[..5], b"\0\0abc");
        assert_eq!(device.inner().length(object), Ok(Some(5)));
    }
}
