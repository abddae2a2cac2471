//! What the observer is told of a shard: what it was given, what it said, and what its device holds when it is at rest.

use super::client::{file_id, target_of};
use super::device::Task;
use super::server::ShardNode;
use crate::checkers::TakenPiece;
use crate::engine::Engine;
use crate::history::{Loss, OpId};
use crate::net::Bulk;
use ccpfs_shard::{BulkRef, Effect, Input};
use ccpfs_types::{ClientId, Extent, ExtentMap, ResourceId};
use ccpfs_wire::{Message, Status, WritePiece};
use std::collections::{BTreeMap, BTreeSet};

/// Requests whose answers the observer wants to know.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Flushes and truncates, with what they change.
    changes: BTreeMap<(ClientId, u64), Vec<(ResourceId, Extent)>>,
    syncs: BTreeSet<(ClientId, u64)>,
    /// Stripes whose contents may have changed since the observer saw them.
    touched: BTreeSet<ResourceId>,
}

impl ShardNode {
    /// Before a step.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the observer wants to know of a few messages only")]
    pub(super) fn observe_input(&mut self, engine: &mut Engine, input: &Input) {
        let Input::Message { from, message, bulk, .. } = input else { return };
        let (from, target) = (*from, self.target);
        match message {
            Message::Write { request, pieces, .. } => {
                let taken = self.taken(engine, pieces, *bulk);
                engine.tell(|observer, at| observer.write_taken(at, target, from, &taken));
                let changes = pieces.iter().map(|piece| (piece.resource, piece.extent)).collect();
                self.watched.changes.insert((from, request.0), changes);
            }
            Message::Truncate { request, resource, length, sn } => {
                let (resource, length, sn) = (*resource, *length, *sn);
                engine.tell(|observer, at| observer.truncate_taken(at, target, from, resource, length, sn));
                let cut = Extent::new(length, Extent::EOF).map(|cut| (resource, cut));
                self.watched.changes.insert((from, request.0), cut.into_iter().collect());
            }
            Message::Sync { request, resources } => {
                engine.tell(|observer, at| observer.sync_asked(at, target, from, request.0, resources));
                self.watched.syncs.insert((from, request.0));
            }
            _ => {}
        }
    }

    /// The pieces of a flush with who wrote their bytes.
    fn taken(&self, engine: &mut Engine, pieces: &[WritePiece], bulk: Option<BulkRef>) -> Vec<TakenPiece> {
        let nothing = Bulk::default();
        let data = bulk.and_then(|bulk| self.bulks.get(&bulk.id)).map_or(&nothing, |data| data);
        let mut offset = 0;
        let mut taken = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let mut tags = Vec::new();
            for (start, length, tag) in data.slice(offset, piece.extent.length()) {
                let extent = Extent::with_length(piece.extent.start() + start, length);
                let extent = extent.expect("runs have bytes");
                match tag.checked_sub(1).filter(|_| tag != super::stripe::GARBAGE) {
                    Some(id) => tags.push((extent, OpId(id))),
                    None => engine.complain(format!("a flush brings {extent} from pages that hold nothing")),
                }
            }
            offset += piece.extent.length();
            let WritePiece { resource, extent, sn } = *piece;
            taken.push(TakenPiece { resource, extent, sn, tags });
        }
        taken
    }

    /// An effect of a step.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the observer wants to know of a few messages only")]
    pub(super) fn observe_effect(&mut self, engine: &mut Engine, effect: &Effect) {
        let Effect::Send { to, message, .. } = effect else { return };
        let (to, target) = (*to, self.target);
        match message {
            Message::Grant { resource, granted, .. } => {
                engine.tell(|observer, at| observer.granted(at, target, to, *resource, granted));
            }
            Message::WriteReply { request, status } => self.observe_answer(engine, to, request.0, *status),
            Message::Done { request, status } => {
                if self.watched.syncs.remove(&(to, request.0)) {
                    if *status == Status::Ok {
                        engine.tell(|observer, at| observer.sync_done(at, target, to, request.0));
                    }
                } else {
                    self.observe_answer(engine, to, request.0, *status);
                }
            }
            _ => {}
        }
    }

    fn observe_answer(&mut self, engine: &mut Engine, to: ClientId, request: u64, status: Status) {
        let Some(changes) = self.watched.changes.remove(&(to, request)) else { return };
        let target = self.target;
        for (resource, extent) in changes {
            self.watched.touched.insert(resource);
            if let Status::Errno(errno) = status {
                engine.tell(|observer, at| observer.write_refused(at, target, to, resource, &[extent]));
                self.note_refusal(engine, to, (resource, extent), errno);
            }
        }
    }

    /// Bytes of a flush that failed may be lost from here on: also those of a client that dies before it hears of it.
    fn note_refusal(
        &self,
        engine: &mut Engine,
        to: ClientId,
        (resource, extent): (ResourceId, Extent),
        errno: i32,
    ) {
        let file = engine.layouts.len();
        let file =
            (0..u32::try_from(file).expect("files are few")).find(|file| file_id(*file) == resource.file);
        let (Some(file), true) = (file, extent.end() != Extent::EOF) else { return };
        let (node, stripe) = (engine.process_of(to, 0), resource.stripe);
        engine.lost(|at| Loss { at, node, file, stripe, extent, errno });
    }

    /// After a step: what the device holds of stripes that are at rest.
    pub(super) fn observe_rest(&mut self, engine: &mut Engine) {
        let Some(machine) = self.machine.as_ref() else { return };
        let changing = |resource: ResourceId| {
            machine.stripe(resource).is_some_and(|stripe| stripe.jobs() > 0)
                || self
                    .tasks
                    .values()
                    .any(|task| matches!(task, Task::Change { resource: r, .. } if *r == resource))
        };
        let at_rest: Vec<ResourceId> =
            self.watched.touched.iter().copied().filter(|resource| !changing(*resource)).collect();
        let target = self.target;
        for resource in at_rest {
            self.watched.touched.remove(&resource);
            let contents = self.contents(resource);
            engine.tell(|observer, at| observer.settled(at, target, resource, &contents));
        }
    }

    /// What the device holds of a stripe.
    fn contents(&self, resource: ResourceId) -> ExtentMap<OpId> {
        let mut contents = ExtentMap::new();
        for (extent, tag) in self.disk.read(resource, Extent::WHOLE) {
            if let Some(id) = tag.checked_sub(1) {
                contents.insert(extent, OpId(id));
            }
        }
        contents
    }

    /// The process has died: nothing is under way.
    pub(super) fn observe_death(&mut self, engine: &mut Engine) {
        self.watched = Watched::default();
        let target = self.target;
        engine.tell(|observer, at| observer.died(at, target));
    }

    /// The process is back.
    pub(crate) fn observe_return(&mut self, engine: &mut Engine) {
        let targets = engine.config.targets();
        let mut contents = Vec::new();
        for (file, layout) in (0_u32..).zip(&engine.layouts) {
            for stripe in (0..layout.stripe_count()).filter(|s| target_of(file, *s, targets) == self.target) {
                let resource = ResourceId { file: file_id(file), stripe };
                contents.push((resource, self.contents(resource)));
            }
        }
        let target = self.target;
        engine.tell(|observer, at| observer.restarted(at, target, &contents));
    }
}
