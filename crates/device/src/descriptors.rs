//! A bounded cache of open object files, least recently used first out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::lanes::Object;
use crate::object::ObjectName;

/// See the module. An object that is in use stays here, so that there is never more than one [`Object`] of a name.
#[derive(Debug)]
pub(crate) struct Descriptors {
    files_max: usize,
    /// Files of all entries.
    files: usize,
    entries: HashMap<ObjectName, Entry>,
    /// Names by last use.
    uses: BTreeMap<u64, ObjectName>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    object: Arc<Object>,
    /// How many of the files it counts for.
    files: usize,
    used: u64,
}

impl Descriptors {
    /// A cache of at most `files_max` files (at least those of one object), and those of objects in use.
    pub(crate) fn new(files_max: usize) -> Descriptors {
        let files_max = files_max.max(1);
        Descriptors { files_max, files: 0, entries: HashMap::new(), uses: BTreeMap::new(), clock: 0 }
    }

    /// The open object, if it is here; counts as a use.
    pub(crate) fn get(&mut self, name: ObjectName) -> Option<Arc<Object>> {
        let entry = self.entries.get_mut(&name)?;
        self.clock += 1;
        self.uses.remove(&entry.used);
        entry.used = self.clock;
        self.uses.insert(self.clock, name);
        Some(entry.object.clone())
    }

    /// Takes note that an object has more files than when it was taken in.
    pub(crate) fn grew(&mut self, name: ObjectName, object: &Arc<Object>) {
        if self.entries.get(&name).is_some_and(|entry| Arc::ptr_eq(&entry.object, object)) {
            self.insert(name, Arc::clone(object));
        }
    }

    /// Takes an object in; the least recently used ones may go.
    pub(crate) fn insert(&mut self, name: ObjectName, object: Arc<Object>) {
        self.remove(name);
        self.clock += 1;
        self.uses.insert(self.clock, name);
        let files = object.file_count();
        self.files += files;
        self.entries.insert(name, Entry { object, files, used: self.clock });
        while self.files > self.files_max {
            let idle = |name: &ObjectName| Arc::strong_count(&self.entries[name].object) == 1;
            let Some(oldest) = self.uses.values().find(|name| idle(name)).copied() else { break };
            self.remove(oldest);
        }
        assert_eq!(self.entries.len(), self.uses.len(), "every open object has one last use");
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, name: ObjectName) {
        if let Some(entry) = self.entries.remove(&name) {
            self.uses.remove(&entry.used);
            self.files -= entry.files;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_object_goes_first_and_none_that_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: u8| directory.path().join(number.to_string());
        let object = |number| Arc::new(Object::create(&path(number)).unwrap());
        let name = |number| ObjectName([number; ObjectName::BYTES]);
        let mut cache = Descriptors::new(2);
        cache.insert(name(1), object(1));
        cache.insert(name(2), object(2));
        assert!(cache.get(name(1)).is_some());
        cache.insert(name(3), object(3));
        assert!(cache.get(name(2)).is_none());
        let used = cache.get(name(1)).unwrap();
        assert!(cache.get(name(3)).is_some());
        cache.insert(name(4), object(4));
        assert!(cache.get(name(3)).is_none() && cache.get(name(1)).is_some());
        assert!(used.spread(&path(1)).unwrap());
        cache.grew(name(1), &used);
        cache.grew(name(4), &used);
        assert!(cache.get(name(4)).is_none(), "it has more files now");
        cache.remove(name(1));
        cache.remove(name(1));
        assert_eq!((cache.files, cache.entries.len()), (0, 0));
    }
}
