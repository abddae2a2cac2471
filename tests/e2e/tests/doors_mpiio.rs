//! The MPI-IO layer: programs for every function of MPI's files, in front of Debian's MPICH; parallel HDF5 through it; beside the preload
//! library; its statistics. What ranks write is read through another door.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_e2e::{Cluster, Options, built, finish, output_of, program_source, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

fn two_stripes() -> Cluster {
    Cluster::start(&Options { servers: 2, stripes: 2, stripe_size: "64KiB", ..Options::default() })
}

fn compiled(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.compile("mpicc.mpich", &program_source(name), &[])
}

/// Ranks of a program, with the layer, and with the preload library if `preloads`.
fn ranks(cluster: &Cluster, count: u32, preloads: bool) -> Command {
    let mut command = cluster.plain("mpiexec.mpich");
    command.env("CCPFS_CONFIG", cluster.config());
    let layer = built("libccpfs_mpiio.so").display().to_string();
    let libraries = if preloads {
        format!("LD_PRELOAD={}:{layer}", built("libccpfs_preload.so").display())
    } else {
        format!("LD_PRELOAD={layer}")
    };
    command.args(["-n", &count.to_string(), "env", &libraries]);
    command
}

/// Runs a program on one file of ccPFS, by several numbers of ranks.
fn all_right(cluster: &Cluster, program: &Path, counts: &[u32], arguments: &[&str]) {
    for count in counts {
        let mut command = ranks(cluster, *count, false);
        command.arg(program).arg(cluster.namespace().join("file")).args(arguments);
        assert_eq!(output_of(&mut command), "all right\n", "{count} ranks");
    }
}

#[test]
fn every_function_that_reads_or_writes_moves_the_right_bytes() {
    let cluster = two_stripes();
    let program = compiled(&cluster, "mpiio_calls.c");
    all_right(&cluster, &program, &[1, 4], &[]);
    // Twelve calls, in each a block of each of four ranks.
    let expected: String =
        (0..12 * 4).flat_map(|block| std::iter::repeat_n(['a', 'b', 'c', 'd'][block % 4], 1000)).collect();
    let mut command = cluster.command("cat");
    assert!(
        output_of(command.arg(cluster.namespace().join("file"))) == expected,
        "another door reads the same"
    );
    let names = output_of(cluster.command("ls").arg("-A").arg(cluster.namespace()));
    assert_eq!(names, ".ccpfs\nfile\n", "nothing is left of the shared pointer");
}

#[test]
fn what_must_fail_fails_with_the_right_class_and_handlers_hear_of_it() {
    let cluster = two_stripes();
    let program = compiled(&cluster, "mpiio_errors.c");
    let outside = cluster.outside().join("plain");
    all_right(&cluster, &program, &[2], &[outside.to_str().unwrap()]);
}

#[test]
fn writes_that_the_library_cuts_short_are_finished_or_fail() {
    let cluster = two_stripes();
    let program = compiled(&cluster, "mpiio_short.c");
    // A library in front of the true one: what it does not have is looked for there.
    let folder = built("libccpfs.so").parent().unwrap().display().to_string();
    let flags = ["-shared", "-fPIC", "-ldl", "-Wl,--no-as-needed"].map(str::to_owned);
    let real = [format!("-L{folder}"), "-lccpfs".to_owned(), format!("-Wl,-rpath,{folder}")];
    let library =
        cluster.compile("gcc", &program_source("mpiio_short_writes.c"), &[&flags[..], &real].concat());
    for how in ["once", "full"] {
        let mut command = ranks(&cluster, 2, false);
        command.env("CCPFS_LIBRARY", &library).env("SHORT_WRITES", how);
        command.arg(&program).arg(cluster.namespace().join(how)).arg(how);
        assert_eq!(output_of(&mut command), "all right\n", "{how}");
    }
}

#[test]
fn nothing_far_places_threads_and_many_requests_are_served() {
    let cluster = two_stripes();
    let program =
        cluster.compile("mpicc.mpich", &program_source("mpiio_corners.c"), &["-lpthread".to_owned()]);
    all_right(&cluster, &program, &[1, 3], &[]);
}

#[test]
fn all_datatypes_work_as_views_and_as_memory() {
    let cluster = two_stripes();
    let program = compiled(&cluster, "mpiio_types.c");
    all_right(&cluster, &program, &[3], &[]);
}

#[test]
fn collective_calls_agree_with_an_image_of_the_file_whatever_the_hints() {
    let cluster = two_stripes();
    let program = compiled(&cluster, "mpiio_collective.c");
    for seed in ["1", "2"] {
        all_right(&cluster, &program, &[3], &["12", seed]);
    }
}

#[test]
fn collective_calls_on_a_file_of_one_stripe_agree_with_its_image() {
    let cluster = Cluster::start(&Options::default());
    let program = compiled(&cluster, "mpiio_collective.c");
    all_right(&cluster, &program, &[3], &["12", "7"]);
}

#[test]
fn overlapping_noncontiguous_accesses_are_atomic_in_atomic_mode() {
    for (stripes, kind) in [(1, "datatype"), (2, "datatype"), (2, "list")] {
        let client = format!("lock_kind = \"{kind}\"");
        let client: &'static str = Box::leak(client.into_boxed_str());
        let options = Options { servers: 2, stripes, stripe_size: "64KiB", client, ..Options::default() };
        let cluster = Cluster::start(&options);
        let program = compiled(&cluster, "mpiio_atomic.c");
        all_right(&cluster, &program, &[2, 4], &["12"]);
    }
}

/// The others are in the middle of accesses of their own, or wait for it; MPI ends them. What it had in its cache is lost, so nothing is said of
/// what the others saw.
#[test]
fn a_rank_that_is_killed_in_atomic_mode_leaves_no_lock_behind() {
    let cluster = two_stripes();
    let program = compiled(&cluster, "mpiio_atomic.c");
    let file = cluster.namespace().join("file");
    for round in ["0", "3"] {
        let mut command = ranks(&cluster, 3, false);
        let done = finish(command.arg(&program).arg(&file).args(["1000", round]));
        assert!(!done.status.success(), "a rank was killed");
        all_right(&cluster, &program, &[2], &["2"]);
    }
}

#[test]
fn hints_about_locks_change_no_byte_and_locks_ahead_are_counted() {
    let cluster = two_stripes();
    let program = compiled(&cluster, "mpiio_locks.c");
    let mut command = ranks(&cluster, 3, false);
    command.env("CCPFS_MPIIO_STATS", "1").arg(program).arg(cluster.namespace().join("file"));
    let done = finish(&mut command);
    let told = String::from_utf8_lossy(&done.stderr);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "all right\n", "{told}");
    assert_eq!(told.matches("lock ahead write hits").count(), 2, "{told}");
    assert!(!told.contains("lock ahead write hits   = 0\n"), "{told}");
}

/// The layer for Open MPI, built into the directory beside the namespace.
fn layer_for_open_mpi(cluster: &Cluster) -> PathBuf {
    let layer = cluster.outside().join("libccpfs_mpiio.so");
    let mut build = cluster.plain(workspace().join("scripts/build-mpiio.sh").to_str().unwrap());
    let _ = output_of(build.arg(&layer).arg("mpicc.openmpi"));
    layer
}

/// Ranks of Open MPI of a program on a file, with these libraries in front of it.
fn ranks_of_open_mpi(cluster: &Cluster, count: u32, libraries: &[&Path], program: &Path) -> Command {
    let mut command = cluster.plain("mpiexec.openmpi");
    command.env("CCPFS_CONFIG", cluster.config()).env("CCPFS_LIBRARY", built("libccpfs.so"));
    // More ranks than cores, as any user, without a way to other machines; no rank keeps a core that another one needs.
    for variable in
        ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"]
    {
        command.env(variable, "1");
    }
    for (variable, value) in [
        ("plm", "isolated"),
        ("mpi_yield_when_idle", "1"),
        ("hwloc_base_binding_policy", "none"),
        ("btl_vader_single_copy_mechanism", "none"),
    ] {
        command.env(format!("OMPI_MCA_{variable}"), value);
    }
    let list: Vec<String> = libraries.iter().map(|library| library.display().to_string()).collect();
    command.args(["-n", &count.to_string(), "env", &format!("LD_PRELOAD={}", list.join(":"))]);
    command.arg(program).arg(cluster.namespace().join("file"));
    command
}

/// PnetCDF of Debian is made for Open MPI, so the layer is built for that, too.
#[test]
fn pnetcdf_on_open_mpi_goes_through_the_layer_unchanged() {
    let cluster = two_stripes();
    let layer = layer_for_open_mpi(&cluster);
    let program =
        cluster.compile("mpicc.openmpi", &program_source("pnetcdf_shared.c"), &["-lpnetcdf".to_owned()]);
    let calls = cluster.compile("mpicc.openmpi", &program_source("mpiio_calls.c"), &[]);
    for program in [program, calls] {
        // PnetCDF looks at the first bytes of a file without MPI.
        let libraries = [&*built("libccpfs_preload.so"), &layer];
        assert_eq!(output_of(&mut ranks_of_open_mpi(&cluster, 3, &libraries, &program)), "all right\n");
        assert_eq!(
            std::fs::metadata(cluster.namespace().join("file")).unwrap().len(),
            64,
            "it lies on the servers"
        );
    }
}

/// Open MPI counts references where MPICH does not, and its codes are classes.
#[test]
fn what_must_fail_fails_with_the_right_class_on_open_mpi() {
    let cluster = two_stripes();
    let layer = layer_for_open_mpi(&cluster);
    let program = cluster.compile("mpicc.openmpi", &program_source("mpiio_errors.c"), &[]);
    let mut command = ranks_of_open_mpi(&cluster, 2, &[&layer], &program);
    assert_eq!(output_of(command.arg(cluster.outside().join("plain"))), "all right\n");
}

#[test]
fn the_layer_works_beside_the_preload_library() {
    let cluster = two_stripes();
    let outside = cluster.outside().join("plain");
    for (name, argument) in [("mpiio_calls.c", None), ("mpiio_errors.c", outside.to_str())] {
        let program = compiled(&cluster, name);
        let mut command = ranks(&cluster, 2, true);
        command.arg(program).arg(cluster.namespace().join("file")).args(argument);
        assert_eq!(output_of(&mut command), "all right\n", "{name}");
    }
}

#[test]
fn fortran_programs_reach_the_layer_by_both_of_their_bindings() {
    let cluster = two_stripes();
    let program = cluster.outside().join("mpiio_fortran");
    let mut compile = cluster.plain("mpifort.mpich");
    compile.arg("-o").arg(&program).arg(program_source("mpiio_fortran.f90"));
    let _ = output_of(&mut compile);
    all_right(&cluster, &program, &[2], &[]);
}

#[test]
fn parallel_hdf5_goes_through_the_layer_unchanged() {
    let cluster = two_stripes();
    let found = output_of(Command::new("pkg-config").args(["--cflags", "--libs", "hdf5-mpich"]));
    let list: Vec<String> = found.split_whitespace().map(str::to_owned).collect();
    let program = cluster.compile("mpicc.mpich", &workspace().join("demo/hdf5_shared.c"), &list);
    for how in ["--collective", "--independent"] {
        let file = cluster.namespace().join(format!("shared{how}.h5"));
        let mut write = ranks(&cluster, 3, false);
        write.arg(&program).arg("--write").arg(&file).args([how, "--elements", "20011"]);
        let _ = output_of(&mut write);
        let mut verify = ranks(&cluster, 2, false);
        let verdict = output_of(verify.arg(&program).arg("--verify").arg(&file));
        assert!(verdict.contains(" 0 wrong"), "{verdict}");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 64, "the file lies on the servers");
        let mut dump = cluster.command("h5dump");
        assert!(
            output_of(dump.arg("-H").arg(&file)).contains("DATASET \"columns\""),
            "another door reads it"
        );
    }
}

#[test]
fn statistics_hints_and_timers_are_printed_for_who_asks() {
    let cluster = two_stripes();
    let program = compiled(&cluster, "mpiio_collective.c");
    let mut command = ranks(&cluster, 2, false);
    for variable in ["MPICH_MPIIO_STATS", "MPICH_MPIIO_TIMERS", "MPICH_MPIIO_HINTS_DISPLAY"] {
        command.env(variable, "1");
    }
    command.env("MPICH_MPIIO_HINTS", "fi*:ind_rd_buffer_size=12345,other:cb_nodes=7");
    command.arg(program).arg(cluster.namespace().join("file")).args(["4", "3"]);
    let done = finish(&mut command);
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    for line in [
        "| MPIIO write access patterns for file",
        "| MPIIO read access patterns for file",
        "|   collective writes       = 16",
        "|   stripe count            = 2",
        "|   stripe size             = 65536",
        "| MPIIO write by phases, writers only, for file",
        "= 12345",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
}
