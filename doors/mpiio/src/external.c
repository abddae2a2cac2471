/*
 * external.c: the data representation external32, through MPI's own packing.
 */
#include "layer.h"

#include <limits.h>

/* Copies that are packed at once: counts of these calls are of type int. */
enum { COPIES_MAX = 1 << 20 };

static MPI_Count copies_at_once(MPI_Count left)
{
    return left < COPIES_MAX ? left : COPIES_MAX;
}

int external_pack(const void *buffer, MPI_Count count, MPI_Datatype datatype, char *packed, int64_t bytes)
{
    MPI_Aint position = 0;
    MPI_Aint lower, extent;
    const char *from = buffer;
    int code = PMPI_Type_get_extent(datatype, &lower, &extent);

    while (count > 0 && code == MPI_SUCCESS) {
        MPI_Count some = copies_at_once(count);
        code = PMPI_Pack_external("external32", from, (int)some, datatype, packed, bytes, &position);
        from += some * extent;
        count -= some;
    }
    return code;
}

int external_unpack(const char *packed, int64_t bytes, void *buffer, MPI_Count count, MPI_Datatype datatype)
{
    MPI_Aint position = 0;
    MPI_Aint lower, extent;
    MPI_Count size;
    char *to = buffer;
    int code = PMPI_Type_get_extent(datatype, &lower, &extent);

    PMPI_Type_size_x(datatype, &size);
    if (size > 0 && bytes / size < count)
        count = bytes / size;
    while (count > 0 && code == MPI_SUCCESS) {
        MPI_Count some = copies_at_once(count);
        code = PMPI_Unpack_external("external32", packed, bytes, &position, to, (int)some, datatype);
        to += some * extent;
        count -= some;
    }
    return code;
}
