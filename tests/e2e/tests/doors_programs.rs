//! Programs that are written for files, unmodified: Python, C, fio, and an MPI program with parallel HDF5. And one that
//! is written for ccPFS, in C.

use ccpfs_e2e::{Cluster, Options, binary_folder, built, output_of, program_source, workspace};
use std::process::Command;

fn two_stripes() -> Cluster {
    Cluster::start(&Options { servers: 2, stripes: 2, stripe_size: "64KiB", ..Options::default() })
}

fn flags(list: &[&str]) -> Vec<String> {
    list.iter().map(|flag| (*flag).to_owned()).collect()
}

#[test]
fn python_reads_and_writes_files_in_every_way_it_knows() {
    let cluster = two_stripes();
    let mut command = cluster.command("python3");
    command.arg(program_source("file_calls.py")).arg(cluster.namespace()).arg(cluster.outside());
    assert_eq!(output_of(&mut command), "all right\n");
}

#[test]
fn git_keeps_a_repository_that_it_finds_sound() {
    let cluster = two_stripes();
    let script = "set -e; cd \"$1\"; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q repo; cd repo; for i in 1 2 3; do seq 1 5000 > f$i; git add f$i; git commit -qm $i; done
        git gc -q; cd ..; git clone -q repo clone; git -C clone fsck --no-progress; git -C clone log --oneline | wc -l";
    let mut command = cluster.command("bash");
    command.args(["-c", script, "bash"]).arg(cluster.namespace());
    assert_eq!(output_of(&mut command), "3\n");
}

#[test]
fn python_does_the_same_on_ordinary_files() {
    // The program's expectations are those of POSIX, except that ordinary files can be mapped.
    let cluster = two_stripes();
    let source = std::fs::read_to_string(program_source("file_calls.py")).unwrap();
    let source = source.replace("fails(19, mmap.mmap, copy, 0)", "mmap.mmap(copy, 0).close()");
    let program = cluster.outside().join("file_calls.py");
    std::fs::write(&program, source).unwrap();
    std::fs::create_dir(cluster.outside().join("w")).unwrap();
    let mut command = cluster.command("python3");
    command.arg(program).arg(cluster.outside().join("w")).arg(cluster.outside());
    assert_eq!(output_of(&mut command), "all right\n");
}

#[test]
fn c_programs_use_streams_forks_and_new_programs() {
    let cluster = two_stripes();
    let program = cluster.compile("gcc", &program_source("process_calls.c"), &[]);
    let mut command = cluster.command(program.to_str().unwrap());
    command.arg(cluster.namespace()).arg(cluster.outside());
    assert_eq!(output_of(&mut command), "all right\n");
}

#[test]
fn threads_and_children_share_descriptors_while_others_come_and_go() {
    let cluster = two_stripes();
    let program = cluster.compile("gcc", &program_source("thread_calls.c"), &flags(&["-lpthread"]));
    let mut command = cluster.command(program.to_str().expect("a short path"));
    assert_eq!(output_of(command.arg(cluster.namespace())), "all right\n");
}

#[test]
fn the_c_interface_works_linked_dynamically_and_statically() {
    let cluster = two_stripes();
    let source = program_source("capi_calls.c");
    let include = format!("-I{}", workspace().join("doors/capi/include").display());
    let folder = binary_folder().display().to_string();
    let (_, archive) = (built("libccpfs.so"), built("libccpfs.a"));
    let dynamic =
        [&*include, "-D_GNU_SOURCE", "-std=c99", "-pedantic", "-L", &folder, "-lccpfs", "-lpthread"];
    let library = format!("-Wl,-rpath,{folder}");
    let archive = archive.display().to_string();
    let fixed = [&*include, "-D_GNU_SOURCE", &archive, "-lpthread", "-ldl", "-lm"];
    for (list, extra) in [(&dynamic[..], Some(library)), (&fixed[..], None)] {
        let list: Vec<String> = flags(list).into_iter().chain(extra).collect();
        let program = cluster.compile("gcc", &source, &list);
        let mut command = cluster.plain(program.to_str().unwrap());
        command.env("CCPFS_CONFIG", cluster.config()).arg(cluster.namespace());
        assert_eq!(output_of(&mut command), "all right\n");
    }
}

#[test]
fn fio_verifies_what_several_jobs_write_to_one_file() {
    let cluster = two_stripes();
    for (pattern, block, jobs) in
        [("randwrite", 47_008, "fork"), ("write", 65_536, "thread"), ("rw", 4_096, "fork")]
    {
        let file = cluster.namespace().join(format!("fio-{pattern}"));
        let mut command = cluster.command("fio");
        command.arg("--name=job").arg(format!("--filename={}", file.display()));
        command.arg(format!("--rw={pattern}")).arg(format!("--bs={block}"));
        // Whole blocks, so that no job writes into the region of the next.
        let part = block * 100;
        command.arg(format!("--size={part}")).arg(format!("--offset_increment={part}"));
        command.args(["--ioengine=psync", "--numjobs=4"]);
        command.args([
            "--verify=crc32c",
            "--do_verify=1",
            "--verify_fatal=1",
            "--exitall_on_error",
            "--output-format=terse",
        ]);
        if jobs == "thread" {
            command.arg("--thread");
        }
        let results = output_of(&mut command);
        assert_eq!(results.lines().filter(|line| line.contains(";job;")).count(), 4, "{results}");
    }
}

#[test]
fn ranks_of_an_mpi_program_write_one_hdf5_file_together() {
    let cluster = two_stripes();
    let mut query = Command::new("pkg-config");
    let found = output_of(query.args(["--cflags", "--libs", "hdf5-mpich"]));
    let list: Vec<String> = found.split_whitespace().map(str::to_owned).collect();
    let program = cluster.compile("mpicc.mpich", &workspace().join("demo/hdf5_shared.c"), &list);
    for how in ["--collective", "--independent"] {
        let file = cluster.namespace().join(format!("shared{how}.h5"));
        let mut write = cluster.command("mpiexec.mpich");
        write.args(["-n", "4"]).arg(&program).arg("--write").arg(&file).args([how, "--elements", "20011"]);
        let _ = output_of(&mut write);
        let mut verify = cluster.command("mpiexec.mpich");
        verify.args(["-n", "3"]).arg(&program).arg("--verify").arg(&file);
        let verdict = output_of(&mut verify);
        assert!(verdict.contains(" 0 wrong"), "{verdict}");
        let mut dump = cluster.command("h5dump");
        dump.args(["-H"]).arg(&file);
        assert!(output_of(&mut dump).contains("DATASET \"columns\""));
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 64, "the file lies on the servers");
    }
}

#[test]
fn the_atomic_mode_of_mpi_files_and_its_calls_that_do_not_wait_work() {
    let cluster = two_stripes();
    let program = cluster.compile("mpicc.mpich", &program_source("mpi_atomic.c"), &[]);
    let mut command = cluster.command("mpiexec.mpich");
    command.args(["-n", "4"]).arg(program).arg(cluster.namespace().join("atomic"));
    assert_eq!(output_of(&mut command), "all right\n");
}
