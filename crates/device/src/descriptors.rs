//! A bounded cache of open object files, least recently used first out.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;

use crate::object::ObjectName;

/// See the module. A file that is in use stays open until its last user is done, also when it was put out.
#[derive(Debug)]
pub(crate) struct Descriptors {
    files_max: usize,
    files: HashMap<ObjectName, Entry>,
    /// Names by last use.
    uses: BTreeMap<u64, ObjectName>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    file: Arc<File>,
    used: u64,
}

impl Descriptors {
    /// A cache of at most `files_max` files (at least one).
    pub(crate) fn new(files_max: usize) -> Descriptors {
        Descriptors { files_max: files_max.max(1), files: HashMap::new(), uses: BTreeMap::new(), clock: 0 }
    }

    /// The open file of this object, if it is here; counts as a use.
    pub(crate) fn get(&mut self, object: ObjectName) -> Option<Arc<File>> {
        let entry = self.files.get_mut(&object)?;
        self.clock += 1;
        self.uses.remove(&entry.used);
        entry.used = self.clock;
        self.uses.insert(self.clock, object);
        Some(entry.file.clone())
    }

    /// Takes a file in; the least recently used one may go.
    pub(crate) fn insert(&mut self, object: ObjectName, file: Arc<File>) {
        self.remove(object);
        if self.files.len() >= self.files_max
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.files.remove(&oldest);
        }
        self.clock += 1;
        self.uses.insert(self.clock, object);
        self.files.insert(object, Entry { file, used: self.clock });
        assert_eq!(self.files.len(), self.uses.len(), "every open file has one last use");
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, object: ObjectName) {
        if let Some(entry) = self.files.remove(&object) {
            self.uses.remove(&entry.used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_file_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let file = Arc::new(File::create(directory.path().join("any")).unwrap());
        let name = |number| ObjectName([number; ObjectName::BYTES]);
        let mut cache = Descriptors::new(2);
        cache.insert(name(1), file.clone());
        cache.insert(name(2), file.clone());
        assert!(cache.get(name(1)).is_some());
        cache.insert(name(3), file.clone());
        assert!(cache.get(name(2)).is_none());
        assert!(cache.get(name(1)).is_some() && cache.get(name(3)).is_some());
        cache.insert(name(3), file.clone());
        cache.remove(name(1));
        cache.remove(name(1));
        cache.insert(name(4), file);
        assert!(cache.get(name(3)).is_some() && cache.get(name(4)).is_some());
    }
}
