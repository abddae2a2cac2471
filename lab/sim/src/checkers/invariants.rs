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
    /// Clients that were ever granted anything, by server.
    known: BTreeSet<(u32, ClientId)>,
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
    if !a.region.overlaps(&b.region) || (a.mode == LockMode::Pr && b.mode == LockMode::Pr) {
        return true;
    }
    // A write may begin while an older one still runs whose lock is CANCELING: the newer bytes win.
    let (older, newer) = if a.sn < b.sn { (a, b) } else { (b, a) };
    older.mode == LockMode::Nbw && newer.mode.is_blind_write() && older.sn < newer.sn
}

impl Observer for Invariants {
    //= protocol.md#I2
    fn granted(&mut self, at: Moment, server: u32, to: ClientId, resource: ResourceId, lock: &GrantedLock) {
        self.known.insert((server, to));
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
            uses.iter().find(|(_, other, held)| *other != client && !may_run_together(held, used)).cloned();
        uses.push((server, client, used.clone()));
        if let Some((_, other, held)) = conflict {
            let what = format!(
                "{client} uses {} ({}, {}) for {} of {} while {other} uses {} ({}, {}) for {}",
                used.lock,
                used.mode,
                used.sn,
                used.region,
                used.resource,
                held.lock,
                held.mode,
                held.sn,
                held.region
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
        let clients = self.known.range((server, ClientId(0))..=(server, ClientId(u64::MAX)));
        self.fenced.extend(clients);
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

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_types::{FileId, LockId, LockState};

    const STRIPE: ResourceId = ResourceId { file: FileId([0; 16]), stripe: 0 };

    fn at(step: u64) -> Moment {
        Moment { at_ns: step, step }
    }

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    fn used(operation: u64, mode: LockMode, sn: u64, extent: Extent) -> LockUse {
        let (operation, lock) = (OperationId(operation), LockId(operation));
        LockUse { resource: STRIPE, operation, lock, sn: Sn(sn), mode, region: extent.into() }
    }

    fn lock(number: u64, mode: LockMode, sn: u64) -> GrantedLock {
        let (region, state) = (Extent::WHOLE.into(), LockState::Granted);
        GrantedLock {
            lock: LockId(number),
            mode,
            region,
            sn: Sn(sn),
            state,
            replaces: Vec::new(),
            early: false,
        }
    }

    fn broken(invariants: &Invariants) -> Option<Rule> {
        invariants.violation().map(|violation| violation.rule)
    }

    //= protocol.md#I1 type=test
    #[test]
    fn calls_in_use_at_the_same_time_must_be_compatible() {
        use LockMode::{Bw, Nbw, Pr, Pw};
        for (first, sn, second, next, fine) in [
            (Pr, 1, Pr, 1, true),
            (Pr, 1, Nbw, 1, false),
            (Nbw, 1, Nbw, 2, true),
            (Nbw, 1, Bw, 2, true),
            (Bw, 1, Nbw, 2, false),
            (Nbw, 1, Pw, 2, false),
            (Nbw, 1, Pr, 2, false),
            (Pw, 1, Nbw, 2, false),
        ] {
            let mut invariants = Invariants::new();
            invariants.use_began(at(1), 0, ClientId(1), &used(1, first, sn, extent(0, 10)));
            invariants.use_began(at(2), 0, ClientId(2), &used(2, second, next, extent(10, 20)));
            assert_eq!(broken(&invariants), None, "they share no byte");
            invariants.use_began(at(2), 0, ClientId(1), &used(3, first, sn, extent(5, 15)));
            assert_eq!(broken(&invariants).is_none(), fine, "{first} beside {second}");
        }
    }

    #[test]
    fn what_has_ended_or_was_evicted_is_not_in_use() {
        let mut invariants = Invariants::new();
        let everything = extent(0, 10);
        invariants.use_began(at(1), 0, ClientId(1), &used(1, LockMode::Pw, 1, everything));
        invariants.use_ended(at(2), 0, ClientId(1), STRIPE, OperationId(1));
        invariants.use_began(at(3), 0, ClientId(2), &used(2, LockMode::Pw, 2, everything));
        invariants.evicted(at(4), 0, ClientId(2));
        invariants.use_began(at(5), 0, ClientId(3), &used(3, LockMode::Pw, 3, everything));
        invariants.use_began(at(6), 0, ClientId(2), &used(4, LockMode::Pr, 2, everything));
        assert_eq!(broken(&invariants), None);
    }

    //= protocol.md#I2 type=test
    #[test]
    fn numbers_must_rise_with_each_write_lock_also_across_lives_of_the_server() {
        let mut invariants = Invariants::new();
        invariants.granted(at(1), 0, ClientId(1), STRIPE, &lock(1, LockMode::Nbw, 5));
        invariants.granted(at(2), 0, ClientId(1), STRIPE, &lock(2, LockMode::Pr, 6));
        invariants.granted(at(3), 0, ClientId(1), STRIPE, &lock(3, LockMode::Nbw, 6));
        assert_eq!(broken(&invariants), None);
        invariants.died(at(4), 0);
        invariants.granted(at(5), 0, ClientId(1), STRIPE, &lock(1, LockMode::Nbw, 6));
        assert_eq!(broken(&invariants), Some(Rule::NumbersRise));
    }

    //= protocol.md#I4 type=test
    #[test]
    fn a_byte_is_not_sent_twice_under_one_number() {
        let mut invariants = Invariants::new();
        invariants.flush_sent(at(1), 0, ClientId(1), STRIPE, 1, &[(extent(0, 10), Sn(1))]);
        let pieces = [(extent(5, 10), Sn(2)), (extent(10, 20), Sn(1))];
        invariants.flush_sent(at(2), 0, ClientId(1), STRIPE, 2, &pieces);
        invariants.flush_answered(at(3), 0, ClientId(1), STRIPE, 1, None);
        invariants.flush_sent(at(4), 0, ClientId(1), STRIPE, 3, &[(extent(0, 10), Sn(1))]);
        assert_eq!(broken(&invariants), None);
        invariants.flush_sent(at(5), 0, ClientId(1), STRIPE, 4, &[(extent(19, 25), Sn(1))]);
        assert_eq!(broken(&invariants), Some(Rule::OneFlush));
    }

    fn piece(start: u64, end: u64, sn: u64, call: u32) -> TakenPiece {
        let extent = extent(start, end);
        TakenPiece { resource: STRIPE, extent, sn: Sn(sn), tags: vec![(extent, OpId(call))] }
    }

    //= protocol.md#I7 type=test
    #[test]
    fn what_an_evicted_client_sends_must_not_reach_the_device() {
        let mut contents = ExtentMap::new();
        let mut invariants = Invariants::new();
        invariants.evicted(at(1), 0, ClientId(1));
        invariants.write_taken(at(2), 0, ClientId(1), &[piece(0, 10, 1, 1)]);
        invariants.settled(at(3), 0, STRIPE, &contents);
        assert_eq!(broken(&invariants), None);
        contents.insert(extent(0, 10), OpId(1));
        invariants.settled(at(4), 0, STRIPE, &contents);
        assert_eq!(broken(&invariants), Some(Rule::HighestWins));
    }

    //= protocol.md#I6 type=test
    #[test]
    fn what_a_trimmed_cache_lets_through_shows_on_the_device() {
        let mut invariants = Invariants::new();
        invariants.write_taken(at(1), 0, ClientId(1), &[piece(0, 10, 2, 2)]);
        invariants.write_taken(at(2), 0, ClientId(2), &[piece(0, 10, 1, 1)]);
        let mut contents = ExtentMap::new();
        contents.insert(extent(0, 10), OpId(1));
        invariants.settled(at(3), 0, STRIPE, &contents);
        assert_eq!(broken(&invariants), Some(Rule::HighestWins));
    }

    //= protocol.md#I9 type=test
    #[test]
    fn what_a_sync_vouched_for_must_be_there_after_a_restart() {
        for vouched in [false, true] {
            let mut invariants = Invariants::new();
            invariants.flush_sent(at(1), 0, ClientId(1), STRIPE, 1, &[(extent(0, 10), Sn(1))]);
            invariants.write_taken(at(2), 0, ClientId(1), &[piece(0, 10, 1, 1)]);
            invariants.flush_answered(at(3), 0, ClientId(1), STRIPE, 1, None);
            if vouched {
                invariants.sync_asked(at(4), 0, ClientId(1), 7, &[STRIPE]);
                invariants.sync_done(at(5), 0, ClientId(1), 7);
            }
            invariants.died(at(6), 0);
            invariants.restarted(at(7), 0, &[(STRIPE, ExtentMap::new())]);
            assert_eq!(broken(&invariants), vouched.then_some(Rule::Durable));
        }
    }
}
