//! What the devices of a world hold in the end.

use super::{World, number};
use crate::history::{Contents, OpId};
use crate::node::client::{file_id, target_of};
use crate::workload::Workload;
use ccpfs_types::{Extent, Layout, ResourceId};

impl<W: Workload> World<W> {
    /// What the devices hold of each file.
    pub(crate) fn look_at_devices(&mut self) {
        let layouts = self.engine.layouts.clone();
        let mut finals = Vec::new();
        for (file, layout) in (0_u32..).zip(layouts) {
            let mut contents = Contents::default();
            for stripe in 0..layout.stripe_count() {
                let target = target_of(file, stripe, number(self.shards.len() as u64));
                let disk = &self.shards[target as usize].disk;
                let resource = ResourceId { file: file_id(file), stripe };
                let length = disk.length(resource);
                contents.length = contents.length.max(layout.file_size(stripe, length));
                for (extent, tag) in disk.read(resource, Extent::WHOLE) {
                    let Some(id) = tag.checked_sub(1) else { continue };
                    put_into_file(&mut contents, layout, stripe, extent, OpId(id));
                }
            }
            finals.push(contents);
        }
        if let Some(history) = self.engine.history.as_mut() {
            history.finals = finals;
        }
    }
}

/// Enters bytes of a stripe where they belong in the file.
fn put_into_file(contents: &mut Contents, layout: Layout, stripe: u32, extent: Extent, id: OpId) {
    let mut at = extent.start();
    while at < extent.end() {
        let end = extent.end().min((at / layout.stripe_bytes() + 1) * layout.stripe_bytes());
        let place = Extent::with_length(layout.file_offset(stripe, at), end - at);
        contents.bytes.insert(place.expect("some bytes"), id);
        at = end;
    }
}
