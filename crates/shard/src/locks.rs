//! The lock service of a shard: a table of resources, and their effects turned into messages and clocks.
//!
//! *What*: resources come with the first request and go when nobody holds or waits for anything.
//! *Invariants*: I2 (a resource that comes back starts above all numbers it ever gave out); data are taken only under a lock from
//! which they can come.
//! *Not here*: what is granted when (`ccpfs-dlm`).

use crate::counters::LockCounters;
use crate::errno::{EPERM, ESTALE};
use crate::overdue::{Debt, Overdue};
use crate::recent::Recent;
use crate::services::{Todo, Turn};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ccpfs_dlm::server::{Effect, Input, Origin, Resource};
use ccpfs_region::Region;
use ccpfs_types::{ClientId, Extent, LockId, LockMode, LockState, Policy, RequestId, ResourceId, Sn, Terms};
use ccpfs_wire::{Channel, Message, Status};

/// Destroyed stripes that are remembered, so that latecomers hear that the file is gone.
const DESTROYED_MAX: usize = 1 << 16;

/// The locks of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockTable {
    policy: Policy,
    /// Where the numbers of a new resource start: above those of all that were forgotten (I2).
    floor: Origin,
    pub(crate) resources: BTreeMap<ResourceId, Resource>,
    destroyed: Recent<ResourceId>,
    pub(crate) overdue: Overdue,
    pub(crate) counters: LockCounters,
    /// Empty between two steps.
    effects: Vec<Effect>,
}

impl LockTable {
    pub(crate) fn new(policy: Policy, epoch: u64, revoke_timeout_ns: u64) -> LockTable {
        LockTable {
            policy,
            floor: Origin { sn: Sn::first_of_epoch(epoch), lock: LockId(1) },
            resources: BTreeMap::new(),
            destroyed: Recent::new(DESTROYED_MAX),
            overdue: Overdue::new(revoke_timeout_ns),
            counters: LockCounters::default(),
            effects: Vec::new(),
        }
    }

    /// Puts one input through a resource. Only a request for a lock brings a resource into being.
    pub(crate) fn step(&mut self, id: ResourceId, input: Input, turn: &mut Turn<'_>) {
        let asks = match &input {
            Input::Enqueue { .. } => true,
            Input::RevokeAck { .. }
            | Input::Convert { .. }
            | Input::Narrow { .. }
            | Input::Release { .. }
            | Input::Evict { .. }
            | Input::Destroy => false,
        };
        let (policy, floor) = (self.policy, self.floor);
        let resource = match self.resources.get_mut(&id) {
            Some(resource) => resource,
            None if asks => self.resources.entry(id).or_insert_with(|| Resource::new(policy, floor)),
            None => return,
        };
        let mut effects = core::mem::take(&mut self.effects);
        resource.step(input, &mut effects);
        let idle = resource.is_idle();
        for effect in effects.drain(..) {
            self.carry_out(id, effect, turn);
        }
        self.effects = effects;
        if idle {
            self.forget(id, turn);
        }
    }

    /// Takes a client's request for a lock.
    pub(crate) fn enqueue(&mut self, id: ResourceId, request: Input, turn: &mut Turn<'_>) {
        self.counters.requests += 1;
        if let Input::Enqueue { from, request, .. } = &request
            && self.destroyed.contains(&id)
        {
            self.deny(id, *from, *request, (ESTALE, None), turn);
            return;
        }
        self.step(id, request, turn);
    }

    /// Takes back everything that a client holds or waits for. Returns on how many resources that was.
    pub(crate) fn evict(&mut self, client: ClientId, turn: &mut Turn<'_>) -> usize {
        self.overdue.forgive(client);
        let involved: Vec<ResourceId> = self
            .resources
            .iter()
            .filter(|(_, resource)| resource.involves(client))
            .map(|(id, _)| *id)
            .collect();
        for id in &involved {
            self.step(*id, Input::Evict { client }, turn);
        }
        involved.len()
    }

    /// Ends a resource for good.
    pub(crate) fn destroy(&mut self, id: ResourceId, turn: &mut Turn<'_>) {
        self.destroyed.insert(id);
        self.step(id, Input::Destroy, turn);
    }

    /// Asks for a read lock on all of a resource in the server's own name: all clients flush what they hold of it.
    pub(crate) fn force_flush(&mut self, id: ResourceId, turn: &mut Turn<'_>) {
        let input = Input::Enqueue {
            from: ClientId::SERVER,
            request: RequestId(0),
            mode: LockMode::Pr,
            required: Region::WHOLE,
            desired: Region::WHOLE,
            terms: Terms::WAIT,
        };
        self.step(id, input, turn);
    }

    /// Whether a flush may bring data with `sn` for `extent`: somebody must hold a write lock from which they can come.
    ///
    /// It is the counterpart of I6: a flush with a lower number might find its extent-cache entry forgotten.
    //= protocol.md#I6
    pub(crate) fn may_write(&self, id: ResourceId, extent: Extent, sn: Sn) -> Result<(), i32> {
        if self.destroyed.contains(&id) {
            return Err(ESTALE);
        }
        let held = self.resources.get(&id).is_some_and(|resource| {
            sn < resource.origin().sn && resource.unreleased_up_to(extent, sn).is_some()
        });
        if held { Ok(()) } else { Err(EPERM) }
    }

    /// A number below `sn` under which data may still arrive for `extent`, see [`Resource::unreleased_up_to`].
    pub(crate) fn unreleased_below(&self, id: ResourceId, extent: Extent, sn: Sn) -> Option<Sn> {
        self.resources.get(&id)?.unreleased_up_to(extent, Sn(sn.0.checked_sub(1)?))
    }

    /// See [`Resource::write_holders`].
    pub(crate) fn write_holders(&self, id: ResourceId, beyond: u64) -> Vec<ClientId> {
        self.resources.get(&id).map(|resource| resource.write_holders(beyond)).unwrap_or_default()
    }

    pub(crate) fn is_destroyed(&self, id: ResourceId) -> bool {
        self.destroyed.contains(&id)
    }

    /// Whether anybody holds or waits for anything on the resource.
    pub(crate) fn knows(&self, id: ResourceId) -> bool {
        self.resources.contains_key(&id)
    }

    pub(crate) fn sn_floor(&self) -> Sn {
        self.floor.sn
    }

    fn carry_out(&mut self, id: ResourceId, effect: Effect, turn: &mut Turn<'_>) {
        match effect {
            Effect::Grant { to: ClientId::SERVER, granted, .. } => {
                turn.todo.push_back(Todo::Whole(id, granted.lock));
            }
            Effect::Grant { to, request, granted } => {
                self.counters.grants += 1;
                self.counters.early_grants += u64::from(granted.early);
                self.counters.early_revocations += u64::from(granted.state == LockState::Canceling);
                self.counters.upgrades += u64::from(!granted.replaces.is_empty());
                turn.send(to, Channel::Control, Message::Grant { request, resource: id, granted });
            }
            Effect::Deny { to: ClientId::SERVER, .. } => turn.todo.push_back(Todo::Refused(id)),
            Effect::Deny { to, request, errno, first_common } => {
                self.deny(id, to, request, (errno, first_common), turn);
            }
            Effect::Revoke { to, lock, wanted, region } => {
                self.counters.revocations += 1;
                if to != ClientId::SERVER {
                    turn.ask(to, Message::Revoke { resource: id, lock, wanted, region });
                }
            }
            Effect::Arm { lock, holder } => {
                self.overdue.arm(Debt::Lock { resource: id, lock }, holder, turn.now_ns);
            }
            Effect::Disarm { lock } => self.overdue.disarm(Debt::Lock { resource: id, lock }),
        }
    }

    fn deny(
        &mut self,
        id: ResourceId,
        to: ClientId,
        request: RequestId,
        (errno, first_common): (i32, Option<u64>),
        turn: &mut Turn<'_>,
    ) {
        self.counters.denials += 1;
        let message = Message::Denied { request, resource: id, status: Status::Errno(errno), first_common };
        turn.send(to, Channel::Control, message);
    }

    fn forget(&mut self, id: ResourceId, turn: &mut Turn<'_>) {
        if let Some(resource) = self.resources.remove(&id) {
            //= protocol.md#I2
            //# Write locks of one resource have distinct SNs, rising in grant order, across server restarts too.
            self.floor = self.floor.max(resource.origin());
            turn.todo.push_back(Todo::Idle(id));
        }
    }
}
