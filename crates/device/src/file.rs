//! Objects as files of a local directory: one for each, or several for a long one (see [`crate::lanes`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccpfs_types::Extent;

use crate::descriptors::Descriptors;
use crate::device::{Device, DeviceError, Listed, Map, Operation};
use crate::lanes::{self, LANES, Object};
use crate::layout::{DeviceOpenError, Layout};
use crate::object::ObjectName;
use crate::sys;

/// Zeros written at a time where the file system has no holes, in bytes.
const ZEROS_BYTES: usize = 64 << 10;
/// Blocks of most file systems are as long, or shorter.
const BLOCK_BYTES: u64 = 4096;
/// So many times data are looked for to answer one question for a map of a long object.
const MAP_STEPS_MAX: usize = 1 << 16;

/// How a [`FileDevice`] behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDeviceOptions {
    /// Files of objects kept open, besides those in use. Default 1,024: a server raises its limit of descriptors accordingly, or lowers this.
    pub open_files_max: usize,
}

impl Default for FileDeviceOptions {
    fn default() -> Self {
        FileDeviceOptions { open_files_max: 1024 }
    }
}

/// A device over a directory that belongs to one server, locked while this value lives.
#[derive(Debug)]
pub struct FileDevice {
    layout: Layout,
    objects: PathBuf,
    descriptors: Mutex<Descriptors>,
    /// For each bucket, whether its directory has creations or removals that are not durable.
    ///
    /// Held while the directory is synced, so that nobody takes another thread's unfinished sync for a finished one.
    unsynced: Box<[Mutex<bool>; 256]>,
}

impl FileDevice {
    /// Opens the device of server `server_index` in `directory`, making it if it is missing or empty.
    pub fn open(directory: &Path, server_index: u32) -> Result<FileDevice, DeviceOpenError> {
        FileDevice::open_with(directory, server_index, FileDeviceOptions::default())
    }

    /// Like [`FileDevice::open`], with options.
    pub fn open_with(
        directory: &Path,
        server_index: u32,
        options: FileDeviceOptions,
    ) -> Result<FileDevice, DeviceOpenError> {
        let layout = Layout::open(directory, server_index)?;
        let device = FileDevice {
            objects: layout.objects_directory(),
            layout,
            descriptors: Mutex::new(Descriptors::new(options.open_files_max)),
            unsynced: Box::new([const { Mutex::new(true) }; 256]),
        };
        tracing::debug!(directory = %directory.display(), uuid = device.uuid(), "device opened");
        Ok(device)
    }

    /// A number that is larger than all earlier answers for this directory, durable on return. The first is 1.
    ///
    /// A server takes one at each start, so that sequence numbers never repeat.
    pub fn next_epoch(&self) -> Result<u64, DeviceOpenError> {
        self.layout.next_epoch()
    }

    /// The identity that this directory got when it was made.
    pub fn uuid(&self) -> &str {
        self.layout.uuid()
    }

    fn path(&self, object: ObjectName) -> PathBuf {
        self.objects.join(object.path())
    }

    fn unsynced(&self, object: ObjectName) -> MutexGuard<'_, bool> {
        lock(&self.unsynced[usize::from(object.bucket())])
    }

    /// The object, or `None` if there is none.
    fn find(&self, name: ObjectName) -> Result<Option<Arc<Object>>, DeviceError> {
        // Held across the open, so that no removal comes between it and the cache.
        let mut descriptors = lock(&self.descriptors);
        if let Some(object) = descriptors.get(name) {
            return Ok(Some(object));
        }
        let failed = |error| DeviceError::new(Operation::Open, name, &error);
        let Some(object) = Object::open(&self.path(name)).map_err(failed)?.map(Arc::new) else {
            return Ok(None);
        };
        descriptors.insert(name, object.clone());
        Ok(Some(object))
    }

    fn find_or_create(&self, name: ObjectName) -> Result<Arc<Object>, DeviceError> {
        if let Some(object) = self.find(name)? {
            return Ok(object);
        }
        let mut unsynced = self.unsynced(name);
        // Only one at a time comes here: somebody else may have made it, and written to it.
        if let Some(object) = self.find(name)? {
            return Ok(object);
        }
        let mut descriptors = lock(&self.descriptors);
        let failed = |error| DeviceError::new(Operation::Open, name, &error);
        let object = Arc::new(Object::create(&self.path(name)).map_err(failed)?);
        *unsynced = true;
        descriptors.insert(name, object.clone());
        Ok(object)
    }

    /// The object, made if it is missing, and so that bytes up to `end` can be written.
    fn find_reaching(&self, name: ObjectName, end: u64) -> Result<Arc<Object>, DeviceError> {
        let object = self.find_or_create(name)?;
        if !object.reaches(end) {
            let _alone = self.unsynced(name);
            let spread = object.spread(&self.path(name));
            if spread.map_err(|error| DeviceError::new(Operation::Open, name, &error))? {
                lock(&self.descriptors).grew(name, &object);
            }
        }
        Ok(object)
    }
}

impl FileDevice {
    /// The first names of a bucket behind `after`, in order. Remembers only as many as are wanted.
    fn next_names(
        &self,
        bucket: u8,
        after: Option<ObjectName>,
        count_max: usize,
    ) -> io::Result<BTreeSet<ObjectName>> {
        let mut names = BTreeSet::new();
        let entries = match fs::read_dir(self.objects.join(format!("{bucket:02x}"))) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?.file_name();
            let Some(name) = entry.to_str().and_then(ObjectName::parse) else { continue };
            if Some(name) > after {
                names.insert(name);
            }
            if names.len() > count_max {
                names.pop_last();
            }
        }
        Ok(names)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these locks protect is consistent after each statement, so a holder's panic does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands runs of pieces that follow each other without a gap to `write`, each with its offset.
fn for_each_run(
    pieces: &[(u64, &[u8])],
    mut write: impl FnMut(u64, &mut [IoSlice<'_>]) -> io::Result<()>,
) -> io::Result<()> {
    let mut run: Vec<IoSlice<'_>> = Vec::with_capacity(pieces.len());
    let (mut start, mut end) = (0, 0);
    for (offset, bytes) in pieces {
        if *offset != end && !run.is_empty() {
            write(start, &mut run)?;
            run.clear();
        }
        if run.is_empty() {
            start = *offset;
        }
        run.push(IoSlice::new(bytes));
        end = offset
            .checked_add(bytes.len() as u64)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
    }
    write(start, &mut run)
}

fn write_zeros(file: &File, start: u64, end: u64) -> io::Result<()> {
    let zeros = [0; ZEROS_BYTES];
    let mut offset = start;
    while offset < end {
        let bytes = (end - offset).min(ZEROS_BYTES as u64);
        sys::write_all_at(file, &mut [IoSlice::new(&zeros[..bytes as usize])], offset)?;
        offset += bytes;
    }
    Ok(())
}

fn punch(file: &File, extent: Extent) -> io::Result<()> {
    // A file that grows meanwhile grows by writes that are not older than this call.
    let length = file.metadata()?.len();
    let end = extent.end().min(length);
    if end <= extent.start() {
        return Ok(());
    }
    // To the end of the last block, so that it goes as well.
    let blocks_end = extent.end().min(length.next_multiple_of(BLOCK_BYTES));
    match sys::punch(file, extent.start(), blocks_end - extent.start()) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            write_zeros(file, extent.start(), end)
        }
        other => other,
    }
}

fn map(file: &File, extent: Extent, extents_max: usize) -> io::Result<Map> {
    let mut map = Map { data: Vec::new(), known_to: extent.end() };
    let mut at = extent.start();
    while at < extent.end() {
        let start = match sys::seek(file, at, true) {
            Ok(Some(start)) if start < extent.end() => start.max(at),
            Ok(_) => break,
            // A file system that knows no holes.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                map.data.extend(Extent::new(at, extent.end().min(file.metadata()?.len())));
                break;
            }
            Err(error) => return Err(error),
        };
        if map.data.len() == extents_max {
            map.known_to = start;
            break;
        }
        // At the latest, the end of the file.
        let end = sys::seek(file, start, false)?.unwrap_or(extent.end()).clamp(start + 1, extent.end());
        map.data.extend(Extent::new(start, end));
        at = end;
    }
    Ok(map)
}

fn read_full(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let Some(position) = offset.checked_add(done as u64).filter(|at| sys::position(*at).is_ok()) else {
            break;
        };
        match file.read_at(&mut buffer[done..], position) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn modified_ns(metadata: &fs::Metadata) -> u64 {
    let nanoseconds = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    u64::try_from(nanoseconds).unwrap_or(0)
}

/// One past the last byte of these pieces.
fn end_of(pieces: &[(u64, &[u8])]) -> io::Result<u64> {
    pieces.iter().try_fold(0, |last, (offset, bytes)| {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| sys::position(*end).is_ok());
        end.map(|end| end.max(last)).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))
    })
}

fn write_lanes(object: &Object, pieces: &[(u64, &[u8])]) -> io::Result<()> {
    let mut by_lane: [Vec<(u64, &[u8])>; LANES] = Default::default();
    for (offset, bytes) in pieces {
        let mut rest = *bytes;
        for piece in lanes::pieces(*offset, bytes.len()) {
            let (part, behind) = rest.split_at(piece.bytes);
            by_lane[piece.lane].push((piece.at, part));
            rest = behind;
        }
    }
    let wanted = (0..LANES).filter(|lane| !by_lane[*lane].is_empty()).collect();
    object.by_turns(wanted, |lane| {
        for_each_run(&by_lane[lane], |offset, slices| sys::write_all_at(object.file(lane), slices, offset))
    })
}

fn read_lanes(object: &Object, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    if sys::position(offset).is_err() {
        return Ok(0);
    }
    let mut done = 0;
    for piece in lanes::pieces(offset, buffer.len()) {
        let part = &mut buffer[done..done + piece.bytes];
        let count = read_full(object.file(piece.lane), piece.at, part)?;
        if count < piece.bytes {
            // A lane may end before the object does.
            let left = object.length()?.saturating_sub(offset + done as u64);
            let there = usize::try_from(left).map_or(piece.bytes, |left| left.min(piece.bytes)).max(count);
            part[count..there].fill(0);
            if there < piece.bytes {
                return Ok(done + there);
            }
        }
        done += piece.bytes;
    }
    Ok(done)
}

fn map_lanes(object: &Object, extent: Extent, extents_max: usize) -> io::Result<Map> {
    let mut map = Map { data: Vec::new(), known_to: extent.end() };
    let mut at = extent.start();
    for step in 0.. {
        let Some(found) = object.next_data(at)?.and_then(|found| found.intersection(extent)) else { break };
        let joins = map.data.last().is_some_and(|last| last.end() == found.start());
        if step == MAP_STEPS_MAX || (!joins && map.data.len() == extents_max) {
            map.known_to = found.start();
            break;
        }
        match map.data.last_mut() {
            Some(last) if joins => *last = last.hull(found),
            Some(_) | None => map.data.push(found),
        }
        at = found.end();
    }
    Ok(map)
}

/// What is known of all files of an object together: bytes of space, and when one changed last.
fn join(stored_bytes: &mut u64, changed_ns: &mut u64, metadata: &fs::Metadata) {
    *stored_bytes = stored_bytes.saturating_add(metadata.blocks().saturating_mul(512));
    *changed_ns = (*changed_ns).max(modified_ns(metadata));
}

/// What the list says of an object.
fn listed(object: ObjectName, path: &Path) -> io::Result<Listed> {
    let first = fs::symlink_metadata(path)?;
    let mut listed = Listed { object, length_bytes: first.len(), stored_bytes: 0, modified_ns: 0 };
    join(&mut listed.stored_bytes, &mut listed.modified_ns, &first);
    for lane in 1..LANES {
        let metadata = match fs::symlink_metadata(lanes::lane_path(path, lane)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            other => other?,
        };
        if lane == 1 {
            listed.length_bytes = lanes::end_of(0, first.len());
        }
        listed.length_bytes = listed.length_bytes.max(lanes::end_of(lane, metadata.len()));
        join(&mut listed.stored_bytes, &mut listed.modified_ns, &metadata);
    }
    Ok(listed)
}

impl Device for FileDevice {
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        if pieces.iter().all(|(_, bytes)| bytes.is_empty()) {
            return Ok(());
        }
        let failed = |error: io::Error| DeviceError::new(Operation::Write, object, &error);
        let files = self.find_reaching(object, end_of(pieces).map_err(failed)?)?;
        match files.only() {
            Some(file) => for_each_run(pieces, |offset, slices| sys::write_all_at(&file, slices, offset)),
            None => write_lanes(&files, pieces),
        }
        .map_err(failed)
    }

    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        let Some(files) = self.find(object)? else { return Ok(0) };
        match files.only() {
            Some(file) => read_full(&file, offset, buffer),
            None => read_lanes(&files, offset, buffer),
        }
        .map_err(|error| DeviceError::new(Operation::Read, object, &error))
    }

    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError> {
        let Some(files) = self.find(object)? else { return Ok(()) };
        let failed = |error: io::Error| DeviceError::new(Operation::Punch, object, &error);
        if let Some(file) = files.only() {
            return punch(&file, extent).map_err(failed);
        }
        for (lane, file) in files.files().enumerate() {
            // The parts of an extent in one lane follow each other there.
            let part = Extent::new(lanes::share(extent.start(), lane), lanes::share(extent.end(), lane));
            part.map_or(Ok(()), |part| punch(file, part)).map_err(failed)?;
        }
        Ok(())
    }

    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        let Some(files) = self.find(object)? else {
            return Ok(Map { data: Vec::new(), known_to: extent.end() });
        };
        match files.only() {
            Some(file) => map(&file, extent, extents_max),
            None => map_lanes(&files, extent, extents_max),
        }
        .map_err(|error| DeviceError::new(Operation::Map, object, &error))
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        let failed = |error: io::Error| DeviceError::new(Operation::Truncate, object, &error);
        sys::position(length).map_err(failed)?;
        let files = if length == 0 { self.find(object)? } else { Some(self.find_reaching(object, length)?) };
        files.map_or(Ok(()), |files| files.set_length(length)).map_err(failed)
    }

    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        let Some(files) = self.find(object)? else { return Ok(None) };
        files.length().map(Some).map_err(|error| DeviceError::new(Operation::Status, object, &error))
    }

    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        let Some(files) = self.find(object)? else { return Ok(None) };
        files
            .files()
            .try_fold(0, |last, file| Ok(modified_ns(&file.metadata()?).max(last)))
            .map(Some)
            .map_err(|error: io::Error| DeviceError::new(Operation::Status, object, &error))
    }

    fn sync(&self, object: ObjectName) -> Result<(), DeviceError> {
        let failed = |error: io::Error| DeviceError::new(Operation::Sync, object, &error);
        {
            // The names first: without them the bytes of a long object would be read as those of other places.
            let mut unsynced = self.unsynced(object);
            if *unsynced {
                let bucket = self.objects.join(format!("{:02x}", object.bucket()));
                File::open(bucket).and_then(|directory| directory.sync_all()).map_err(failed)?;
                *unsynced = false;
            }
        }
        match self.find(object)? {
            Some(files) => files.files().try_for_each(File::sync_data).map_err(failed),
            None => Ok(()),
        }
    }

    fn remove(&self, object: ObjectName) -> Result<(), DeviceError> {
        let failed = |error: io::Error| DeviceError::new(Operation::Remove, object, &error);
        let mut unsynced = self.unsynced(object);
        let mut descriptors = lock(&self.descriptors);
        descriptors.remove(object);
        let path = self.path(object);
        *unsynced |= lanes::remove_others(&path).map_err(failed)?;
        match fs::remove_file(&path) {
            Ok(()) => {
                *unsynced = true;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn sync_all(&self) -> Result<(), DeviceError> {
        File::open(&self.objects).and_then(|directory| sys::sync_file_system(&directory)).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            DeviceError { operation: Operation::Sync, object: None, errno }
        })
    }

    fn list(&self, after: Option<ObjectName>, count_max: usize) -> Result<Vec<Listed>, DeviceError> {
        let mut found_all = Vec::new();
        for bucket in after.map_or(0, ObjectName::bucket)..=u8::MAX {
            let wanted = count_max - found_all.len();
            if wanted == 0 {
                break;
            }
            let failed = |error: &io::Error| DeviceError {
                operation: Operation::List,
                object: None,
                errno: error.raw_os_error().unwrap_or(libc::EIO),
            };
            for object in self.next_names(bucket, after, wanted).map_err(|error| failed(&error))? {
                match listed(object, &self.path(object)) {
                    Ok(found) => found_all.push(found),
                    // Removed since.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(DeviceError::new(Operation::List, object, &error)),
                }
            }
        }
        Ok(found_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_pieces_go_out_in_one_write() {
        let mut runs = Vec::new();
        let pieces: [(u64, &[u8]); 5] = [(0, b"ab"), (2, b"c"), (3, b""), (10, b"xyz"), (5, b"q")];
        for_each_run(&pieces, |offset, slices| {
            runs.push((offset, slices.iter().map(|slice| slice.len()).sum::<usize>()));
            Ok(())
        })
        .unwrap();
        assert_eq!(runs, [(0, 3), (10, 3), (5, 1)]);
    }

    #[test]
    fn a_file_system_without_holes_gets_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, [7; 200_000]).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        write_zeros(&file, 10, 150_000).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == if (10..150_000).contains(&at) { 0 } else { 7 })
        );
    }
}
