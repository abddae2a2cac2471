//! Contents and sizes.

use ccpfs_semantics::{Stage, flags, scenarios};

scenarios! { every door:
    a_write_is_seen_by_everybody_at_once,
}

fn a_write_is_seen_by_everybody_at_once(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    for round in 0..20_u64 {
        let text = format!("round {round:04}").into_bytes();
        a.pwrite(fa, &text, round * 40_000).unwrap();
        assert_eq!(b.pread(fb, 10, round * 40_000).unwrap(), text);
        assert_eq!(b.fstat(fb).unwrap().size, round * 40_000 + 10);
        b.pwrite(fb, b"ROUND", round * 40_000).unwrap();
        assert_eq!(a.pread(fa, 5, round * 40_000).unwrap(), b"ROUND");
    }
}
