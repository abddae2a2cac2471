//! `ccpfs bench tile-io`, `s3d`, `s3asim` and `collective` as a user meets them: atomic calls of many pieces, verified.

mod cli_support;

use cli_support::Folder;

/// All ways to ask for the locks of a call, fewest requests first.
const WAYS: &str = "datatype-alt-try,datatype-one-try,datatype-two-phase,list-alt-try,list-two-phase,posix-one-try,pieces,group";

#[test]
fn overlapping_tiles_are_written_whole_and_in_one_order_under_every_kind_and_protocol() {
    let folder = Folder::new();
    let (json, plot) = (folder.text("out/tiles.json"), folder.text("out/tiles.svg"));
    let mut line =
        vec!["bench", "tile-io", "--columns", "2", "--rows", "2", "--width", "100", "--height", "70"];
    line.extend([
        "--overlap",
        "30",
        "--stripes",
        "1,3",
        "--stripe-size",
        "4KiB",
        "--servers",
        "2",
        "--rounds",
        "2",
    ]);
    line.extend(["--lock", WAYS, "--policy", "seqdlm,datatype", "--json", &json, "--plot", &plot]);
    let ended = folder.run(&line).ok();
    assert!(ended.out.contains("every byte right; atomic calls took place in some order"), "{ended:?}");
    for part in ["2 x 2 tiles", "datatype-alt-try", "list-two-phase", "PIO MiB/s", "ratio"] {
        assert!(ended.out.contains(part), "{part}: {ended:?}");
    }
    let results = std::fs::read_to_string(&json).unwrap();
    // 8 ways, 2 policies, 2 numbers of stripes, 2 rounds.
    assert_eq!(results.matches("\"pio_seconds\"").count(), 64);
    assert_eq!(results.matches("\"pio_bytes_per_second_median\"").count(), 32);
    assert!(!results.contains("\"verified\": false"), "{results}");
    assert!(std::fs::read_to_string(&plot).unwrap().contains("</svg>"));
}

#[test]
fn a_checkpoint_of_four_arrays_and_the_results_of_a_search_are_right() {
    let folder = Folder::new();
    let checkpoint =
        ["bench", "s3d", "--side", "13", "--processes", "6", "--stripes", "2", "--stripe-size", "4KiB"];
    let search =
        ["bench", "s3asim", "--workers", "3", "--queries", "3", "--results-max", "120", "--mean", "500"];
    for line in [&checkpoint[..], &search] {
        let ended = folder.run(&[line, &["--rounds", "2", "--lock", WAYS, "--tcp"]].concat()).ok();
        assert!(ended.out.contains("every byte right"), "{ended:?}");
    }
}

#[test]
fn collective_writes_are_right_in_all_modes_and_with_a_local_file_beside() {
    let folder = Folder::new();
    let mut line =
        vec!["bench", "collective", "--processes", "4", "--unit", "20KiB", "--per-process", "200KiB"];
    line.extend(["--stripes", "1,2", "--rounds", "2", "--policy", "seqdlm,lustre,local"]);
    let ended = folder.run(&line).ok();
    for part in ["default", "lockahead", "sections", "group", "own-files", "local", "every byte right"] {
        assert!(ended.out.contains(part), "{part}: {ended:?}");
    }
}

#[test]
fn one_wrong_byte_of_many_pieces_is_found_and_named() {
    let folder = Folder::new();
    let tiles = ["bench", "tile-io", "--columns", "2", "--width", "64", "--height", "64", "--overlap", "4"];
    let alone = ["bench", "s3d", "--side", "8", "--processes", "1", "--stripes", "2"];
    for line in [&tiles[..], &alone] {
        let ended = folder.run(&[line, &["--spoil", "--rounds", "1"]].concat());
        let ended = ended.failed(3, &["WRONG", "expected data of rank 0", "3 bytes wrong"]);
        assert!(!ended.out.contains("every byte right"), "{ended:?}");
    }
}

#[test]
fn locks_are_taken_and_released_by_every_kind_and_protocol_shared_or_not() {
    let folder = Folder::new();
    let (json, plot) = (folder.text("out/locks.json"), folder.text("out/locks.svg"));
    let mut line =
        vec!["bench", "locks", "--clients", "3", "--servers", "2", "--locks", "200", "--rounds", "2"];
    line.extend(["--overlap", "0,50,100", "--json", &json, "--plot", &plot]);
    let ended = folder.run(&line).ok();
    for part in ["datatype-one-try", "list-alt-try", "posix-two-phase", "4096", "100%", "acquire/s"] {
        assert!(ended.out.contains(part), "{part}: {ended:?}");
    }
    let results = std::fs::read_to_string(&json).unwrap();
    // 9 kinds and protocols, 2 gaps, 3 overlaps, 2 rounds.
    assert_eq!(results.matches("\"acquired_per_second\"").count(), 108);
    assert!(std::fs::read_to_string(&plot).unwrap().contains("</svg>"));
    let rules = folder.run(&["bench", "locks", "--rules", "--locks", "1000", "--rounds", "1"]).ok();
    assert!(rules.out.contains("the rules alone") && rules.out.contains("with cut"), "{rules:?}");
    folder.run(&["bench", "locks", "--rules", "--overlap", "50"]).failed(2, &["--overlap 0"]);
}

#[test]
fn wrong_numbers_are_refused_with_what_is_allowed() {
    let folder = Folder::new();
    folder.run(&["bench", "tile-io", "--overlap", "5000"]).failed(2, &["--overlap 5000", "2048"]);
    folder.run(&["bench", "tile-io", "--lock", "hope"]).failed(2, &["hope", "datatype-alt-try", "pieces"]);
    folder.run(&["bench", "tile-io", "--columns", "500", "--rows", "2"]).failed(2, &["512"]);
    folder.run(&["bench", "s3d", "--side", "1", "--processes", "8"]).failed(2, &["--side 1"]);
    folder.run(&["bench", "s3asim", "--results-min", "300"]).failed(2, &["--results-max 200"]);
    folder.run(&["bench", "collective", "--unit", "2GiB"]).failed(2, &["--unit 2GiB"]);
    folder.run(&["bench", "collective", "--policy", "local", "--lock", "sections"]).failed(2, &["local"]);
    folder.wait_for_processes(|count| count == 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
