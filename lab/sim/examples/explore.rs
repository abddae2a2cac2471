//! Explores: runs the plan of one seed after the other and stops with an error at the first violation.

fn main() {
    let mut args = std::env::args().skip(1);
    let from: u64 = args.next().map_or(0, |t| t.parse().unwrap_or(0));
    let count: u64 = args.next().map_or(1, |t| t.parse().unwrap_or(1));
    let trace = args.next().is_some();
    let begin = std::time::Instant::now();
    let (mut bad, mut events) = (0, 0);
    for seed in from..from + count {
        let plan = ccpfs_sim::swarm::plan(seed);
        let report = ccpfs_sim::run::run(&plan, trace);
        events += report.events;
        if trace {
            println!("{}{}", plan.to_text(), report.trace);
        }
        if let Some(failure) = report.failure {
            println!("seed {seed}: {failure}");
            bad += 1;
            if bad > 20 {
                break;
            }
        }
    }
    let s = begin.elapsed().as_secs_f64();
    println!("{count} seeds, {bad} bad, {events} events, {s:.2} s, {:.0} seeds/s", count as f64 / s);
}
