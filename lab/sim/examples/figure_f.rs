//! Prints one figure as text.
use ccpfs_sim::figures::{self, Size, result::number};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let size = if args.iter().any(|a| a == "--quick") { Size::Quick } else { Size::Full };
    let t = std::time::Instant::now();
    for name in args[1..].iter().filter(|a| !a.starts_with("--")) {
        let entry = figures::find(name).unwrap();
        let figure = figures::simulate_one(entry, size, 2, &|s| eprintln!("{}/{} {:.1}s", s.done, s.of, t.elapsed().as_secs_f64())).unwrap();
        println!("== {}", figure.title);
        for p in &figure.text { println!("{p}"); }
        for t in &figure.tables { println!("{}", t.to_text()); }
        for p in &figure.plots { for s in &p.series { println!("{:24} {:?}", s.name, s.values.iter().map(|v| number(v.unwrap_or(0.0))).collect::<Vec<_>>()); } }
        for m in &figure.measured {
            let c = figures::paper::find(m.claim).unwrap();
            println!("{:22} paper {:8} ours {:8} ratio {:.2}", m.claim, number(c.paper), number(m.ours), m.ours / c.paper);
        }
    }
}
