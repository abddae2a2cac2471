//! Runs a script and prints it with its output: `cargo run -p ccpfs-walks --example walk FILE`.

fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    match std::fs::read_to_string(&path) {
        Ok(script) => print!("{}", ccpfs_walks::run(&script)),
        Err(error) => {
            eprintln!("{path}: {error}");
            std::process::exit(1);
        }
    }
}
