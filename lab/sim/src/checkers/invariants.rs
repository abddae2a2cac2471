//! I1 to I4, I6, I7 and I9, checked at each step.
//!
//! What the product keeps in many places is kept here once, without forgetting: who uses which lock, which number was given
//! last, which flushes are under way, what each device must hold.

use super::shadow::{Difference, Shadow};
use super::{LockUse, Observer, Rule, TakenPiece, Violation};
use crate::history::{Moment, OpId};
use ccpfs_types::{ClientId, Extent, ExtentMap, LockMode, OperationId, ResourceId, Sn};
use ccpfs_wire::GrantedLock;
use std::collections::{BTreeMap, BTreeSet};

/// A flush under way: client, stripe, job.
type Flight = (u32, ClientId, ResourceId);
/// What was acknowledged when a Sync came.
type Vouched = Vec<(ResourceId, ExtentMap<Sn>)>;

/// Remembers what it is told and finds what must not be.
#[derive(Clone, Debug, Default)]
pub struct Invariants {
    violation: Option<Violation>,
    /// Calls under locks, by stripe.
    uses: BTreeMap<ResourceId, Vec<(u32, ClientId, LockUse)>>,
    /// The last number given to a write lock of a stripe.
    numbers: BTreeMap<ResourceId, Sn>,
    flights: BTreeMap<Flight, BTreeMap<u64, Vec<(Extent, Sn)>>>,
    fenced: BTreeSet<(u32, ClientId)>,
    shadows: BTreeMap<ResourceId, Shadow>,
    syncs: BTreeMap<(u32, ClientId, u64), Vouched>,
}

impl Invariants {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Invariants {
        Invariants::default()
    }

    /// The first violation, if there was one.
    #[must_use]
    pub const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn report(&mut self, at: Moment, rule: Rule, operations: &[OpId], what: &str) {
        if self.violation.is_none() {
            let what = format!("at {} ns (step {}): {what}", at.at_ns, at.step);
            self.violation = Some(Violation::new(rule, operations, what));
        }
    }

    fn report_difference(&mut self, at: Moment, rule: Rule, resource: ResourceId, difference: &Difference) {
        let Difference { extent, found, found_sn, expected } = difference;
        let name = |tag: Option<OpId>| tag.map_or("nothing".to_owned(), |call| call.to_string());
        let under = found_sn.map_or(String::new(), |sn| format!(" under {sn}"));
        let what = format!(
            "stripe {resource}, bytes {extent}: the device holds what {} wrote{under}, but it must hold what {} wrote under {}",
            name(*found),
            name(expected.tag),
            expected.sn
        );
        let operations: Vec<OpId> = [*found, expected.tag].into_iter().flatten().collect();
        self.report(at, rule, &operations, &what);
    }

    fn forget(&mut self, server: u32, who: impl Fn(ClientId) -> bool) {
        for uses in self.uses.values_mut() {
            uses.retain(|(on, client, _)| *on != server || !who(*client));
        }
        self.flights.retain(|(on, client, _), _| *on != server || !who(*client));
        self.syncs.retain(|(on, client, _), _| *on != server || !who(*client));
    }
}

/// Whether two calls of different clients may run at the same time.
fn may_run_together(a: &LockUse, b: &LockUse) -> bool {
    if !a.extent.overlaps(b.extent) || (a.mode == LockMode::Pr && b.mode == LockMode::Pr) {
        return true;
    }
    // A write may begin while an older one still runs whose lock is CANCELING: the newer bytes win.
    let (older, newer) = if a.sn < b.sn { (a, b) } else { (b, a) };
    older.mode == LockMode::Nbw && newer.mode.is_blind_write() && older.sn < newer.sn
}

impl Observer for Invariants {
    //= protocol.md#I2
    fn granted(&mut self, at: Moment, _server: u32, to: ClientId, resource: ResourceId, lock: &GrantedLock) {
        let last = self.numbers.get(&resource).copied();
        if last.is_some_and(|last| lock.sn <= last) {
            let last = last.unwrap_or_default();
            let what =
                format!("{} of {resource} for {to} has {}, but {last} was given before", lock.lock, lock.sn);
            self.report(at, Rule::NumbersRise, &[], &what);
        }
        if lock.mode.writes() {
            self.numbers.insert(resource, lock.sn);
        }
    }

    //= protocol.md#I1
    fn use_began(&mut self, at: Moment, server: u32, client: ClientId, used: &LockUse) {
        if self.fenced.contains(&(server, client)) {
            return; // it does not know yet
        }
        let uses = self.uses.entry(used.resource).or_default();
        let conflict =
            uses.iter().find(|(_, other, held)| *other != client && !may_run_together(held, used)).copied();
        uses.push((server, client, *used));
        if let Some((_, other, held)) = conflict {
            let what = format!(
                "{client} uses {} ({}, {}) for {} of {} while {other} uses {} ({}, {}) for {}",
                used.lock,
                used.mode,
                used.sn,
                used.extent,
                used.resource,
                held.lock,
                held.mode,
                held.sn,
                held.extent
            );
            self.report(at, Rule::LocksInUse, &[], &what);
        }
    }

    fn use_ended(
        &mut self,
        _at: Moment,
        _server: u32,
        client: ClientId,
        resource: ResourceId,
        operation: OperationId,
    ) {
        if let Some(uses) = self.uses.get_mut(&resource) {
            uses.retain(|(_, who, used)| *who != client || used.operation != operation);
        }
    }

    //= protocol.md#I4
    fn flush_sent(
        &mut self,
        at: Moment,
        server: u32,
        client: ClientId,
        resource: ResourceId,
        job: u64,
        pieces: &[(Extent, Sn)],
    ) {
        let flights = self.flights.entry((server, client, resource)).or_default();
        let twice = flights.iter().find_map(|(other, flying)| {
            let same =
                |(extent, sn): &&(Extent, Sn)| pieces.iter().any(|(e, s)| s == sn && e.overlaps(*extent));
            flying.iter().find(same).map(|piece| (*other, *piece))
        });
        flights.insert(job, pieces.to_vec());
        if let Some((other, (extent, sn))) = twice {
            let what = format!(
                "{client} sends flush {job} of {resource} while flush {other} is under way with bytes of the same number: {extent}, {sn}"
            );
            self.report(at, Rule::OneFlush, &[], &what);
        }
    }

    fn flush_answered(
        &mut self,
        _at: Moment,
        server: u32,
        client: ClientId,
        resource: ResourceId,
        job: u64,
        errno: Option<i32>,
    ) {
        let flights = self.flights.entry((server, client, resource)).or_default();
        let pieces = flights.remove(&job).unwrap_or_default();
        if errno.is_none() {
            let shadow = self.shadows.entry(resource).or_default();
            pieces.iter().for_each(|(extent, sn)| shadow.acknowledge(*extent, *sn));
        }
    }

    //= protocol.md#I7
    fn write_taken(&mut self, _at: Moment, server: u32, client: ClientId, pieces: &[TakenPiece]) {
        if self.fenced.contains(&(server, client)) {
            return; // must change nothing
        }
        for piece in pieces {
            self.shadows.entry(piece.resource).or_default().take(piece);
        }
    }

    fn truncate_taken(
        &mut self,
        _at: Moment,
        server: u32,
        client: ClientId,
        resource: ResourceId,
        from: u64,
        sn: Sn,
    ) {
        if !self.fenced.contains(&(server, client)) {
            self.shadows.entry(resource).or_default().cut(from, sn);
        }
    }

    fn write_refused(
        &mut self,
        _at: Moment,
        _server: u32,
        _client: ClientId,
        resource: ResourceId,
        extents: &[Extent],
    ) {
        let shadow = self.shadows.entry(resource).or_default();
        extents.iter().for_each(|extent| shadow.doubt(*extent));
    }

    //= protocol.md#I3
    //= protocol.md#I6
    fn settled(&mut self, at: Moment, _server: u32, resource: ResourceId, contents: &ExtentMap<OpId>) {
        let shadow = self.shadows.entry(resource).or_default();
        if let Some(difference) = shadow.difference(contents) {
            self.report_difference(at, Rule::HighestWins, resource, &difference);
        }
    }

    fn sync_asked(
        &mut self,
        _at: Moment,
        server: u32,
        client: ClientId,
        request: u64,
        resources: &[ResourceId],
    ) {
        let vouched = resources
            .iter()
            .filter_map(|resource| Some((*resource, self.shadows.get(resource)?.acknowledged())))
            .collect();
        self.syncs.insert((server, client, request), vouched);
    }

    fn sync_done(&mut self, _at: Moment, server: u32, client: ClientId, request: u64) {
        for (resource, acknowledged) in self.syncs.remove(&(server, client, request)).unwrap_or_default() {
            self.shadows.entry(resource).or_default().promise(&acknowledged);
        }
    }

    fn evicted(&mut self, _at: Moment, server: u32, client: ClientId) {
        self.fenced.insert((server, client));
        self.forget(server, |who| who == client);
    }

    fn died(&mut self, _at: Moment, server: u32) {
        let clients: Vec<ClientId> =
            self.flights.keys().filter(|(on, _, _)| *on == server).map(|(_, c, _)| *c).collect();
        let users =
            self.uses.values().flatten().filter(|(on, _, _)| *on == server).map(|(_, client, _)| *client);
        let all: Vec<ClientId> = users.chain(clients).collect();
        self.fenced.extend(all.into_iter().map(|client| (server, client)));
        self.forget(server, |_| true);
    }

    //= protocol.md#I9
    fn restarted(&mut self, at: Moment, _server: u32, contents: &[(ResourceId, ExtentMap<OpId>)]) {
        for (resource, found) in contents {
            let broken = self.shadows.entry(*resource).or_default().restart(found);
            if let Some(difference) = broken {
                self.report_difference(at, Rule::Durable, *resource, &difference);
            }
        }
    }

    fn destroyed(&mut self, _at: Moment, _server: u32, resource: ResourceId) {
        self.shadows.remove(&resource);
    }
}
