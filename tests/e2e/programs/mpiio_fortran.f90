! mpiio_fortran: files through Fortran's bindings, old and new: views, collective calls, errors. Argument: a file.
program mpiio_fortran
  use mpi
  implicit none
  integer, parameter :: blocks = 50, block_ints = 10
  integer :: ierror, rank, ranks, file, filetype, code, i, amode, count
  integer :: status(MPI_STATUS_SIZE)
  integer :: out(blocks * block_ints), in(blocks * block_ints)
  integer(kind=MPI_OFFSET_KIND) :: displacement, size_bytes
  character(len=1000) :: path

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  call get_command_argument(1, path)
  call MPI_File_open(MPI_COMM_WORLD, trim(path), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierror)
  call check(ierror == MPI_SUCCESS, 'open')
  call MPI_Type_vector(blocks, block_ints, block_ints * ranks, MPI_INTEGER, filetype, ierror)
  call MPI_Type_commit(filetype, ierror)
  displacement = 4 * block_ints * rank
  call MPI_File_set_view(file, displacement, MPI_INTEGER, filetype, 'native', MPI_INFO_NULL, ierror)
  call check(ierror == MPI_SUCCESS, 'view')
  do i = 1, blocks * block_ints
     out(i) = 100000 * rank + i
  end do
  call MPI_File_write_all(file, out, blocks * block_ints, MPI_INTEGER, status, ierror)
  call check(ierror == MPI_SUCCESS, 'write')
  call MPI_Get_count(status, MPI_INTEGER, count, ierror)
  call check(count == blocks * block_ints, 'count')
  displacement = 0
  in = 0
  call MPI_File_read_at_all(file, displacement, in, blocks * block_ints, MPI_INTEGER, status, ierror)
  call check(all(in == out), 'read')
  call MPI_File_get_size(file, size_bytes, ierror)
  call check(size_bytes == 4_MPI_OFFSET_KIND * blocks * block_ints * ranks, 'size')
  call MPI_File_get_amode(file, amode, ierror)
  call check(amode == MPI_MODE_CREATE + MPI_MODE_RDWR, 'amode')
  displacement = -1
  call MPI_File_read_at(file, displacement, in, 1, MPI_INTEGER, status, code)
  call check(code /= MPI_SUCCESS, 'an offset below 0')
  call MPI_File_close(file, ierror)
  call check(ierror == MPI_SUCCESS .and. file == MPI_FILE_NULL, 'close')
  call new_bindings()
  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  if (rank == 0) print '(a)', 'all right'
  call MPI_Finalize(ierror)

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    integer :: ignored
    if (.not. holds) then
       print '(a,i0,2a)', 'rank ', rank, ': wrong: ', what
       call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
    end if
  end subroutine check

  subroutine new_bindings()
    use mpi_f08, only: MPI08_open => MPI_File_open, MPI08_read => MPI_File_read_at_all, MPI08_close => MPI_File_close, &
         MPI_File, MPI_Status, world => MPI_COMM_WORLD, no_info => MPI_INFO_NULL, number => MPI_INTEGER
    type(MPI_File) :: again
    type(MPI_Status) :: done
    integer(kind=MPI_OFFSET_KIND) :: at
    at = 4 * block_ints * rank
    call MPI08_open(world, trim(path), MPI_MODE_RDONLY, no_info, again)
    in = 0
    call MPI08_read(again, at, in, block_ints, number, done)
    call check(all(in(1:block_ints) == out(1:block_ints)), 'the bindings of Fortran 2008')
    call MPI08_close(again)
  end subroutine new_bindings
end program mpiio_fortran
