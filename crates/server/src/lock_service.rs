//! The lock service of a shard: a table of resources, and their effects turned into messages and clocks.
//!
//! What is granted when is decided in `ccpfs-dlm`; here resources come and go, and effects are carried out.

use crate::connections::{Connections, Parting};
use crate::overdue::{Debt, Overdue};
use crate::recent::Recent;
use ccpfs_dlm::server::{Effect, Input, Origin, Resource};
use ccpfs_types::{ClientId, Extent, LockId, LockMode, LockState, Policy, Region, RequestId, ResourceId, Sn};
use ccpfs_wire::{Channel, Message, Status};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Destroyed stripes that are remembered, so that latecomers hear that the file is gone.
const DESTROYED_MAX: usize = 1 << 16;

/// What the lock service has counted since it started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockCounters {
    pub(crate) requests: u64,
    pub(crate) grants: u64,
    pub(crate) early_grants: u64,
    pub(crate) early_revocations: u64,
    pub(crate) upgrades: u64,
    pub(crate) denials: u64,
    pub(crate) revocations: u64,
    pub(crate) releases: u64,
}

/// What the caller has to see to after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followup {
    /// Nobody holds or waits for anything on the resource: it was forgotten.
    Idle(ResourceId),
    /// The server itself was granted its lock on the whole resource: nothing is left to flush to it.
    Whole(ResourceId, LockId),
    /// The server itself is not granted its lock.
    Refused(ResourceId),
}

/// The locks of a shard.
#[derive(Debug)]
pub(crate) struct LockService {
    policy: Policy,
    /// Where the numbers of a new resource start: above those of all that were forgotten (I2).
    floor: Origin,
    resources: HashMap<ResourceId, Resource>,
    destroyed: Recent<ResourceId>,
    pub(crate) overdue: Overdue,
    pub(crate) counters: LockCounters,
    effects: Vec<Effect>,
    followups: Vec<Followup>,
}

impl LockService {
    pub(crate) fn new(policy: Policy, epoch: u64, revoke_timeout: Duration, now: Instant) -> LockService {
        LockService {
            policy,
            floor: Origin { sn: Sn::first_of_epoch(epoch), lock: LockId(1) },
            resources: HashMap::new(),
            destroyed: Recent::new(DESTROYED_MAX),
            overdue: Overdue::new(revoke_timeout, now),
            counters: LockCounters::default(),
            effects: Vec::new(),
            followups: Vec::new(),
        }
    }

    /// Puts one input through a resource. Only a request for a lock brings a resource into being.
    pub(crate) fn step(&mut self, id: ResourceId, input: Input, connections: &mut Connections, now: Instant) {
        let asks = match &input {
            Input::Enqueue { .. } => true,
            Input::RevokeAck { .. }
            | Input::Convert { .. }
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
        let mut effects = std::mem::take(&mut self.effects);
        resource.step(input, &mut effects);
        let idle = resource.is_idle();
        for effect in effects.drain(..) {
            self.carry_out(id, effect, connections, now);
        }
        self.effects = effects;
        if idle {
            self.forget(id);
        }
    }

    /// Takes a client's request for a lock.
    pub(crate) fn enqueue(
        &mut self,
        id: ResourceId,
        request: Input,
        connections: &mut Connections,
        now: Instant,
    ) {
        self.counters.requests += 1;
        if let Input::Enqueue { from, request, .. } = &request
            && self.destroyed.contains(&id)
        {
            self.deny(id, *from, *request, libc::ESTALE, connections);
            return;
        }
        self.step(id, request, connections, now);
    }

    /// Takes back everything that a client holds or waits for.
    pub(crate) fn evict(&mut self, client: ClientId, connections: &mut Connections, now: Instant) -> usize {
        self.overdue.forgive(client);
        let mut involved: Vec<ResourceId> = self
            .resources
            .iter()
            .filter(|(_, resource)| resource.involves(client))
            .map(|(id, _)| *id)
            .collect();
        involved.sort_unstable();
        for id in &involved {
            self.step(*id, Input::Evict { client }, connections, now);
        }
        involved.len()
    }

    /// Ends a resource for good.
    pub(crate) fn destroy(&mut self, id: ResourceId, connections: &mut Connections, now: Instant) {
        self.destroyed.insert(id);
        self.step(id, Input::Destroy, connections, now);
    }

    /// Asks for a read lock on all of a resource in the server's own name: all clients flush what they hold of it.
    pub(crate) fn force_flush(&mut self, id: ResourceId, connections: &mut Connections, now: Instant) {
        let input = Input::Enqueue {
            from: ClientId::SERVER,
            request: RequestId(0),
            mode: LockMode::Pr,
            required: Region::WHOLE,
            desired: Region::WHOLE,
            try_only: false,
        };
        self.step(id, input, connections, now);
    }

    /// What followed from the steps since the last call.
    pub(crate) fn take_followups(&mut self) -> Vec<Followup> {
        std::mem::take(&mut self.followups)
    }

    /// Whether [`LockService::take_followups`] has anything to give.
    pub(crate) fn has_followups(&self) -> bool {
        !self.followups.is_empty()
    }

    /// Whether a flush may bring data with `sn` for `extent`: somebody must hold a write lock from which they can come.
    ///
    /// It is the counterpart of I6: a flush with a lower number might find its extent-cache entry forgotten.
    pub(crate) fn may_write(&self, id: ResourceId, extent: Extent, sn: Sn) -> Result<(), i32> {
        if self.destroyed.contains(&id) {
            return Err(libc::ESTALE);
        }
        let lowest = self.lowest_unreleased_sn(id, extent);
        let granted = self.resources.get(&id).is_some_and(|resource| sn < resource.origin().sn);
        if granted && lowest.is_some_and(|lowest| lowest <= sn) { Ok(()) } else { Err(libc::EPERM) }
    }

    /// See [`Resource::lowest_unreleased_sn`].
    pub(crate) fn lowest_unreleased_sn(&self, id: ResourceId, extent: Extent) -> Option<Sn> {
        self.resources.get(&id)?.lowest_unreleased_sn(extent)
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

    /// Resources, locks, and waiting requests at this moment.
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        let locks = self.resources.values().map(Resource::lock_count).sum();
        let waiting = self.resources.values().map(Resource::waiting_count).sum();
        (self.resources.len(), locks, waiting)
    }

    fn carry_out(&mut self, id: ResourceId, effect: Effect, connections: &mut Connections, now: Instant) {
        match effect {
            Effect::Grant { to: ClientId::SERVER, granted, .. } => {
                self.followups.push(Followup::Whole(id, granted.lock));
            }
            Effect::Grant { to, request, granted } => {
                self.counters.grants += 1;
                self.counters.early_grants += u64::from(granted.early);
                self.counters.early_revocations += u64::from(granted.state == LockState::Canceling);
                self.counters.upgrades += u64::from(!granted.replaces.is_empty());
                let message = Message::Grant { request, resource: id, granted };
                connections.send_to(to, Channel::Control, &message);
            }
            Effect::Deny { to: ClientId::SERVER, .. } => self.followups.push(Followup::Refused(id)),
            Effect::Deny { to, request, errno } => self.deny(id, to, request, errno, connections),
            Effect::Revoke { to, lock, wanted } => {
                self.counters.revocations += 1;
                let message = Message::Revoke { resource: id, lock, wanted };
                if to != ClientId::SERVER && !connections.send_to(to, Channel::Callback, &message) {
                    connections.doom(to, Parting::Unreachable);
                }
            }
            Effect::Arm { lock, holder } => {
                self.overdue.arm(Debt::Lock { resource: id, lock }, holder, now);
            }
            Effect::Disarm { lock } => self.overdue.disarm(Debt::Lock { resource: id, lock }),
        }
    }

    fn deny(
        &mut self,
        id: ResourceId,
        to: ClientId,
        request: RequestId,
        errno: i32,
        connections: &mut Connections,
    ) {
        self.counters.denials += 1;
        let message = Message::Denied { request, resource: id, status: Status::Errno(errno) };
        connections.send_to(to, Channel::Control, &message);
    }

    fn forget(&mut self, id: ResourceId) {
        if let Some(resource) = self.resources.remove(&id) {
            //= protocol.md#I2
            //# Write locks of one resource have distinct SNs, rising in grant order, across server restarts too.
            self.floor = self.floor.max(resource.origin());
            self.followups.push(Followup::Idle(id));
        }
    }
}
