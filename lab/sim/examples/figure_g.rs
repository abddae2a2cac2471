//! Trace of a small run.
use ccpfs_sim::figures::{run::*, program::Pattern, applications::Applications};
use ccpfs_sim::world::World;
fn main() {
    let mut spec = Spec::new(policy("seqdlm-page"), Pattern::RoundRobin { block: 16384, writes: 8 }, 2);
    spec.mode = WriteMode::Pw;
    let Manager::Product(p) = spec.manager else { return };
    let config = spec.config(p);
    let mut w = World::new(&config, 1, Applications::new(spec.pattern, spec.clients, 1), &[], true);
    w.run(u64::MAX);
    println!("{}", w.take_trace());
}
